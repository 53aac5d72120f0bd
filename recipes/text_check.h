// Looks at a recipe's bytes before any YAML parser sees them. Linear in the text, no allocation of
// note.
#pragma once

#include <string_view>
#include <vector>

#include "recipes/yaml_tree.h"

namespace regrow {

// NUL bytes, other encodings than UTF-8, control characters, tabs used as indentation. Empty =
// fine. At most a few problems; with any of them the text must not be parsed.
std::vector<YamlProblem> check_text(std::string_view text);

// The length in bytes of the UTF-8 character at text[at], or 0 if there is none.
size_t utf8_length(std::string_view text, size_t at);

bool is_valid_utf8(std::string_view text);

}  // namespace regrow
