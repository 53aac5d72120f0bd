// The stories behind the transcripts in this folder.
#include "tests/catch.h"
#include "tests/golden/story.h"

using namespace regrow;
using namespace regrow::golden;

namespace {

constexpr Duration second = Duration::seconds(1);

// One rank fails in this way at this step; its peers have to be stopped; the job recovers.
void incident(Story& story, int64_t step, uint32_t rank, int32_t code, int32_t signal,
              const std::string& line) {
  story.progress(step);
  story.pass(second);
  story.exits({rank}, code, signal, line);
  story.pass(Duration::seconds(20));
}

}  // namespace

TEST_CASE("transcript: first start", "[golden]") {
  Story story("first_start",
              "Two hosts join, a job of four ranks is submitted, placed, prepared and started, and "
              "completes.",
              {.from_the_beginning = true});
  story.start(demo_spec(4));
  CHECK(story.job().phase == Phase::running);
  story.progress(100);
  story.exits({0, 1, 2, 3}, 0, 0);
  story.pass(second);
  CHECK(story.job().phase == Phase::completed);
  story.check();
}

TEST_CASE("transcript: a killed rank", "[golden]") {
  Story story("rank_killed",
              "Rank 3 is killed by somebody. Two survivors stop when asked to, one only by force. "
              "All restart in place\n"
              "from step 200: the checkpoint of step 300 is torn.",
              {});
  story.start(demo_spec(4));
  story.has_checkpoint(100);
  story.has_checkpoint(200);
  story.has_checkpoint(300, "shards 2/4, marker missing");
  story.progress(312);
  story.pass(second);
  story.stops_moving(1);
  story.exits({3}, 0, 9);
  story.pass(Duration::seconds(12));
  CHECK(story.job().phase == Phase::running);
  CHECK(story.job().resume_step == 200);
  story.check();
}

namespace {

JobSpec resilient_spec(uint32_t ranks) {
  JobSpec spec = demo_spec(ranks);
  spec.recovery = RecoveryScope::rank;
  spec.rendezvous = Rendezvous::store;
  return spec;
}

// Rank 3 dies at this step, and a new one joins the survivors, who still have it.
void heal(Story& story, int64_t step) {
  story.progress(step);
  story.pass(second);
  story.exits({3}, 0, 9);
  story.pass(Duration::seconds(10));  // a back-off included
  for (uint32_t rank : {0u, 2u, 1u}) story.joins(rank, step, true);
  story.joins(3, -1, false);
  story.pass(second);
}

}  // namespace

TEST_CASE("transcript: survivors keep their process", "[golden]") {
  Story story("survivors",
              "Rank 3 of a job with `recovery: rank` is killed. The others are called to the next "
              "generation, keep their\n"
              "process, and go on from the newest step that one of them has: rank 1 was one "
              "further than the others.",
              {});
  story.start(resilient_spec(4));
  story.has_checkpoint(300);
  story.progress(312);
  story.pass(second);
  story.exits({3}, 0, 9);
  story.joins(0, 312, true);
  story.pass(second);
  story.joins(1, 313, true);
  story.joins(2, 312, true);
  CHECK(story.job().phase == Phase::recovering);
  story.joins(3, -1, false);
  story.pass(second);
  CHECK(story.job().phase == Phase::running);
  CHECK(story.job().formed.source == 1);
  CHECK(story.job().formed.source_step == 313);
  for (uint32_t rank : {0u, 1u, 2u}) CHECK(story.job().slots[rank].incarnation == Incarnation{1});
  CHECK(story.job().slots[3].incarnation == Incarnation{2});
  story.check();
}

TEST_CASE("transcript: one that does not rejoin", "[golden]") {
  Story story("does_not_rejoin",
              "Rank 1 is killed and rank 2 never comes out of its collective. After "
              "timeouts.rejoin it is replaced as well;\n"
              "the two that joined keep their process. No state is whole, so that all go back to "
              "the checkpoint.",
              {});
  story.start(resilient_spec(4));
  story.has_checkpoint(300);
  story.progress(312);
  story.pass(second);
  story.exits({1}, 0, 9);
  story.pass(second);
  for (uint32_t rank : {0u, 1u, 3u}) story.joins(rank, -1, false);
  story.pass(Duration::seconds(32));
  CHECK(story.job().slots[2].incarnation == Incarnation{2});
  for (uint32_t rank : {0u, 1u, 2u, 3u}) story.joins(rank, -1, false);
  story.pass(second);
  CHECK(story.job().phase == Phase::running);
  CHECK(story.job().formed.source == -1);
  CHECK(story.job().slots[0].incarnation == Incarnation{1});
  story.check();
}

TEST_CASE("a step that was taken over twice and failed again is not taken over a third time",
          "[golden]") {
  Story story("", "", {});
  JobSpec spec = resilient_spec(4);
  spec.intensity[static_cast<size_t>(FailureClass::killed)].max_restarts = -1;
  story.start(spec);
  story.has_checkpoint(300);
  heal(story, 312);
  CHECK(story.job().formed.source_step == 312);
  heal(story, 312);
  CHECK(story.job().formed.source_step == 312);
  heal(story, 312);
  CHECK(story.job().formed.source == -1);
  CHECK(story.job().resume_step == 300);
  CHECK(story.job().slots[0].incarnation == Incarnation{1});
}

TEST_CASE("transcript: a user bug", "[golden]") {
  Story story("user_bug",
              "Rank 2 fails with the same error at the same step twice. Its peers' errors only "
              "echo it; rank 0's comes in\n"
              "before its own. The job fails, no device is blamed.",
              {});
  story.start(demo_spec(4));
  for (int attempt = 0; attempt < 2; ++attempt) {
    story.progress(203);
    story.pass(second);
    story.exits({0}, 1, 0, "RuntimeError: [gloo] Connection closed by peer [10.0.0.2]:41234");
    story.exits({2}, 1, 0, "ValueError: bad batch 4711");
    story.exits({1}, 1, 0, "RuntimeError: [gloo] Connection closed by peer [10.0.0.2]:41239");
    story.pass(Duration::seconds(5));
  }
  CHECK(story.job().phase == Phase::failed);
  CHECK(story.job().incident_count == 2);
  story.check();
}

TEST_CASE("transcript: an early exit", "[golden]") {
  Story story("early_exit",
              "Rank 1 exits with 0 while its peers still need it. They fail for want of it: it is "
              "the root.",
              {});
  story.start(demo_spec(4));
  story.progress(50);
  story.exits({1}, 0, 0);
  story.pass(Duration::seconds(3));
  story.exits({0, 2, 3}, 1, 0, "RuntimeError: [gloo] Connection closed by peer [10.0.0.1]:41234");
  story.pass(Duration::seconds(5));
  CHECK(story.job().phase == Phase::running);
  REQUIRE(!story.job().incidents.empty());
  CHECK(story.job().incidents.back().failure_class == FailureClass::early_exit);
  story.check();
}

TEST_CASE("transcript: a hang", "[golden]") {
  Story story(
      "hang",
      "Somebody stops rank 2 with SIGSTOP. Nothing dies; after 30 s without a step the job acts.",
      {});
  JobSpec spec = demo_spec(4);
  spec.timeouts.progress = Duration::seconds(30);
  story.start(spec);
  story.progress(80);
  story.pass(Duration::seconds(2));
  story.stops_moving(2);
  story.pass(Duration::seconds(32));
  CHECK(story.job().phase == Phase::running);
  REQUIRE(!story.job().incidents.empty());
  CHECK(story.job().incidents.back().failure_class == FailureClass::hang);
  REQUIRE(!story.job().incidents.empty());
  CHECK(story.job().incidents.back().rank == RankIndex{2});
  story.check();
}

TEST_CASE("transcript: a port taken by someone else", "[golden]") {
  Story story("bind_failure",
              "The leased port is taken between lease and bind. Another port for all ranks of the "
              "next attempt; no budget\n"
              "is spent, nobody is blamed (scenario 16).",
              {.from_the_beginning = true});
  story.next_bind_fails();
  JobSpec spec = demo_spec(2);
  spec.intensity[static_cast<size_t>(FailureClass::start_up)].max_restarts = 0;
  story.start(spec);
  story.pass(Duration::seconds(3));
  CHECK(story.job().phase == Phase::running);
  CHECK(story.job().without_progress == 0);
  CHECK(story.job().avoid_ports.size() == 1);
  story.check();
}

TEST_CASE("transcript: a lost host", "[golden]") {
  Story story("host_lost",
              "h2 falls silent, and with it two of four ranks; no step is made any more. After "
              "host_timeout they are given\n"
              "up: their devices stay dirty, and they restart on h3. Then h2 returns: what ran "
              "there is killed first, and\n"
              "its devices are free again (scenario 10).",
              {.hosts = 3});
  story.start(demo_spec(4));
  story.progress(40);
  story.cut(2);
  story.pass(Duration::seconds(20));
  CHECK(story.job().phase == Phase::running);
  CHECK(story.job().slots[2].host == HostName{"h3"});
  story.progress(60);
  story.heal(2);
  story.pass(Duration::seconds(2));
  CHECK(story.job().incident_count == 1);
  story.check();
}

TEST_CASE("transcript: a silent host whose ranks make progress", "[golden]") {
  Story story("silent_host_with_progress",
              "h2 cannot be reached for a minute, but the job's steps advance: all its ranks live. "
              "Nothing is done.",
              {});
  story.start(demo_spec(4));
  story.progress(40);
  story.cut(2);
  for (int64_t step = 41; step < 101; ++step) {
    story.progress(step);
    story.pass(second);
  }
  story.heal(2);
  story.pass(Duration::seconds(2));
  CHECK(story.job().incident_count == 0);
  story.check();
}

TEST_CASE("transcript: cancel while a host cannot be reached", "[golden]") {
  Story story("cancel_unreachable",
              "The job is cancelled while h2 is out of reach. It ends; the obligation to kill and "
              "the dirty leases stay\n"
              "with h2 until it returns.",
              {});
  story.start(demo_spec(4));
  story.cut(2);
  story.pass(Duration::seconds(4));
  story.set_desired(Desired::cancel, "wrong data");
  story.pass(Duration::seconds(10));
  CHECK(story.job().phase == Phase::cancelled);
  story.heal(2);
  story.pass(Duration::seconds(2));
  story.check();
}

TEST_CASE("transcript: pause and resume", "[golden]") {
  Story story("pause_resume",
              "An operator pauses the job: its ranks stop, its devices are given back. Resumed, it "
              "goes on from its last\n"
              "complete checkpoint.",
              {});
  story.start(demo_spec(2));
  story.has_checkpoint(60);
  story.progress(70);
  story.set_desired(Desired::pause, "a more urgent job");
  story.pass(Duration::seconds(5));
  CHECK(story.job().parked);
  story.set_desired(Desired::run, "it is done");
  story.pass(Duration::seconds(2));
  CHECK(story.job().phase == Phase::running);
  CHECK(story.job().resume_step == 60);
  CHECK(story.job().incident_count == 0);
  story.check();
}

TEST_CASE("transcript: budgets by class", "[golden]") {
  Story story("budget_by_class",
              "Three program failures are allowed, infrastructure is not limited (scenario 19): "
              "host lost twice, rank exits\n"
              "1 twice, controller restarted, once more, host lost, and the fourth program failure "
              "ends the job.",
              {.hosts = 2, .devices_per_host = 1});
  JobSpec spec = demo_spec(1);
  spec.healthy_for = Duration::seconds(100000);
  story.start(spec);
  auto host_lost = [&](int64_t step) {
    uint32_t host = static_cast<uint32_t>(story.job().slots[0].host.value[1] - '0');
    story.progress(step);
    story.cut(host);
    story.pass(Duration::seconds(20));
    story.heal(host);
    story.pass(Duration::seconds(5));
  };
  host_lost(100);
  host_lost(200);
  incident(story, 300, 0, 1, 0, "ValueError: a");
  incident(story, 400, 0, 1, 0, "ValueError: b");
  story.crash_controller(second);
  story.pass(Duration::seconds(10));
  incident(story, 500, 0, 1, 0, "ValueError: c");
  CHECK(story.job().phase == Phase::running);
  host_lost(600);
  CHECK(story.job().phase == Phase::running);
  incident(story, 700, 0, 1, 0, "ValueError: d");
  CHECK(story.job().phase == Phase::failed);
  CHECK(story.job().incident_count == 7);
  story.check();
}

TEST_CASE("transcript: one cause counts once", "[golden]") {
  Story story("one_cause_of_many",
              "One of 16 ranks is killed and 15 fail for want of it: one incident, one unit of its "
              "class's budget.",
              {.hosts = 2, .devices_per_host = 8});
  story.start(demo_spec(16));
  story.progress(10);
  std::vector<uint32_t> others;
  for (uint32_t r = 0; r < 16; ++r) {
    if (r != 5) others.push_back(r);
  }
  story.exits({5}, 0, 9);
  story.exits(others, 1, 0, "RuntimeError: [gloo] Connection closed by peer [10.0.0.1]:41234");
  story.pass(Duration::seconds(5));
  CHECK(story.job().phase == Phase::running);
  CHECK(story.job().incident_count == 1);
  REQUIRE(!story.job().incidents.empty());
  CHECK(story.job().incidents.back().rank == RankIndex{5});
  story.check();
}

TEST_CASE("transcript: no progress", "[golden]") {
  Story story("no_progress",
              "Every attempt loads step 200 and is killed at step 203. Waits grow; the fifth time "
              "the job is held and says\n"
              "what a person must do (scenario 39). The controller is restarted during a wait: it "
              "goes on waiting.",
              {});
  JobSpec spec = demo_spec(2);
  spec.intensity[static_cast<size_t>(FailureClass::killed)].max_restarts = -1;
  story.start(spec);
  story.has_checkpoint(200);
  for (int i = 0; i < 4; ++i) incident(story, 203, 1, 0, 9, "");
  story.progress(203);
  story.exits({1}, 0, 9);
  story.pass(second);
  story.crash_controller(second);
  story.pass(Duration::seconds(30));
  incident(story, 203, 1, 0, 9, "");
  CHECK(story.job().desired == Desired::hold);
  CHECK(story.job().parked);
  CHECK(story.job().phase_reason.find("no progress at step 203") != std::string::npos);
  story.set_desired(Desired::run, "more memory now");
  story.pass(Duration::seconds(2));
  CHECK(story.job().phase == Phase::running);
  story.check();
}

TEST_CASE("transcript: failures with progress in between", "[golden]") {
  Story story("progress_refills",
              "Killed at steps 203, 260 and 330: each time further, so there are no waits "
              "(scenario 39). Running healthily\n"
              "for healthy_for with progress, past incidents are forgotten.",
              {});
  JobSpec spec = demo_spec(2);
  spec.healthy_for = Duration::seconds(60);
  story.start(spec);
  for (int64_t step : {203, 260, 330}) incident(story, step, 1, 0, 9, "");
  CHECK(story.job().without_progress == 0);
  story.progress(340);
  story.pass(Duration::seconds(80));
  CHECK_FALSE(story.job().incidents.back().counts);
  story.check();
}

TEST_CASE("transcript: death during start-up", "[golden]") {
  Story story("death_in_start_up",
              "Rank 6 of 8 is killed by the kernel one second after its start, while the others "
              "load for a minute. The job\n"
              "sees it at once, names it, and stops the others (scenario 38).",
              {.hosts = 2, .devices_per_host = 4});
  story.start(demo_spec(8));
  story.exits({6}, 0, 9);
  story.pass(Duration::seconds(2));
  REQUIRE(!story.job().incidents.empty());
  CHECK(story.job().incidents.back().rank == RankIndex{6});
  CHECK(story.job().phase == Phase::running);
  story.check();
}

TEST_CASE("transcript: the controller is killed in the middle of a recovery", "[golden]") {
  Story story(
      "controller_restart",
      "Rank 1 is killed. The controller is killed while the survivor is being stopped, and once "
      "more when the next\n"
      "generation is decided and nothing of it is started. It takes up where the journal ends.",
      {});
  story.start(demo_spec(2));
  story.has_checkpoint(30);
  story.progress(33);
  story.crash_controller_after("RankStopping", second);
  story.exits({1}, 0, 9);
  story.crash_controller_after("GenerationStarted", second);
  story.pass(Duration::seconds(10));
  CHECK(story.job().phase == Phase::running);
  CHECK(story.job().incident_count == 1);
  CHECK(story.job().slots[0].incarnation == Incarnation{2});
  story.check();
}
