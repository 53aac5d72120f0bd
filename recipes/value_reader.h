// Turns one YAML node into the value that its row of the table asks for, or says what is wrong with
// it.
#pragma once

#include <string>
#include <string_view>

#include "recipes/report.h"
#include "recipes/schema_table.h"
#include "recipes/yaml_tree.h"

namespace regrow {

struct ReadContext {
  std::string directory;  // absolute; relative paths start here
  std::string home;       // for the advice about '~'
};

// Any kind but table, environment and the table form of an intensity. False: something was
// reported.
bool read_value(const SchemaRow& row, std::string_view path, const YamlNode& node,
                const ReadContext& context, Report& report, RecipeValue& value);

// "the number 4", "a list", for messages.
std::string describe_node(const YamlNode& node);

}  // namespace regrow
