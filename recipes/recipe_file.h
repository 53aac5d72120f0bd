// Reads a recipe's bytes from disk: only a regular file, only up to kLargestRecipe, without ever
// waiting.
#pragma once

#include <string>

#include "recipes/report.h"

namespace regrow {

// False: it was reported why there is no text.
bool read_recipe_file(const std::string& path, std::string& text, Report& report);

}  // namespace regrow
