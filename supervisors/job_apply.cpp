// The job's fold and what it still wants.
#include <algorithm>

#include "supervisors/job_internal.h"

namespace regrow {
namespace job {
namespace {

constexpr size_t kIncidentsKept = 64;

// Ranks in records are checked: a damaged record must quarantine its job, not end the process.
Slot& slot_at(JobState& s, RankIndex rank) {
  if (rank.value >= s.slots.size())
    throw BrokenInvariant("job/" + std::to_string(s.job.value) + " has no rank " +
                          std::to_string(rank.value));
  return s.slots[rank.value];
}

void apply_plan(JobState& s, const ev::RecoveryPlanned& e, const EventRecord& r) {
  for (RankIndex rank : e.stop) slot_at(s, rank);
  for (RankIndex rank : e.start) slot_at(s, rank);
  s.generation = e.generation;
  s.rung = e.rung;
  s.stop = e.stop;
  s.start = e.start;
  s.avoid_hosts = e.avoid_hosts;
  s.force_stop = e.force;
  s.stage = Stage::stopping;
  s.stage_since = r.at;
  s.parked = false;
  for (RankIndex rank : e.replace) slot_at(s, rank).replace = true;
  if (keeps_survivors(s)) {
    for (Slot& slot : s.slots) {
      if (is_active(slot) && !contains(e.start, slot.rank)) slot.process = Process::rejoining;
    }
  }
  Phase before = s.phase;
  if (e.start.empty()) {
    s.phase = Phase::stopping;
  } else {
    s.phase =
        e.incident != 0 && s.running_generation.value != 0 ? Phase::recovering : Phase::queued;
    if (e.incident != 0) ++s.recoveries;
  }
  s.phase_reason = r.reason;
  if (s.phase != before) s.phase_since = r.at;
}

// Which incident to forget: one that no budget counts, or the oldest (B-1).
std::vector<Incident>::iterator oldest_that_spends_nothing(JobState& s) {
  auto limited = [&](FailureClass c) {
    return std::any_of(s.spec.intensity.begin(), s.spec.intensity.end(), [&](const Intensity& i) {
      return i.failure_class == c && i.max_restarts >= 0;
    });
  };
  auto last = s.incidents.end() - 2;  // the two newest are compared with each other
  auto it = std::find_if(s.incidents.begin(), last, [&](const Incident& i) {
    return !i.counts || !i.charged || !limited(i.failure_class);
  });
  return it == last ? s.incidents.begin() : it;
}

void apply_incident(JobState& s, const ev::IncidentOpened& e, const EventRecord& r) {
  for (Incident& i : s.incidents) i.open = false;
  Incident i;
  i.number = e.incident;
  i.at = r.at;
  i.rank = e.rank;
  i.incarnation = e.incarnation;
  i.generation = s.generation;
  i.failure_class = e.failure_class;
  i.signature = e.signature;
  i.peer_error = e.peer_error;
  i.step = e.step;
  i.exit_code = e.exit_code;
  i.signal = e.signal;
  i.last_words = e.last_words;
  i.charged = e.charged;
  i.rank_step = e.rank_step;
  i.open = true;
  i.cause = r.reason;
  s.incidents.push_back(std::move(i));
  if (s.incidents.size() > kIncidentsKept) s.incidents.erase(oldest_that_spends_nothing(s));
  s.incident_count = e.incident;
}

void apply_reclassified(JobState& s, const ev::IncidentReclassified& e, const EventRecord& r) {
  if (s.incidents.empty()) return;
  Incident& i = s.incidents.back();
  i.rank = e.rank;
  i.incarnation = e.incarnation;
  i.failure_class = e.failure_class;
  i.signature = e.signature;
  i.peer_error = false;
  i.exit_code = e.exit_code;
  i.signal = e.signal;
  i.last_words = e.last_words;
  i.charged = e.charged;
  i.rank_step = e.rank_step;
  i.cause = r.reason;
}

void apply_judged(JobState& s, const ev::IncidentJudged& e) {
  if (s.incidents.empty()) return;
  Incident& i = s.incidents.back();
  i.step = e.step;
  i.judged = true;
  bool bind = is_bind_failure(i);
  s.bind_failures = bind ? s.bind_failures + 1 : 0;
  if (bind && s.master_port != 0) s.avoid_ports.push_back(s.master_port);
  if (bind) return;
  if (!is_nobodys_fault(i)) s.without_progress = e.progressed ? 0 : s.without_progress + 1;
  s.best_step = std::max(s.best_step, e.step);
}

void apply_started(JobState& s, const ev::GenerationStarted& e, const EventRecord& r) {
  s.stage = Stage::spawning;
  s.stage_since = r.at;
  s.resume_step = e.resume_step;
  s.resume_path = e.resume_path;
  s.rejected_checkpoints = e.rejected;
  s.master_address = e.master_address;
  s.master_port = e.master_port;
  s.store = e.store;
  if (e.resume_step > s.best_checkpoint) {
    s.best_checkpoint = e.resume_step;
    s.without_progress = 0;
  }
  for (RankIndex rank : s.start) {
    Slot& slot = slot_at(s, rank);
    slot.incarnation = next(slot.incarnation);
    slot.process = Process::spawning;
    slot.succeeded = false;
    slot.exit_code = slot.signal = 0;
    slot.message.clear();
  }
  s.first_success = {};
  if (s.phase == Phase::queued) {
    s.phase = Phase::starting;
    s.phase_since = r.at;
  }
  s.phase_reason = r.reason;
}

void apply_ended_slot(JobState& s, const ev::SlotEnded& e, const EventRecord& r) {
  Slot& slot = slot_at(s, e.rank);
  slot.process = e.lost ? Process::lost : Process::exited;
  slot.moved = false;
  slot.succeeded = e.succeeded;
  slot.exit_code = e.exit_code;
  slot.signal = e.signal;
  slot.message = e.message;
  if (e.succeeded && s.first_success.us == 0) s.first_success = r.at;
}

void set_phase(JobState& s, Phase phase, const EventRecord& r) {
  if (s.phase != phase) s.phase_since = r.at;
  s.phase = phase;
  s.phase_reason = r.reason;
}

void note_host(JobState& s, const ev::HostLinkNoted& e) {
  std::erase_if(s.hosts, [&](const HostNote& n) { return n.host == e.host; });
  if (e.link != HostLink::up) s.hosts.push_back({e.host, e.link, e.since});
  std::sort(s.hosts.begin(), s.hosts.end(),
            [](const HostNote& a, const HostNote& b) { return a.host < b.host; });
}

void give_back(JobState& s) {
  s.holds_lease = false;
  for (Slot& slot : s.slots) {
    slot.placed = slot.replace = false;
    slot.devices.clear();
  }
}

}  // namespace

StopCommand stop_order(const JobState& s) {
  StopCommand how;
  how.signal = s.spec.stop_signal;
  how.scope = s.spec.stop_scope;
  how.grace = s.spec.timeouts.stop_grace;
  how.force = s.force_stop;
  how.reason = s.phase_reason;
  return how;
}

namespace {

void want_groups(const JobState& s, std::vector<Action>& actions) {
  for (uint32_t g = 0; g < std::max(s.spec.groups, 1u); ++g) {
    GroupIndex group{g};
    if (s.stage == Stage::stopping) {
      in::GroupStop order{s.generation, {}, stop_order(s)};
      bool busy = false;
      for (RankIndex r : s.stop) {
        if (group_of(s, r) != group) continue;
        order.ranks.push_back(r);
        busy = busy || is_active(s.slots[r.value]);
      }
      if (busy) actions.push_back(Message{EntityId::group(s.job, group), order});
    } else {
      in::GroupStart order{s.generation, spawn_commands(s, group), {}};
      for (const SpawnCommand& c : order.commands)
        order.hosts.push_back(s.slots[c.key.rank.value].host);
      if (!order.commands.empty()) actions.push_back(Message{EntityId::group(s.job, group), order});
    }
  }
}

void want_prepare(const JobState& s, std::vector<Action>& actions) {
  const HostName& first = meeting_host(s);
  for (const HostName& host : s.prepare_hosts) {
    PrepareCommand c;
    c.job = s.job;
    c.generation = s.generation;
    c.attempt = s.prepare_attempt;
    c.world_size = s.spec.ranks;
    c.checkpoint = s.spec.checkpoint;
    c.want_port = host == first;
    c.avoid_ports = s.avoid_ports;
    c.interpreter = s.spec.interpreter;
    c.modules = s.spec.requires_modules;
    c.environment = s.spec.environment;
    c.want_store = c.want_port && s.spec.rendezvous == Rendezvous::store;
    c.rejoins = s.spec.recovery != RecoveryScope::job;
    c.uid = s.spec.uid;
    c.gid = s.spec.gid;
    actions.push_back(fx::Prepare{host, c});
  }
}

}  // namespace
}  // namespace job

std::vector<Action> pending(const JobState& s) {
  using namespace job;
  std::vector<Action> actions;
  if (s.slots.empty()) return actions;
  bool ended = is_terminal(s.phase);
  EntityId cluster = EntityId::cluster();
  actions.push_back(Message{cluster, in::JobTakenOver{s.job}});
  if (ended) actions.push_back(Message{cluster, in::JobFinished{s.job, s.phase}});
  if (!ended) actions.push_back(fx::KeepSpec{s.job, s.spec});
  std::vector<RankIndex> lost;  // and not placed anew since: where they were they may still run
  for (const Slot& slot : s.slots) {
    if (slot.process != Process::lost) continue;
    if (!slot.moved) lost.push_back(slot.rank);
    actions.push_back(
        Message{EntityId::rank(s.job, slot.rank), in::DeclareLost{slot.incarnation, slot.message}});
  }
  if ((ended || s.parked) && s.holds_lease)
    actions.push_back(Message{cluster, in::ReleaseDevices{s.job, s.grant, lost}});
  if (ended || s.parked) return actions;
  if (s.stage == Stage::stopping || s.stage == Stage::spawning) want_groups(s, actions);
  if (s.stage != Stage::none && !s.start.empty() && keeps_survivors(s)) want_regroup(s, actions);
  if (s.stage == Stage::preparing) want_prepare(s, actions);
  if (s.stage == Stage::placing)
    actions.push_back(Message{
        cluster, in::RequestGrant{s.job, s.grant, s.wanted, s.avoid_hosts, s.wanted_dirty}});
  return actions;
}

void apply(JobState& s, const EventRecord& r) {
  using namespace job;
  std::visit(Overloaded{
                 [&](const ev::JobCreated& e) {
                   s.spec = e.spec;
                   s.submitted_by = e.submitted_by;
                   s.submitted_at = s.phase_since = r.at;
                   s.phase_reason = r.reason;
                   s.slots.resize(e.spec.ranks);
                   for (uint32_t i = 0; i < e.spec.ranks; ++i) s.slots[i].rank = {i};
                 },
                 [&](const ev::DesiredChanged& e) {
                   s.desired = e.desired;
                   s.desired_by = r.by.who.empty() ? "regrow" : r.by.who;
                   s.desired_reason = r.reason;
                   // An operator's resume forgives what led to a hold.
                   if (e.desired == Desired::run) s.without_progress = 0;
                 },
                 [&](const ev::PlacementWanted& e) {
                   s.stage = Stage::placing;
                   s.stage_since = r.at;
                   s.grant = e.grant;
                   s.wanted = e.ranks;
                   s.wanted_dirty = e.dirty;
                   s.holds_lease = true;
                   s.phase_reason = r.reason;
                 },
                 [&](const ev::WaitingNoted&) { s.phase_reason = waiting_text(r.reason); },
                 [&](const ev::SlotsPlaced& e) {
                   for (const Placement& p : e.placements) {
                     Slot& slot = slot_at(s, p.rank);
                     slot.host = p.host;
                     slot.devices = p.devices;
                     slot.placed = true;
                     slot.replace = false;
                     slot.moved = true;
                   }
                   if (s.phase == Phase::queued) set_phase(s, Phase::starting, r);
                 },
                 [&](const ev::SlotsReleased&) { give_back(s); },
                 [&](const ev::SlotCondemned& e) { slot_at(s, e.rank).replace = true; },
                 [&](const ev::IncidentOpened& e) { apply_incident(s, e, r); },
                 [&](const ev::IncidentReclassified& e) { apply_reclassified(s, e, r); },
                 [&](const ev::IncidentJudged& e) { apply_judged(s, e); },
                 [&](const ev::SlotEnded& e) { apply_ended_slot(s, e, r); },
                 [&](const ev::RecoveryPlanned& e) { apply_plan(s, e, r); },
                 [&](const ev::StageEntered& e) {
                   s.stage = e.stage;
                   s.stage_since = r.at;
                   s.not_before = e.not_before;
                   if (e.stage == Stage::preparing) {
                     s.prepare_attempt = e.prepare_attempt;
                     s.prepare_hosts = e.prepare_hosts;
                     s.avoid_ports = e.avoid_ports;
                   }
                 },
                 [&](const ev::GenerationStarted& e) { apply_started(s, e, r); },
                 [&](const ev::SlotRunning& e) { slot_at(s, e.rank).process = Process::running; },
                 [&](const ev::GenerationRunning& e) {
                   s.stage = Stage::none;
                   s.running_generation = e.generation;
                   s.running_since = r.at;
                   s.stop.clear();
                   for (Slot& slot : s.slots) {
                     if (slot.process == Process::rejoining) slot.process = Process::running;
                   }
                   for (Incident& i : s.incidents) i.open = false;
                   set_phase(s, Phase::running, r);
                 },
                 [&](const ev::GenerationFormed& e) {
                   bool again = e.source >= 0 && e.source_step == s.formed.source_step;
                   s.heals_at_step = again ? s.heals_at_step + 1 : 0;
                   s.formed = e;
                 },
                 [&](const ev::ProgressSampled& e) { s.progress = e; },
                 [&](const ev::BudgetRefilled&) {
                   for (Incident& i : s.incidents) i.counts = false;
                   s.without_progress = 0;
                 },
                 [&](const ev::HostLinkNoted& e) { note_host(s, e); },
                 [&](const ev::EndDecided& e) {
                   s.end_phase = e.phase;
                   set_phase(s, Phase::stopping, r);
                 },
                 [&](const ev::JobEnded& e) {
                   set_phase(s, e.phase, r);
                   s.stage = Stage::none;
                   s.ended_at = r.at;
                   for (Incident& i : s.incidents) i.open = false;
                 },
                 [&](const ev::JobParked&) {
                   s.stage = Stage::none;
                   s.parked = true;
                   for (Incident& i : s.incidents) i.open = false;
                   set_phase(s, Phase::queued, r);
                 },
                 [&](const ev::EntityQuarantined&) {},
                 [&](const auto& e) {
                   throw BrokenInvariant(std::string(e.kTypeName) + " is not an event of a job");
                 },
             },
             r.event);
}

}  // namespace regrow
