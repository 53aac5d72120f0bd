#include "recipes/values.h"

#include "recipes/diagnostic.h"
#include "tests/catch.h"

namespace regrow::test {
namespace {

uint64_t number(ParsedNumber parsed) {
  REQUIRE(std::holds_alternative<uint64_t>(parsed));
  return std::get<uint64_t>(parsed);
}

std::string hint(ParsedNumber parsed) {
  REQUIRE(std::holds_alternative<ValueProblem>(parsed));
  return std::get<ValueProblem>(parsed).hint;
}

}  // namespace

TEST_CASE("times and sizes are exact") {
  CHECK(number(parse_duration("500ms")) == 500000);
  CHECK(number(parse_duration("10s")) == 10000000);
  CHECK(number(parse_duration("1.5h")) == 5400000000);
  CHECK(number(parse_duration("0.000001s")) == 1);
  CHECK(number(parse_duration("2d")) == 172800000000);
  CHECK(number(parse_duration("999999999999999999999d")) == UINT64_MAX);
  CHECK(number(parse_size("64MiB")) == 64ull << 20);
  CHECK(number(parse_size("8GB")) == 8000000000);
  CHECK(number(parse_size("0B")) == 0);
  CHECK(number(parse_size("1.5KiB")) == 1536);
}

TEST_CASE("a wrong unit comes back with the right one") {
  CHECK(hint(parse_duration("90")) == "90s");
  CHECK(hint(parse_duration("90 s")) == "90s");
  CHECK(hint(parse_duration("90S")) == "90s");
  CHECK(hint(parse_duration("5 minutes")) == "5m");
  CHECK(hint(parse_duration("s")).empty());
  CHECK(hint(parse_duration("1.s")).empty());
  CHECK(hint(parse_duration("1h30m")).empty());
  CHECK(hint(parse_size("80gb")) == "80GB");
  CHECK(hint(parse_size("80Gi")) == "80GiB");
  CHECK(hint(parse_size("80")) == "80MiB");
  CHECK(hint(parse_count("1_000")) == "1000");
}

TEST_CASE("numbers with units are written as people would") {
  CHECK(format_duration(0) == "0s");
  CHECK(format_duration(90000000) == "90s");
  CHECK(format_duration(120000000) == "2m");
  CHECK(format_duration(1) == "1us");
  CHECK(format_size(80000000000) == "80GB");
  CHECK(format_size(64 << 20) == "64MiB");
}

TEST_CASE("text that YAML would take for a number or a truth value is recognised") {
  for (const char* text : {"4", "-4", "4.0", "1e9", "0x1F", ".5", "1_000", ".inf"})
    CHECK(looks_like_number(text));
  for (const char* text : {"", "-", "4x", "1.2.3", "1e", "e9", "a1", "0xg"})
    CHECK_FALSE(looks_like_number(text));
  CHECK(looks_like_bool("Yes"));
  CHECK_FALSE(looks_like_bool("yess"));
}

TEST_CASE("the nearest name forgives swapped, missing and other letters, not another word") {
  std::vector<std::string_view> names = {"name", "ranks", "ranks_per_host", "groups"};
  CHECK(nearest_name("nmae", names) == "name");
  CHECK(nearest_name("rank", names) == "ranks");
  CHECK(nearest_name("RANKS-PER-HOST", names) == "ranks_per_host");
  CHECK(nearest_name("grousp", names) == "groups");
  CHECK(nearest_name("host", names).empty());
  CHECK(nearest_name("", names).empty());
}

TEST_CASE("user text is printed safely and cut between characters") {
  CHECK(printable("a\x1b[0m\n\t\x7f") == "a\\x1b[0m\\n\\t\\x7f");
  CHECK(printable("ééé", 3) == "é...");
}

}  // namespace regrow::test
