#include "recipes/values.h"

#include <cctype>
#include <limits>
#include <optional>
#include <vector>

#include "recipes/diagnostic.h"

namespace regrow {
namespace {

constexpr uint64_t kHuge = std::numeric_limits<uint64_t>::max();

struct Unit {
  std::string_view name;
  uint64_t factor;
};

// Largest first, so that formatting finds the shortest exact form.
constexpr Unit kTimeUnits[] = {
    {"d", 86400000000}, {"h", 3600000000}, {"m", 60000000}, {"s", 1000000}, {"ms", 1000}};
constexpr Unit kSizeUnits[] = {{"TiB", 1ull << 40}, {"TB", 1000000000000},
                               {"GiB", 1ull << 30}, {"GB", 1000000000},
                               {"MiB", 1ull << 20}, {"MB", 1000000},
                               {"KiB", 1ull << 10}, {"kB", 1000},
                               {"KB", 1000},        {"B", 1}};

struct Spelling {
  std::string_view wrong;
  std::string_view right;
};

// Compared in lower case.
constexpr Spelling kTimeSpellings[] = {
    {"sec", "s"},     {"secs", "s"},   {"second", "s"},  {"seconds", "s"}, {"min", "m"},
    {"mins", "m"},    {"minute", "m"}, {"minutes", "m"}, {"hr", "h"},      {"hrs", "h"},
    {"hour", "h"},    {"hours", "h"},  {"day", "d"},     {"days", "d"},    {"msec", "ms"},
    {"millis", "ms"}, {"s", "s"},      {"m", "m"},       {"h", "h"},       {"d", "d"},
    {"ms", "ms"}};
constexpr Spelling kSizeSpellings[] = {{"k", "KiB"}, {"ki", "KiB"},  {"kib", "KiB"}, {"kb", "kB"},
                                       {"m", "MiB"}, {"mi", "MiB"},  {"mib", "MiB"}, {"mb", "MB"},
                                       {"g", "GiB"}, {"gi", "GiB"},  {"gib", "GiB"}, {"gb", "GB"},
                                       {"t", "TiB"}, {"ti", "TiB"},  {"tib", "TiB"}, {"tb", "TB"},
                                       {"b", "B"},   {"bytes", "B"}, {"byte", "B"}};

bool is_digit(char c) { return c >= '0' && c <= '9'; }

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return out;
}

// "12.5" times factor; kHuge if that does not fit.
uint64_t scaled(std::string_view digits, std::string_view fraction, uint64_t factor) {
  unsigned __int128 whole = 0;
  for (char c : digits) {
    whole = whole * 10 + static_cast<unsigned>(c - '0');
    if (whole > kHuge) return kHuge;
  }
  unsigned __int128 part = 0, divisor = 1;
  for (char c : fraction.substr(0, 9)) {
    part = part * 10 + static_cast<unsigned>(c - '0');
    divisor *= 10;
  }
  unsigned __int128 value = whole * factor + part * factor / divisor;
  return value > kHuge ? kHuge : static_cast<uint64_t>(value);
}

struct UnitRules {
  const Unit* units;
  size_t unit_count;
  const Spelling* spellings;
  size_t spelling_count;
  std::string_view default_unit;
  std::string_view what;      // "a time"
  std::string_view examples;  // "500ms, 10s"
};

ParsedNumber parse_with_unit(std::string_view text, const UnitRules& rules) {
  size_t end = 0;
  while (end < text.size() && is_digit(text[end])) ++end;
  std::string_view digits = text.substr(0, end), fraction;
  if (end < text.size() && text[end] == '.') {
    size_t start = ++end;
    while (end < text.size() && is_digit(text[end])) ++end;
    fraction = text.substr(start, end - start);
    if (fraction.empty()) digits = {};
  }
  std::string expected =
      "expected " + std::string(rules.what) + " like " + std::string(rules.examples);
  if (digits.empty()) return ValueProblem{expected + ", got " + printable(text), ""};
  std::string number(text.substr(0, end));
  std::string_view unit = text.substr(end);
  if (unit.empty()) {
    return ValueProblem{
        std::string(rules.what) + " needs a unit, as in " + std::string(rules.examples),
        number + std::string(rules.default_unit)};
  }
  for (size_t i = 0; i < rules.unit_count; ++i) {
    if (unit == rules.units[i].name) return scaled(digits, fraction, rules.units[i].factor);
  }
  std::string hint;
  std::string_view trimmed = unit.substr(std::min(unit.find_first_not_of(' '), unit.size()));
  std::string word = lower(trimmed);
  for (size_t i = 0; i < rules.spelling_count; ++i) {
    if (word == rules.spellings[i].wrong) hint = number + std::string(rules.spellings[i].right);
  }
  if (trimmed.empty()) hint = number + std::string(rules.default_unit);
  return ValueProblem{expected + "; there is no unit '" + printable(trimmed) + "'", hint};
}

template <size_t N>
std::string format_with_unit(uint64_t value, const Unit (&units)[N], std::string_view zero) {
  if (value == 0) return std::string(zero);
  for (const Unit& unit : units) {
    if (value % unit.factor == 0)
      return std::to_string(value / unit.factor) + std::string(unit.name);
  }
  return std::to_string(value) + "us";
}

}  // namespace

ParsedNumber parse_count(std::string_view text) {
  bool digits = !text.empty();
  for (char c : text) digits = digits && is_digit(c);
  if (!digits) {
    std::string hint;
    std::string joined;
    for (char c : text) {
      if (c != ',' && c != '_') joined += c;
    }
    // 1_000 or 1,000
    if (joined.size() != text.size() && joined.find_first_not_of("0123456789") == joined.npos)
      hint = joined;
    return ValueProblem{"expected a whole number, got " + printable(text), hint};
  }
  if (text.size() > 1 && text[0] == '0') {
    size_t first = text.find_first_not_of('0');
    return ValueProblem{"a number does not begin with 0",
                        first == text.npos ? "0" : printable(text.substr(first), 30)};
  }
  return scaled(text, {}, 1);
}

ParsedNumber parse_duration(std::string_view text) {
  return parse_with_unit(text, {kTimeUnits, std::size(kTimeUnits), kTimeSpellings,
                                std::size(kTimeSpellings), "s", "a time", "500ms, 10s, 5m or 2h"});
}

ParsedNumber parse_size(std::string_view text) {
  return parse_with_unit(text, {kSizeUnits, std::size(kSizeUnits), kSizeSpellings,
                                std::size(kSizeSpellings), "MiB", "a size", "64MiB or 8GB"});
}

std::string format_duration(uint64_t microseconds) {
  return format_with_unit(microseconds, kTimeUnits, "0s");
}

std::string format_size(uint64_t bytes) { return format_with_unit(bytes, kSizeUnits, "0B"); }

bool looks_like_number(std::string_view text) {
  if (!text.empty() && (text[0] == '-' || text[0] == '+')) text.remove_prefix(1);
  std::string word = lower(text);
  if (word == ".inf" || word == ".nan") return true;
  if (text.empty() ||
      !(is_digit(text[0]) || (text[0] == '.' && text.size() > 1 && is_digit(text[1])))) {
    return false;
  }
  if (word.starts_with("0x")) return word.find_first_not_of("0123456789abcdef", 2) == word.npos;
  if (word.starts_with("0o")) return word.find_first_not_of("01234567", 2) == word.npos;
  size_t i = 0, dots = 0;
  while (i < word.size() && (is_digit(word[i]) || word[i] == '_' || word[i] == '.'))
    dots += word[i++] == '.';
  if (dots > 1) return false;
  if (i < word.size() && word[i] == 'e') {
    ++i;
    if (i < word.size() && (word[i] == '-' || word[i] == '+')) ++i;
    if (i == word.size()) return false;
    while (i < word.size() && is_digit(word[i])) ++i;
  }
  return i == word.size();
}

bool looks_like_bool(std::string_view text) {
  std::string word = lower(text);
  return word == "true" || word == "false" || word == "yes" || word == "no" || word == "on" ||
         word == "off";
}

}  // namespace regrow
