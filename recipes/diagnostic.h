// What is wrong with a recipe, said so that a person can mend it without reading our sources.
//
// Plain data; any thread. A recipe is checked to its end and yields all its diagnostics at once:
//   train.yaml:7:3: devices.memroy: unknown key (did you mean 'memory'?)
//   --set ranks=four: ranks: expected a whole number, got the text "four"
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace regrow {

// A place in the recipe file; or, if override_index is not negative, the n-th `--set` argument.
struct SourcePosition {
  int line = 0;    // from 1; 0 = the file as a whole
  int column = 0;  // from 1, in characters
  int override_index = -1;
};

struct Diagnostic {
  std::string file;      // as the user wrote it; "--set key=value" for an override
  int line = 0;          // from 1; 0 = no line
  int column = 0;        // from 1, in characters
  std::string key_path;  // "devices.memory", "command[2]"; empty = the file as a whole
  std::string message;
  std::string hint;  // the nearest valid name or value; empty = none

  friend bool operator==(const Diagnostic&, const Diagnostic&) = default;
};

// `file:line:column: key.path: message (did you mean 'x'?)`, without a line end.
std::string to_string(const Diagnostic& diagnostic);

// One line per diagnostic, each ended by a newline.
std::string to_string(const std::vector<Diagnostic>& diagnostics);

// User text made safe to print: control characters escaped, at most `limit` bytes and "...".
std::string printable(std::string_view text, size_t limit = 60);

// The candidate that `word` was probably meant to be: few edits away, letter case and '-' for '_'
// forgiven. Empty if none is near. The first of equally near candidates wins.
std::string_view nearest_name(std::string_view word,
                              const std::vector<std::string_view>& candidates);

}  // namespace regrow
