// Numbers with units as people write them in recipes, and back.
//
// Pure; any thread. A parse never guesses: what is not exactly right comes back with a message and,
// where the meaning is plain, the right spelling as hint.
//   parse_duration("90s")   -> 90000000 (microseconds)
//   parse_duration("90")    -> problem "a time needs a unit", hint "90s"
//   parse_size("64MiB")     -> 67108864
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>

namespace regrow {

struct ValueProblem {
  std::string message;
  std::string hint;
};

using ParsedNumber = std::variant<uint64_t, ValueProblem>;

ParsedNumber parse_count(std::string_view text);     // decimal digits; beyond 64 bits = UINT64_MAX
ParsedNumber parse_duration(std::string_view text);  // number and ms, s, m, h or d; in microseconds
ParsedNumber parse_size(std::string_view text);  // number and B, kB, KiB, MB, MiB, ...; in bytes

std::string format_duration(uint64_t microseconds);  // "500ms", "90s", "5m"; exact
std::string format_size(uint64_t bytes);             // "64MiB", "80GB"; exact

// Would YAML read this unquoted text as a number, true/false or the like?
bool looks_like_number(std::string_view text);
bool looks_like_bool(std::string_view text);

}  // namespace regrow
