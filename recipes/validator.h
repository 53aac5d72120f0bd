// Checks a recipe's tree against the table, then what several keys mean together, and makes the
// JobSpec.
#pragma once

#include "recipes/recipe.h"
#include "recipes/report.h"
#include "recipes/yaml_tree.h"

namespace regrow {

// The result is only worth having if nothing was reported. `options.directory` is absolute.
JobSpec validate(const YamlNode& root, const LoadOptions& options, Report& report);

}  // namespace regrow
