// What must hold in a run: the checks of effects, processes, incidents and endings.
#include <algorithm>

#include "tests/driver/text.h"
#include "tests/sim/world.h"

namespace regrow::sim {

const Process* World::process(const IncarnationKey& key) const {
  for (const auto& a : agents_) {
    auto it = a->processes().find(key);
    if (it != a->processes().end()) return &it->second;
  }
  return nullptr;
}

bool World::lives(const IncarnationKey& key) const {
  const Process* p = process(key);
  return p != nullptr && p->alive;
}

void World::check_effect(const Effect& effect) {
  auto require = [&](bool ok, const std::string& rule) {
    if (!ok) throw Violation(rule + ": " + effect_name(effect) + " " + variant_fields(effect));
  };
  auto newer = [&](const IncarnationKey& key) {
    auto it = durable_.newest.find({key.job, key.rank});
    return it != durable_.newest.end() && it->second > key.incarnation;
  };
  std::visit(
      Overloaded{[&](const fx::Spawn& e) {
                   require(durable_.spawning.count(e.command.key) != 0,
                           "J-3 spawn before its event is durable");
                 },
                 [&](const fx::Stop& e) {
                   const IncarnationKey& k = e.command.key;
                   bool over =
                       newer(k) || durable_.lost.count(k) != 0 || durable_.exited.count(k) != 0;
                   require(durable_.stopping.count(k) != 0 || over,
                           "J-3, F-2 stop without a durable reason");
                   if (durable_.stopping.count(k) == 0) mark("stale incarnation stopped");
                 },
                 [&](const fx::AnswerInventory& e) {
                   // What does not run may be burnt: after a reboot nothing of the host's
                   // runs.
                   for (const IncarnationKey& k : e.kill)
                     require(durable_.doomed.count(k) != 0 || !lives(k),
                             "J-3, F-2 kill without a durable reason");
                   if (!e.kill.empty()) mark("doomed incarnation killed");
                 },
                 [&](const fx::Acknowledge& e) {
                   bool known = durable_.exited.count(e.key) != 0 || newer(e.key) ||
                                durable_.lost.count(e.key) != 0;
                   require(known, "J-3 an end is acknowledged before it is durable");
                 },
                 [&](const fx::Prepare& e) {
                   require(durable_.prepare_attempt[e.command.job] >= e.command.attempt,
                           "J-3 prepare before its event is durable");
                 },
                 [&](const fx::Regroup& e) {
                   require(durable_.planned[e.command.keys.at(0).job] >= e.command.generation,
                           "J-3 survivors are called before the plan is durable");
                 },
                 [&](const fx::Go& e) { check_go(e.command, require); }, [](const auto&) {}},
      effect);
}

// C-1: all have joined, and the state that they go on from is there.
void World::check_go(const GoCommand& go,
                     const std::function<void(bool, const std::string&)>& require) {
  JobId job = go.keys.at(0).job;
  require(durable_.formed[job] >= go.generation, "J-3 go before its event is durable");
  for (uint32_t rank = 0; rank < go.world_size; ++rank)
    require(training_.said(job, go.generation, {rank}) != nullptr,
            "R-1 a generation goes before all have joined");
  if (go.source < 0) return mark("survivors rewind");
  const JoinReport* source = training_.said(job, go.generation, {static_cast<uint32_t>(go.source)});
  require(source != nullptr && source->intact && source->step == go.source_step,
          "C-1 the source of a heal is an intact rank at that step");
  for (uint32_t rank = 0; rank < go.world_size; ++rank) {
    const JoinReport* other = training_.said(job, go.generation, {rank});
    require(!other->intact || other->step <= go.source_step,
            "C-1 no step that survives is lost by a heal");
  }
  mark("survivors heal");
}

void World::check_start(SimAgent& agent, const Process& p) {
  const IncarnationKey& key = p.key();
  std::string who = EntityId::rank(key.job, key.rank).path + "#" +
                    std::to_string(key.incarnation.value) + " on " + agent.name().value;
  if (!started_.insert(key).second) throw Violation("R-2 started twice: " + who);
  where_[key] = agent.name();
  // An order that was stuck in a link may still start what was given up long ago: it is no member
  // any more.
  auto newest = durable_.newest.find({key.job, key.rank});
  bool member = durable_.lost.count(key) == 0 &&
                (newest == durable_.newest.end() || newest->second <= key.incarnation);
  if (!member) mark("given up before it started");
  for (auto& a : agents_) {
    for (const auto& [k, other] : a->processes()) {
      if (!other.alive || k == key) continue;
      bool over = durable_.lost.count(k) != 0 || durable_.left_something.count(k) != 0;
      if (member && k.job == key.job && k.rank == key.rank && !over)
        throw Violation("R-1 " + who + " starts while incarnation " +
                        std::to_string(k.incarnation.value) + " lives on " + a->name().value);
      if (a.get() != &agent) continue;
      for (const DeviceName& d : other.command.devices) {
        if (std::find(p.command.devices.begin(), p.command.devices.end(), d) !=
            p.command.devices.end())
          throw Violation("D-2 " + who + " gets " + d.value + " while another process has it");
      }
    }
  }
  if (p.command.resume_step < 0) return;
  const EntityHost* host = controller_.find(EntityId::job(key.job));
  if (host == nullptr) return;
  const auto& state = std::get<JobState>(host->state());
  if (state.generation != p.command.generation) return;
  std::vector<HostName> hosts;
  for (const Slot& slot : state.slots) hosts.push_back(slot.host);
  if (!training_.complete(key.job, p.command.resume_step, hosts))
    throw Violation("C-1 " + who + " resumes from step " + std::to_string(p.command.resume_step) +
                    ", which is torn");
}

void World::check_stop(SimAgent& agent, const IncarnationKey& key, const std::string& how) {
  auto newest = durable_.newest.find({key.job, key.rank});
  bool stale = newest != durable_.newest.end() && newest->second > key.incarnation;
  if (!stale && durable_.stopping.count(key) == 0 && durable_.lost.count(key) == 0 &&
      durable_.doomed.count(key) == 0)
    throw Violation("F-2 " + how + " of " + EntityId::rank(key.job, key.rank).path + " on " +
                    agent.name().value + " has no reason in the journal");
}

void World::check_epoch(SimAgent& agent, Epoch epoch, Epoch seen) {
  if (epoch.number < seen.number)
    throw Violation("F-1 " + agent.name().value + " got a command of an older epoch");
}

void World::process_ended_itself(const Process& p) { ended_itself_.insert(p.key()); }

bool World::host_disturbed(const HostName& host, Time since) {
  SimAgent* a = agent_of(host);
  return a == nullptr || !a->healthy() || a->disturbed_at() >= since;
}

// No incident without something that really happened.
void World::check_incident(const EventRecord& r, const ev::IncidentOpened& e) {
  mark("incident " + std::string(to_string(e.failure_class)));
  IncarnationKey key{*r.entity.job_id(), e.rank, e.incarnation};
  if (plan_.profile == "control")
    throw Violation("F-2 only the control plane was disturbed: " + record_text(r));
  const Duration minute = Duration::seconds(60);
  Time lately{loop_.now().us - 3 * minute.us};
  bool ok = true;
  const JobPlan& job = training_.plan(key.job);
  switch (e.failure_class) {
    case FailureClass::program:
    case FailureClass::killed:
    case FailureClass::out_of_memory:
    case FailureClass::early_exit:
      ok = ended_itself_.count(key) != 0;
      break;
    case FailureClass::start_up:
      ok = job.missing_program || job.bind_thefts > 0;
      break;
    case FailureClass::device:
      ok = false;
      for (auto& a : agents_) {
        for (uint32_t d = 0; d < plan_.devices_per_host; ++d)
          ok = ok || a->device_faulty_lately({"sim" + std::to_string(d)}, lately);
      }
      break;
    case FailureClass::hang: {
      Time progress_until{loop_.now().us - job.spec.timeouts.progress.us + Duration::seconds(5).us};
      ok = training_.last_step(key.job) < progress_until;
      if (e.signature == "did not rejoin") {
        const Process* p = process(key);
        ok = job.never_joins > 0 || ended_itself_.count(key) != 0 || (p != nullptr && p->stopped) ||
             (p != nullptr && host_disturbed(p->host, lately));
      }
      break;
    }
    default: {
      ok = false;
      for (auto& a : agents_) ok = ok || host_disturbed(a->name(), lately);
    }
  }
  if (!ok) throw Violation("an incident without a cause in the world: " + record_text(r));
}

void World::check_resume(const EventRecord& r, const ev::GenerationStarted& e) {
  JobId job = *r.entity.job_id();
  if (e.resume_step >= 0) mark("resumed from a checkpoint");
  if (!e.rejected.empty()) mark("torn checkpoint rejected");
  if (training_.plan(job).spec.checkpoint.storage == StorageKind::shared &&
      e.resume_step < complete_at_plan_[job])
    throw Violation("C-1 a newer complete checkpoint was there, of step " +
                    std::to_string(complete_at_plan_[job]) + ": " + record_text(r));
}

// B-1: what the job counts is what happened, whoever restarted in between.
void World::check_budget() {
  auto used = history_.budget();
  for (const EntityId& id : controller_.entities()) {
    if (id.kind() != EntityKind::job) continue;
    const auto& s = std::get<JobState>(controller_.find(id)->state());
    for (size_t c = 0; c < FailureClass_names.size(); ++c) {
      auto kind = static_cast<FailureClass>(c);
      uint32_t counted = 0;
      for (const Incident& i : s.incidents)
        counted += i.counts && i.charged && i.failure_class == kind;
      if (s.incident_count <= 64 && counted != used[{s.job, kind}])
        throw Violation("B-1 " + id.path + " counts " + std::to_string(counted) + " of class " +
                        std::string(to_string(kind)) + ", there were " +
                        std::to_string(used[{s.job, kind}]));
    }
  }
}

const JobState* World::job_state(uint32_t index) const {
  if (clients_[index].job.value == 0) return nullptr;
  const EntityHost* host = controller_.find(EntityId::job(clients_[index].job));
  return host == nullptr ? nullptr : &std::get<JobState>(host->state());
}

bool World::all_ended() const {
  for (uint32_t i = 0; i < clients_.size(); ++i) {
    const JobState* s = job_state(i);
    if (s == nullptr) return false;
    bool ended =
        s->phase == Phase::completed || s->phase == Phase::failed || s->phase == Phase::cancelled;
    bool held = s->parked && s->desired == Desired::hold && clients_[i].resumes >= 8;
    if (!ended && !held) return false;
  }
  return true;
}

bool World::settled() const {
  if (!controller_.open() || !controller_.all_durable() || !commands_.empty()) return false;
  for (const auto& a : agents_) {
    if (a->session().value == 0 || !a->processes().empty()) return false;
  }
  return true;
}

void World::check_job_end(uint32_t index) {
  const JobState& s = *job_state(index);
  std::string name = "job/" + std::to_string(s.job.value);
  const JobPlan& plan = plan_.jobs[index];
  if (s.phase_reason.empty()) throw Violation("O-2 " + name + " ended without a reason");
  mark("job " + std::string(s.parked ? "held" : to_string(s.phase)));
  bool may_fail = plan.bug_at_step >= 0 || plan.missing_program;
  // Two accidents of the same kind at the same step look like a bug, and are meant to.
  may_fail = may_fail || s.phase_reason.find("failed twice in the same way") != std::string::npos;
  if (s.phase_reason.find("restart budget spent") != std::string::npos) {
    mark("budget spent");
    may_fail = true;
  }
  bool may_hold = plan.bug_at_step >= 0;
  if ((s.phase == Phase::failed && !may_fail) || (s.parked && !may_hold))
    throw Violation(name + " should have completed: " + std::string(to_string(s.phase)) + ", " +
                    s.phase_reason);
  if (s.holds_lease) throw Violation(name + " has ended and holds devices");
  for (const EntityId& id : controller_.entities()) {
    if (id.job_id() != s.job) continue;
    auto actions =
        std::visit(Overloaded{[](const std::monostate&) { return std::vector<Action>(); },
                              [](const auto& state) { return pending(state); }},
                   controller_.find(id)->state());
    for (const Action& a : actions) {
      auto* effect = std::get_if<Effect>(&a);
      if (effect == nullptr || std::holds_alternative<fx::Acknowledge>(*effect)) continue;
      if (s.parked && std::holds_alternative<fx::KeepSpec>(*effect)) continue;
      throw Violation(id.path + " of an ended job still wants " + effect_name(*effect));
    }
  }
}

void World::check_end() {
  check_fold(controller_);
  check_budget();
  for (uint32_t i = 0; i < clients_.size(); ++i) check_job_end(i);
  for (auto& a : agents_) {
    for (const auto& [key, p] : a->processes())
      throw Violation(a->name().value + " still has " + EntityId::rank(key.job, key.rank).path +
                      "#" + std::to_string(key.incarnation.value) + " (" +
                      std::string(to_string(p.report.state)) + ")");
    const EntityHost* host = controller_.find(EntityId::host(a->name()));
    for (const AttachedRank& r : std::get<HostState>(host->state()).attached)
      throw Violation(host->id().path + " still has attached " +
                      EntityId::rank(r.key.job, r.key.rank).path + "#" +
                      std::to_string(r.key.incarnation.value));
  }
  const auto& cluster = std::get<ClusterState>(controller_.find(EntityId::cluster())->state());
  for (const Lease& l : cluster.leases) throw Violation("a lease remains: " + fields_text(l));
  if (!cluster.waiting.empty())
    throw Violation("a request for devices remains: " + fields_text(cluster.waiting[0]));
  for (const JobEntry& job : cluster.jobs) {
    if (!job.ended && !job.handed_over)
      throw Violation("job/" + std::to_string(job.job.value) + " was not taken over");
  }
}

}  // namespace regrow::sim
