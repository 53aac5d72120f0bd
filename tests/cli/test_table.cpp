// Tables for people: aligned, plain without a terminal, cut to the terminal's width with one.
#include "tests/catch.h"
#include "tools/regrow/table.h"

using namespace regrow::cli;

namespace {

Table jobs() {
  Table table({{"JOB", Align::right}, {"STATE"}, {"REASON", Align::left, true}});
  table.add({"7", {"running", Tone::good}, ""});
  table.add({"12", {"failed", Tone::bad}, "rank 2 exited with 1: ValueError: bad batch"});
  return table;
}

}  // namespace

TEST_CASE("columns are aligned and nothing trails") {
  CHECK(jobs().text({}) ==
        "JOB  STATE    REASON\n"
        "  7  running\n"
        " 12  failed   rank 2 exited with 1: ValueError: bad batch\n");
}

TEST_CASE("a narrow terminal cuts the column that may give way") {
  Terminal narrow{.live = true, .colour = false, .width = 30};
  CHECK(jobs().text(narrow) ==
        "JOB  STATE    REASON\n"
        "  7  running\n"
        " 12  failed   rank 2 exited w…\n");
}

TEST_CASE("colour does not disturb the alignment and appears only where there is a terminal") {
  Terminal colour{.live = true, .colour = true, .width = 80};
  std::string text = jobs().text(colour);
  CHECK(text.find("\033[32mrunning\033[0m\n") != std::string::npos);
  CHECK(text.find("\033[31mfailed\033[0m   rank 2") != std::string::npos);
  CHECK(jobs().text({}).find('\033') == std::string::npos);
}

TEST_CASE("a cell cannot break out of its line") {
  Table table({{"NAME"}, {"NOTE"}});
  table.add({"evil\033[31m\nname", "x"});
  CHECK(table.text({}) == "NAME              NOTE\nevil\xef\xbf\xbd[31m / name  x\n");
}

TEST_CASE("a row that is too short is filled up") {
  Table table({{"A"}, {"B"}});
  table.add({"1"});
  CHECK(table.text({}) == "A  B\n1\n");
}
