// What people write on the command line, as values.
#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cstdlib>
#include <string_view>
#include <utility>

#include "supervisors/types.h"
#include "tools/regrow/cli.h"
#include "tools/regrow/text.h"

namespace regrow::cli {

namespace {

bool is_number(std::string_view text) {
  return !text.empty() && text.size() < 19 &&
         std::all_of(text.begin(), text.end(),
                     [](unsigned char c) { return std::isdigit(c) != 0; });
}

std::string quoted(const std::string& text) { return "\"" + one_line(text) + "\""; }

constexpr std::array<std::pair<std::string_view, std::string_view>, 5> kEntityForms{
    {{"host", "host/NAME"},
     {"device", "device/HOST/NAME"},
     {"job", "job/N"},
     {"group", "group/N/G"},
     {"rank", "rank/N/R"}}};

}  // namespace

uint64_t parse_job(const std::string& text) {
  std::string_view number = text;
  if (number.starts_with("job/")) number.remove_prefix(4);
  if (!is_number(number)) {
    fail(kExitUsage, quoted(text) + " is not a job; write its number, as `regrow jobs` lists it");
  }
  return std::strtoull(std::string(number).c_str(), nullptr, 10);
}

std::string parse_entity(const std::string& text) {
  if (parse_entity_id(text)) return text;
  auto slash = text.find('/');
  std::string first = text.substr(0, slash);
  for (const auto& [kind, form] : kEntityForms) {
    if (slash != std::string::npos && first == kind)
      fail(kExitUsage, quoted(text) + " names nothing; write " + std::string(form));
  }
  bool numbers = is_number(first);
  std::string guess = slash == std::string::npos ? (numbers ? "job/" : "host/") + text
                                                 : (numbers ? "rank/" : "device/") + text;
  if (parse_entity_id(guess)) return guess;
  fail(kExitUsage, quoted(text) +
                       " names nothing; write cluster, host/NAME, device/HOST/NAME, job/N, "
                       "group/N/G or rank/N/R");
}

int parse_signal(const std::string& text) {
  static constexpr std::array<std::pair<std::string_view, int>, 14> kSignals{{{"HUP", 1},
                                                                              {"INT", 2},
                                                                              {"QUIT", 3},
                                                                              {"ILL", 4},
                                                                              {"ABRT", 6},
                                                                              {"BUS", 7},
                                                                              {"FPE", 8},
                                                                              {"KILL", 9},
                                                                              {"USR1", 10},
                                                                              {"SEGV", 11},
                                                                              {"USR2", 12},
                                                                              {"TERM", 15},
                                                                              {"CONT", 18},
                                                                              {"STOP", 19}}};
  if (is_number(text)) {
    int number = std::atoi(text.c_str());
    if (number >= 1 && number <= 64) return number;
  }
  std::string name;
  for (unsigned char c : text) name += static_cast<char>(std::toupper(c));
  if (name.starts_with("SIG")) name.erase(0, 3);
  for (const auto& [known, number] : kSignals) {
    if (name == known) return number;
  }
  fail(
      kExitUsage,
      quoted(text) + " is not a signal; write KILL, TERM, STOP, SEGV ... or a number from 1 to 64");
}

double parse_seconds(const std::string& text) {
  double value = 0;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  std::string_view unit(end, static_cast<size_t>(text.data() + text.size() - end));
  double scale = unit == "ms"                  ? 1e-3
                 : unit == "s" || unit.empty() ? 1
                 : unit == "m"                 ? 60
                 : unit == "h"                 ? 3600
                                               : 0;
  bool sensible = error == std::errc{} && scale > 0 && value > 0 && value * scale < 1e8;
  if (!sensible) fail(kExitUsage, quoted(text) + " is not a time; write 500ms, 5s, 2m or 1h");
  return value * scale;
}

}  // namespace regrow::cli
