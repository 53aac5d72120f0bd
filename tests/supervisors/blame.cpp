#include "supervisors/blame.h"

#include "tests/catch.h"
#include "tests/supervisors/support.h"

using namespace regrow;
using test::report;

TEST_CASE("what kind of failure an end is", "[blame]") {
  struct Row {
    const char* name;
    RankReport report;
    FailureClass failure_class;
    bool fatal;
    bool peer_error;
    const char* signature;
  };
  auto with = [](RankReport r, auto change) {
    change(r);
    return r;
  };
  RankReport failed = report(ProcessState::exited, 0, 1, 1);
  RankReport killed = report(ProcessState::exited, 0, 1, 0, 9);
  std::vector<Row> rows{
      {"killed from outside", killed, FailureClass::killed, false, false, "SIGKILL"},
      {"terminated from outside", report(ProcessState::exited, 0, 1, 0, 15), FailureClass::killed,
       false, false, "SIGTERM"},
      {"ended with its host's agent", with(killed, [](RankReport& r) { r.ended_by_us = true; }),
       FailureClass::preempted, false, false, "ended with its host"},
      {"out of memory", with(killed, [](RankReport& r) { r.out_of_memory = true; }),
       FailureClass::out_of_memory, false, false, "SIGKILL"},
      {"own fault", report(ProcessState::exited, 0, 1, 0, 11), FailureClass::program, false, false,
       "SIGSEGV"},
      {"abort with words",
       with(report(ProcessState::exited, 0, 1, 0, 6),
            [](RankReport& r) { r.error_line = "terminate called at 0x55"; }),
       FailureClass::program, false, false, "SIGABRT: terminate called at #x#"},
      {"user error", with(failed, [](RankReport& r) { r.error_line = "ValueError: bad batch 17"; }),
       FailureClass::program, false, false, "exit 1: ValueError: bad batch #"},
      {"a peer's end",
       with(
           failed,
           [](RankReport& r) { r.error_line = "RuntimeError: Connection closed by peer [::1]:9"; }),
       FailureClass::program, false, true,
       "exit 1: RuntimeError: Connection closed by peer [::#]:#"},
      {"exit 0", report(ProcessState::exited, 0, 1), FailureClass::early_exit, false, false,
       "exit 0 before its peers"},
      {"port taken", with(failed, [](RankReport& r) { r.bind_failed = true; }),
       FailureClass::start_up, false, false, "rendezvous address in use"},
      {"no such program",
       with(report(ProcessState::never_started, 0, 1),
            [](RankReport& r) { r.message = "no such file"; }),
       FailureClass::start_up, true, false, "never started: no such file"},
      {"shim gone", report(ProcessState::gone, 0, 1), FailureClass::infrastructure, false, false,
       "gone"},
  };
  for (const Row& row : rows) {
    INFO(row.name);
    Verdict v = judge(row.report);
    CHECK(v.failure_class == row.failure_class);
    CHECK(v.fatal == row.fatal);
    CHECK(v.peer_error == row.peer_error);
    CHECK(v.signature == row.signature);
    CHECK_FALSE(v.text.empty());
  }
}

TEST_CASE("numbers in an error line do not make it another failure", "[blame]") {
  RankReport a = report(ProcessState::exited, 0, 1, 1), b = a;
  a.error_line = "IndexError: index 4711 is out of bounds";
  b.error_line = "IndexError: index 12 is out of bounds";
  CHECK(judge(a).signature == judge(b).signature);
  b.error_line = "KeyError: index 12 is out of bounds";
  CHECK_FALSE(judge(a).signature == judge(b).signature);
  b.error_line = std::string(10000, 'x');
  CHECK(judge(b).signature.size() < 300);
}

TEST_CASE("signals have names", "[blame]") {
  CHECK(signal_name(9) == "SIGKILL");
  CHECK(signal_name(77) == "signal 77");
}
