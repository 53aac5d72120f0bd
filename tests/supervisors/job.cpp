// Single decisions of a job that no transcript shows; the stories are in tests/golden.
#include <set>

#include "tests/catch.h"
#include "tests/supervisors/support.h"

using namespace regrow;
using namespace regrow::test;

namespace {

const EntityId job_id = EntityId::job({1});
const EntityId cluster = EntityId::cluster();

struct Job {
  EntityHost host{job_id};
  std::vector<EventRecord> records;
  Time now{Duration::seconds(1).us};

  Outbox give(Input in) {
    Outbox out = host.handle(input(job_id, std::move(in), {1}), {now, Time{}});
    records.insert(records.end(), out.records.begin(), out.records.end());
    Outbox later = host.durable(host.n());
    for (auto& e : later.effects) out.effects.push_back(e);
    for (auto& r : later.replies) out.replies.push_back(r);
    return out;
  }
  const JobState& state() const { return std::get<JobState>(host.state()); }
  void pass(int64_t seconds) { now = now + Duration::seconds(seconds); }

  void place() {
    in::Granted granted{state().grant, {}};
    for (RankIndex r : state().wanted)
      granted.placements.push_back({r, {"h1"}, {{"gpu" + std::to_string(r.value)}}});
    give(granted);
  }
  void prepare(bool store = false) {
    PrepareReport r;
    r.store = store;
    r.job = {1};
    r.generation = state().generation;
    r.attempt = state().prepare_attempt;
    r.address = "10.0.0.1";
    r.port = 20000 + r.attempt;
    give(in::Prepared{{"h1"}, r});
  }
  void status(uint32_t rank, Process process, const RankReport& r = {}) {
    give(in::RankStatus{
        {rank}, state().slots[rank].incarnation, state().generation, process, r, ""});
  }
  void create(uint32_t ranks) {
    JobSpec spec = spec_of(ranks);
    if (change) change(spec);
    give(in::CreateJob{spec, "uid:1000"});
    place();
  }
  void run(uint32_t ranks) {
    create(ranks);
    prepare();
    for (uint32_t r = 0; r < ranks; ++r) status(r, Process::running);
    REQUIRE(state().phase == Phase::running);
  }
  void exits(uint32_t rank, int32_t code, int32_t signal, bool by_us = false) {
    RankReport r =
        report(ProcessState::exited, rank, state().slots[rank].incarnation.value, code, signal);
    r.ended_by_us = by_us;
    status(rank, Process::exited, r);
  }
  std::function<void(JobSpec&)> change;
};

}  // namespace

TEST_CASE("a job goes on wherever its journal ends", "[job]") {
  // Replays every prefix of a job that was killed, resumed and cancelled, and resumes it: a
  // decision is never half made for good.
  Job story;
  story.run(2);
  story.exits(1, 0, 9);
  story.exits(0, 0, 15, true);
  story.prepare();
  story.status(0, Process::running);
  story.status(1, Process::running);
  story.give(in::SetDesired{Desired::cancel, "enough"});
  for (size_t cut = 1; cut <= story.records.size(); ++cut) {
    Job job;
    for (size_t i = 0; i < cut; ++i) job.host.replay(story.records[i]);
    INFO("cut after " << event_name(story.records[cut - 1].event));
    job.give(in::Resumed{});
    CHECK(job.host.quarantined().empty());
    const JobState& s = job.state();
    // Either something is under way that will come back, or a rank's status does, or it runs.
    bool waits = s.stage != Stage::none || s.phase == Phase::running;
    CHECK(waits);
    bool cancelled = s.desired == Desired::cancel;
    CHECK((!cancelled || s.end_phase == Phase::cancelled));
    // Orders that were lost: the group says that it has nothing, the rank that it never was.
    for (int round = 0; round < 4; ++round) {
      for (uint32_t r = 0; r < 2; ++r) {
        if (s.slots[r].process == Process::spawning || s.slots[r].process == Process::running)
          job.exits(r, 0, 9, true);
      }
      if (s.stage == Stage::placing) job.place();
      if (s.stage == Stage::preparing) job.prepare();
    }
    job.give(in::SetDesired{Desired::cancel, "enough"});
    for (uint32_t r = 0; r < 2; ++r) {
      if (s.slots[r].process == Process::spawning || s.slots[r].process == Process::running)
        job.exits(r, 0, 15, true);
    }
    CHECK(s.phase == Phase::cancelled);
  }
}

TEST_CASE("a crash in the middle of a verdict does not let the job off", "[job]") {  // B-1
  Job story;
  story.run(1);
  for (int attempt = 0; attempt < 2; ++attempt) {
    story.exits(0, 1, 0);
    if (attempt == 1) break;
    story.prepare();
    story.status(0, Process::running);
  }
  REQUIRE(story.state().phase == Phase::failed);
  size_t last_loss = 0;
  for (size_t i = 0; i < story.records.size(); ++i) {
    if (std::holds_alternative<ev::IncidentOpened>(story.records[i].event)) last_loss = i;
  }
  for (size_t cut = last_loss + 1; cut <= story.records.size(); ++cut) {
    Job job;
    for (size_t i = 0; i < cut; ++i) job.host.replay(story.records[i]);
    INFO("cut after " << event_name(story.records[cut - 1].event));
    job.give(in::Resumed{});
    CHECK(job.state().phase == Phase::failed);
    CHECK(job.state().incident_count == 2);
  }
}

TEST_CASE("reclassified port failures are not charged either", "[job]") {
  Job job;
  job.run(2);
  RankReport echo = report(ProcessState::exited, 1, 1, 1);
  echo.error_line = "RuntimeError: Connection refused";
  job.status(1, Process::exited, echo);
  RankReport bind = report(ProcessState::exited, 0, 1, 1);
  bind.bind_failed = true;
  job.status(0, Process::exited, bind);
  REQUIRE(job.state().incidents.size() == 1);
  CHECK(job.state().incidents[0].rank == RankIndex{0});
  CHECK_FALSE(job.state().incidents[0].charged);
  CHECK(job.state().stage == Stage::preparing);
  CHECK(job.state().avoid_ports == std::vector<uint32_t>{20001});
}

TEST_CASE("being ended with its host says nothing about a job", "[job]") {
  Job job;
  job.change = [](JobSpec& s) {
    s.max_without_progress = 2;
    for (Intensity& i : s.intensity) i.max_restarts = -1;  // as a recipe has it for `preempted`
  };
  job.run(1);
  for (int i = 0; i < 6; ++i) {
    job.exits(0, 0, 15, true);  // nobody asked this job for it
    REQUIRE(job.state().stage == Stage::preparing);
    CHECK(job.state().incidents.back().failure_class == FailureClass::preempted);
    job.prepare();
    job.status(0, Process::running);
  }
  CHECK(job.state().desired == Desired::run);
  CHECK(job.state().without_progress == 0);
}

// Keys of an earlier generation are still in the store: one more with the same count would read
// them.
TEST_CASE("generations that meet in one store never have the same restart count", "[job]") {
  Job job;
  job.change = [](JobSpec& s) { s.rendezvous = Rendezvous::store; };
  std::set<uint32_t> counts;
  auto starts = [&] {
    Outbox out = job.give(in::Resumed{});
    for (const Envelope& m : out.messages) {
      auto* start = std::get_if<in::GroupStart>(&m.input);
      if (start == nullptr) continue;
      CHECK(start->commands[0].store);
      CHECK(counts.insert(start->commands[0].restart_count).second);
    }
  };
  job.create(1);
  for (const auto& effect : effects_of<fx::Prepare>(job.give(in::Resumed{})))
    CHECK(effect.command.want_store);
  job.prepare(true);
  starts();
  job.status(0, Process::running);
  job.exits(0, 0, 9);  // an incident
  job.prepare(true);
  starts();
  job.status(0, Process::running);
  job.give(in::SetDesired{Desired::pause, "lunch"});  // none, but a new generation
  job.exits(0, 0, 15, true);
  job.give(in::DevicesFreed{job.state().grant});
  job.give(in::SetDesired{Desired::run, "back"});
  job.place();
  job.prepare(true);
  starts();
  CHECK(counts.size() == 3);
}

TEST_CASE("without a store rank 0 hosts the rendezvous, and the reason says why", "[job]") {
  Job job;
  job.change = [](JobSpec& s) { s.rendezvous = Rendezvous::store; };
  job.create(1);
  PrepareReport r;
  r.job = {1};
  r.generation = job.state().generation;
  r.attempt = job.state().prepare_attempt;
  r.port = 20001;
  r.no_store = "No module named 'torch'";
  job.give(in::Prepared{{"h1"}, r});
  CHECK_FALSE(job.state().store);
  CHECK(job.state().master_port == 20001);
  CHECK(job.records.back().reason.find("no store: No module named 'torch'") != std::string::npos);
}

TEST_CASE("a host that gives no answer is left for another, not waited for until the job fails",
          "[job]") {
  Job job;
  job.give(in::CreateJob{spec_of(1), "uid:1000"});
  job.place();
  REQUIRE(job.state().stage == Stage::preparing);
  job.pass(20);
  CHECK(effects_of<fx::Prepare>(job.give(in::Tick{})).size() == 1);  // asked again
  job.pass(80);
  Outbox out = job.give(in::Tick{});
  CHECK(job.state().stage == Stage::placing);
  CHECK(job.state().avoid_hosts == std::vector<HostName>{{"h1"}});
  CHECK(job.state().incidents.back().failure_class == FailureClass::infrastructure);
  job.give(in::Granted{job.state().grant, {{{0}, {"h2"}, {{"gpu0"}}}}});
  CHECK(job.state().prepare_hosts == std::vector<HostName>{{"h2"}});
}

TEST_CASE("a process that does not die is given up, its device stays dirty", "[job]") {
  Job job;
  job.change = [](JobSpec& s) { s.timeouts.stop_grace = Duration::seconds(10); };
  job.run(2);
  job.exits(0, 0, 9);
  REQUIRE(job.state().stage == Stage::stopping);
  REQUIRE(job.host.wake_at({job.now, {}}));
  job.pass(60);
  job.give(in::Tick{});
  CHECK(job.state().stage == Stage::stopping);
  job.pass(11);
  job.give(in::Tick{});
  CHECK(job.state().stage == Stage::placing);
  CHECK(job.state().wanted == std::vector<RankIndex>{{1}});
  CHECK(job.state().wanted_dirty == std::vector<RankIndex>{{1}});
}

TEST_CASE("incidents that spend a budget are not forgotten for those that do not",
          "[job]") {  // B-1
  JobState s;
  s.job = {1};
  s.spec = spec_of(1);
  s.spec.intensity[static_cast<size_t>(FailureClass::infrastructure)].max_restarts = -1;
  s.slots.resize(1);
  auto open = [&](uint32_t n, FailureClass c) {
    EventRecord r;
    ev::IncidentOpened e;
    e.incident = n;
    e.failure_class = c;
    r.event = e;
    apply(s, r);
  };
  open(1, FailureClass::program);
  for (uint32_t n = 2; n <= 200; ++n) open(n, FailureClass::infrastructure);
  CHECK(s.incidents.size() == 64);
  CHECK(s.incidents[0].failure_class == FailureClass::program);
  CHECK(s.incidents.back().number == 200);
}

TEST_CASE("old news of a host's link do not lose a rank that starts there", "[job]") {
  Job job;
  job.give(in::CreateJob{spec_of(1), "uid:1000"});
  job.place();
  job.give(in::HostLinkNews{{"h1"}, HostLink::unreachable, job.now});
  job.pass(30);
  job.prepare();  // it answers: it is in reach
  CHECK(job.state().hosts.empty());
  job.give(in::Tick{});
  CHECK(job.state().slots[0].process == Process::spawning);
  CHECK(job.state().incidents.empty());
}

TEST_CASE("a silent agent is not a hung rank while the others make steps", "[job]") {  // F-2
  Job job;
  job.change = [](JobSpec& s) { s.timeouts.progress = Duration::seconds(10); };
  job.run(2);
  auto show = [&](uint32_t rank, int64_t step) {
    ProgressReport p;
    p.key = key(rank, 1);
    p.step = step;
    job.give(in::Progress{p});
  };
  show(0, 1);
  show(1, 1);
  for (int64_t step = 2; step < 40; ++step) {
    job.pass(1);
    show(0, step);
    job.give(in::Tick{});
  }
  CHECK(job.state().incidents.empty());
  show(1, 1);  // an old report comes first when the link heals
  job.give(in::Tick{});
  CHECK(job.state().incidents.empty());
  show(1, 40);
  for (int i = 0; i < 11; ++i) {
    job.pass(1);
    show(0, 40);
    show(1, 40);
    job.give(in::Tick{});
  }
  REQUIRE(job.state().incidents.size() == 1);
  CHECK(job.state().incidents[0].failure_class == FailureClass::hang);
}

TEST_CASE("a rank that left something behind starts elsewhere, and its device is dirty",
          "[job]") {  // D-2
  Job job;
  job.run(2);
  RankReport left = report(ProcessState::exited, 1, 1, 0, 9);
  left.group_gone_us = 0;
  job.status(1, Process::exited, left);
  job.exits(0, 0, 15, true);
  const JobState& s = job.state();
  CHECK(s.stage == Stage::placing);
  CHECK(s.wanted == std::vector<RankIndex>{{1}});
  CHECK(s.wanted_dirty == std::vector<RankIndex>{{1}});
  CHECK(s.incidents.at(0).failure_class == FailureClass::killed);  // judged by its own end
}

TEST_CASE("a job whose rank succeeded and left something behind completes; the device is dirty",
          "[job]") {  // D-2
  Job job;
  job.run(2);
  job.exits(0, 0, 0);
  RankReport left = report(ProcessState::exited, 1, 1);
  left.group_gone_us = 0;
  Outbox out =
      job.give(in::RankStatus{{1}, {1}, job.state().generation, Process::exited, left, ""});
  CHECK(job.state().phase == Phase::completed);
  auto released = messages_of<in::ReleaseDevices>(out);
  REQUIRE(released.size() == 1);
  CHECK(released[0].dirty == std::vector<RankIndex>{{1}});
}

TEST_CASE("a job tells what it waits for, or that no host could ever take it", "[job]") {
  Job job;
  job.give(in::CreateJob{spec_of(1), "uid:1000"});
  job.give(in::GrantDelayed{1, "needs 1 sim device for 1 rank, 0 free"});
  CHECK(job.state().phase_reason == "waits for devices: needs 1 sim device for 1 rank, 0 free");
  std::string never = "no host has 16 sim devices, as each rank needs; the largest, h1, has 2";
  CHECK_FALSE(job.give(in::GrantDelayed{1, never}).records.empty());
  CHECK(job.state().phase_reason == never);
  CHECK(job.give(in::GrantDelayed{1, never}).records.empty());
}

TEST_CASE("nobody printed a loss: none is journaled", "[job]") {
  Job job;
  job.run(1);
  ProgressReport p;
  p.key = key(0, 1);
  p.step = 4;
  p.loss = NAN;
  job.give(in::Progress{p});
  job.pass(40);
  p.step = 5;
  job.give(in::Progress{p});
  REQUIRE(job.state().progress.step == 5);
  CHECK(std::isnan(job.state().progress.loss));
}

TEST_CASE("operators win over recovery, and are told what is not possible", "[job]") {  // O-1
  Job job;
  job.run(2);
  job.exits(1, 1, 0);
  CHECK(job.state().phase == Phase::recovering);
  Outbox out = job.give(in::SetDesired{Desired::pause, "later"});
  REQUIRE(out.replies.size() == 1);
  CHECK(out.replies[0].ok);
  job.exits(0, 0, 15, true);
  CHECK(job.state().parked);
  CHECK(job.state().incidents[0].judged);
  job.give(in::SetDesired{Desired::cancel, "never"});
  CHECK(job.state().phase == Phase::cancelled);
  out = job.give(in::SetDesired{Desired::run, "please"});
  REQUIRE(out.replies.size() == 1);
  CHECK_FALSE(out.replies[0].ok);
  CHECK(job.give(in::SetDesired{Desired::cancel, "again"}).replies[0].ok);
}
