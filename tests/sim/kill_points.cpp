// The controller is killed after each event of a whole story in turn: a job of four ranks loses
// one, recovers and completes. It must end the same way, whatever the last event that survived.
#include <iostream>

#include "tests/catch.h"
#include "tests/driver/text.h"
#include "tests/sim/world.h"

using namespace regrow;
using namespace regrow::sim;

namespace {

Plan story(uint64_t seed) {
  Plan plan;
  plan.seed = seed;
  plan.profile = "story";
  plan.hosts = 2;
  plan.devices_per_host = 2;
  plan.queue_commands = seed % 2 == 0;
  plan.slowest_message = Duration::ms(3);
  plan.slowest_write = Duration::ms(6);
  plan.slowest_link = Duration::ms(20);
  JobPlan job;
  job.spec = basic_spec("story", 4);
  job.spec.timeouts.stop_grace = Duration::seconds(3);
  job.key = "story";
  job.submit_at = Time{2000000};
  job.steps = 30;
  job.peer_error = seed % 3 == 0 ? 0 : seed % 3 == 1 ? 1 : 0.5;
  plan.jobs.push_back(job);
  plan.calm_from = Time{Duration::seconds(60).us};
  return plan;
}

enum class Cut { nowhere, as_decided, when_durable };

struct Ending {
  std::string violation;
  uint64_t events = 0;
  uint64_t starts = 0;
  Phase phase = Phase::queued;
  uint32_t incidents = 0;
  uint32_t recoveries = 0;
  FailureClass failure_class = FailureClass::program;
  int64_t resume_step = -1;
  bool crashed = false;
};

// Kills rank 2 once, when it has done 15 steps.
void kill_a_rank_later(World& world, bool& done) {
  world.loop().after(Duration::ms(40), [&world, &done] {
    if (done) return;
    for (uint32_t i = 0; i < 2; ++i) {
      sim::Process* p = world.agent(i).live_process({1}, {2});
      if (p == nullptr || p->step < 15) continue;
      done = true;
      world.agent(i).end(*p, 0, 9, "");
      return;
    }
    kill_a_rank_later(world, done);
  });
}

Ending tell(uint64_t seed, Cut cut, uint64_t at) {
  Ending ending;
  World world(story(seed), {});
  bool killed = false;
  auto crash = [&](const EventRecord& r) {
    if (r.seq != at || ending.crashed) return;
    ending.crashed = true;
    world.loop().after({}, [&world, at] { world.crash_controller(Duration::ms(700), at); });
  };
  if (cut == Cut::as_decided) world.on_appended = crash;
  if (cut == Cut::when_durable) world.on_durable = crash;
  try {
    world.start();
    kill_a_rank_later(world, killed);
    for (int i = 1; i < 60 && !(world.all_ended() && world.settled()); ++i)
      world.run_until(Time{Duration::seconds(30).us * i});
    if (!world.all_ended() || !world.settled()) throw Violation("it does not end");
    world.check_end();
  } catch (const std::exception& e) {
    ending.violation = e.what();
  }
  ending.events = world.controller().journal().records.size();
  ending.starts = world.starts();
  if (const JobState* s = world.job_state(0)) {
    ending.phase = s->phase;
    ending.incidents = s->incident_count;
    ending.recoveries = s->recoveries;
    ending.resume_step = s->resume_step;
    if (!s->incidents.empty()) ending.failure_class = s->incidents.back().failure_class;
  }
  return ending;
}

void check_as_told(const Ending& e) {
  CHECK(e.violation == "");
  CHECK(e.phase == Phase::completed);
  CHECK(e.starts == 8);  // four ranks, twice: nothing that ran was started again
  CHECK(e.incidents == 1);
  CHECK(e.recoveries == 1);
  CHECK(e.failure_class == FailureClass::killed);
  CHECK(e.resume_step == 10);
}

}  // namespace

TEST_CASE("a controller killed after any event of a recovery changes nothing in the end",
          "[kill]") {
  for (uint64_t seed = 1; seed <= 6; ++seed) {
    Ending undisturbed = tell(seed, Cut::nowhere, 0);
    INFO("seed " << seed);
    check_as_told(undisturbed);
    REQUIRE(undisturbed.events > 90);
    for (uint64_t at = 1; at <= undisturbed.events; ++at) {
      for (Cut cut : {Cut::as_decided, Cut::when_durable}) {
        INFO("killed after event " << at
                                   << (cut == Cut::as_decided ? ", as decided" : ", when durable"));
        Ending ending = tell(seed, cut, at);
        check_as_told(ending);
        CHECK(ending.crashed);
      }
    }
  }
}
