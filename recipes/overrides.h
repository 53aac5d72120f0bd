// `--set key.path=value`: puts values into a recipe's tree before it is checked, so that they pass
// the very same checks. Later ones win over earlier ones and over the file.
#pragma once

#include <string>
#include <vector>

#include "recipes/report.h"
#include "recipes/yaml_tree.h"

namespace regrow {

// One text is taken as it is (`--set name=42`, `--set env.A=b: c`), a list is YAML
// (`--set 'command=[train.py, --fast]'`). `root` is a map.
void apply_overrides(YamlNode& root, const std::vector<std::string>& overrides, Report& report);

}  // namespace regrow
