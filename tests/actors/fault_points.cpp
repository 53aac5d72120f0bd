#include "actors/controller/fault_points.h"

#include "tests/catch.h"

namespace regrow {

TEST_CASE("a fault point that throws strikes at its hit, of its entity, once") {
  FaultPoints faults("entity.before_input@rank/1/2:2:throw");
  for (int i = 0; i < 5; ++i) {
    faults.hit("entity.before_input", "rank/1/20");
    faults.hit("entity.after_append", "rank/1/2");
  }
  faults.hit("entity.before_input", "rank/1/2");
  CHECK_THROWS_AS(faults.hit("entity.before_input", "rank/1/2"), FaultInjected);
  faults.hit("entity.before_input", "rank/1/2");
}

TEST_CASE("several fault points can be asked for at once, the first hit is the default") {
  FaultPoints faults("entity.before_append@job/1:throw,entity.before_append@job/2:1:throw");
  CHECK_THROWS_AS(faults.hit("entity.before_append", "job/2"), FaultInjected);
  CHECK_THROWS_AS(faults.hit("entity.before_append", "job/1"), FaultInjected);
  FaultPoints none("");
  none.hit("entity.before_append", "job/1");
}

TEST_CASE("a fault point that cannot be is refused with the reason") {
  using Catch::Matchers::Contains;
  auto message = [](const std::string& text) -> std::string {
    try {
      FaultPoints faults(text);
    } catch (const std::invalid_argument& e) {
      return e.what();
    }
    return "accepted";
  };
  CHECK_THAT(message("entity.before_inptu:1"), Contains("there are: boot.after_replay"));
  for (const char* bad :
       {"journal.after_commit:0", "journal.after_commit:x", "journal.after_commit:-1",
        "journal.after_commit:", "journal.after_commit:3x", "entity.before_input:throws"})
    CHECK_THAT(message(bad), Contains("the count must be a number from 1"));
  // A journal actor that throws is no single entity's trouble.
  CHECK_THAT(message("journal.after_commit:1:throw"), Contains("only points entity.*"));
  CHECK_THAT(message("effect.before_send@rank/1/0:1"), Contains("only points entity.*"));
  CHECK(message("journal.after_commit:3,effect.before_send") == "accepted");
}

}  // namespace regrow
