// Numbers, times and foreign text as people see them.
#include "tests/catch.h"
#include "tools/regrow/text.h"

using namespace regrow::cli;

TEST_CASE("text is cut by columns, not by bytes") {
  CHECK(display_width("µs") == 2);
  CHECK(fit("größer", 0) == "größer");
  CHECK(fit("größer", 6) == "größer");
  CHECK(fit("größer", 4) == "grö…");
  CHECK(fit("ab", 1) == "…");
  CHECK(display_width("a\xff"
                      "b") == 3);
}

TEST_CASE("what a process wrote cannot command the terminal") {
  CHECK(one_line("a\033[2Jb") == "a\xef\xbf\xbd[2Jb");
  CHECK(one_line("first\nsecond\n") == "first / second");
  CHECK(one_line("windows\r\n") == "windows");
  CHECK(one_line("tab\there") == "tab here");
  CHECK(one_line("\xc2\x9b"
                 "31m") ==
        "\xef\xbf\xbd"
        "31m");  // CSI as one C1 character
  CHECK(one_line("not utf-8: \xff") == "not utf-8: \xef\xbf\xbd");
  CHECK(lines_of("Traceback:\n\tline\033c\n") ==
        "Traceback:\n\tline\xef\xbf\xbd"
        "c\n");
}

TEST_CASE("sizes and times are written as people say them") {
  CHECK(bytes_text(0) == "0 B");
  CHECK(bytes_text(1536) == "1.5 KiB");
  CHECK(bytes_text(80ull << 30) == "80 GiB");
  CHECK(span_text(-5) == "0 µs");
  CHECK(span_text(48000) == "48 ms");
  CHECK(span_text(2400000) == "2.4 s");
  CHECK(span_text(59000000) == "59 s");
  CHECK(span_text(192000000) == "3m 12s");
  CHECK(span_text(5ll * 3600 * 1000000) == "5h 00m");
  CHECK(span_text(99ll * 3600 * 1000000) == "4d 3h");
  CHECK(step_text(0) == "");
  CHECK(step_text(0.048) == "48 ms/step");
  CHECK(clock_text(0) == "-");
}

TEST_CASE("counts and ranges read like prose") {
  CHECK(count_text(1, "rank") == "1 rank");
  CHECK(count_text(0, "rank") == "0 ranks");
  CHECK(count_text(2, "recovery", "recoveries") == "2 recoveries");
  CHECK(ranges_text({}) == "");
  CHECK(ranges_text({0, 1, 2, 3}) == "0-3");
  CHECK(ranges_text({0, 1, 5, 7, 8, 9}) == "0,1,5,7-9");
}
