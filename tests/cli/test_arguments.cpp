// What people write on the command line.
#include "tests/catch.h"
#include "tools/regrow/cli.h"
#include "tools/regrow/shell_session.h"

using namespace regrow;
using namespace regrow::cli;

namespace {

template <class F>
int code_of(F f) {
  try {
    f();
    return kExitOk;
  } catch (const CommandFailed& failed) {
    CHECK(!failed.error().message.empty());
    return failed.error().exit_code;
  }
}

}  // namespace

TEST_CASE("a job is a number, with or without its kind") {
  CHECK(parse_job("7") == 7);
  CHECK(parse_job("job/12") == 12);
  for (const char* wrong :
       {"", "x", "-1", "7.5", "job/", "job/x", "rank/7/1", "99999999999999999999"}) {
    CAPTURE(wrong);
    CHECK(code_of([&] { (void)parse_job(wrong); }) == kExitUsage);
  }
}

TEST_CASE("an entity may be written short") {
  CHECK(parse_entity("cluster") == "cluster");
  CHECK(parse_entity("7") == "job/7");
  CHECK(parse_entity("7/3") == "rank/7/3");
  CHECK(parse_entity("h1") == "host/h1");
  CHECK(parse_entity("h1/sim0") == "device/h1/sim0");
  CHECK(parse_entity("group/7/0") == "group/7/0");
  CHECK(code_of([] { (void)parse_entity(""); }) == kExitUsage);
  for (const char* wrong : {"a/b/c/d", "job/abc", "rank/7", "group/7", "device/h1"}) {
    CAPTURE(wrong);
    CHECK(code_of([&] { (void)parse_entity(wrong); }) == kExitUsage);
  }
}

TEST_CASE("signals go by name or number") {
  CHECK(parse_signal("KILL") == 9);
  CHECK(parse_signal("sigterm") == 15);
  CHECK(parse_signal("19") == 19);
  CHECK(code_of([] { (void)parse_signal("0"); }) == kExitUsage);
  CHECK(code_of([] { (void)parse_signal("65"); }) == kExitUsage);
  CHECK(code_of([] { (void)parse_signal("KILLL"); }) == kExitUsage);
}

TEST_CASE("times have units") {
  CHECK(parse_seconds("5s") == 5);
  CHECK(parse_seconds("500ms") == Approx(0.5));
  CHECK(parse_seconds("1.5") == Approx(1.5));
  CHECK(parse_seconds("2m") == 120);
  for (const char* wrong : {"", "s", "-1s", "0", "5 s", "5d", "nan", "inf", "1e12"}) {
    CAPTURE(wrong);
    CHECK(code_of([&] { (void)parse_seconds(wrong); }) == kExitUsage);
  }
}

TEST_CASE("a line of the shell is words, quotes keep blanks") {
  CHECK(split_words("  cd   job/7 ") == std::vector<std::string>{"cd", "job/7"});
  CHECK(split_words("cancel 7 --reason \"wrong data\"") ==
        std::vector<std::string>{"cancel", "7", "--reason", "wrong data"});
  CHECK(split_words("x \"\"") == std::vector<std::string>{"x", ""});
  CHECK(split_words("   ").empty());
}
