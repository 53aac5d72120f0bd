// How a plan is carried out, stage by stage: stop → place → back off → prepare → spawn.
#include <algorithm>
#include <map>
#include <set>

#include "supervisors/checkpoint.h"
#include "supervisors/job_internal.h"

namespace regrow::job {

bool judge_incident(T& t, JobLive& live);  // job_recovery.cpp; false = the job does not go on

void plan_start(T& t, const std::string& reason) {
  const JobState& s = t.state();
  ev::RecoveryPlanned plan;
  plan.generation = next(s.generation);
  plan.start = all_ranks(s);
  t.record(plan, reason);
}

void plan_stop(T& t, Phase end, bool force, const std::string& reason) {
  if (end != Phase::queued) t.record(ev::EndDecided{end, active_ranks(t.state())}, reason);
  stop_all(t, force, reason);
}

void stop_all(T& t, bool force, const std::string& reason) {
  ev::RecoveryPlanned plan;
  plan.generation = next(t.state().generation);
  plan.stop = active_ranks(t.state());
  plan.force = force;
  t.record(plan, reason);
}

namespace {

bool stop_done(const JobState& s) {
  return std::none_of(s.stop.begin(), s.stop.end(),
                      [&](RankIndex r) { return is_active(s.slots[r.value]); });
}

// Those that start ranks, the one where the generation meets, and where checkpoints are on the
// hosts' own disks all of them.
std::vector<HostName> hosts_to_prepare(const JobState& s) {
  std::set<HostName> hosts{meeting_host(s)};
  for (const Slot& slot : s.slots) {
    if (contains(s.start, slot.rank) || s.spec.checkpoint.storage == StorageKind::host_local)
      hosts.insert(slot.host);
  }
  return {hosts.begin(), hosts.end()};
}

Time back_off_until(const JobState& s) {
  const Incident* incident = open_incident(s);
  if (incident == nullptr || s.without_progress <= 1) return {};  // the first restart is at once
  Duration delay = s.spec.backoff.initial;
  for (uint32_t i = 2; i < s.without_progress && delay < s.spec.backoff.cap; ++i) delay.us *= 2;
  return incident->at + std::min(delay, s.spec.backoff.cap);
}

void enter_back_off(T& t) {
  ev::StageEntered entered;
  entered.stage = Stage::backing_off;
  entered.not_before = back_off_until(t.state());
  Duration wait = entered.not_before - t.now().time;
  t.record(entered, wait.us > 0 ? "waits " + seconds_text(wait) +
                                      " before the next attempt: no progress in " +
                                      std::to_string(t.state().without_progress) + " in a row"
                                : "no back-off");
}

void enter_preparing(T& t, JobLive& live, std::vector<uint32_t> avoid_ports,
                     const std::string& reason) {
  live.prepared.clear();
  ev::StageEntered entered;
  entered.stage = Stage::preparing;
  entered.prepare_attempt = t.state().prepare_attempt + 1;
  entered.prepare_hosts = hosts_to_prepare(t.state());
  entered.avoid_ports = std::move(avoid_ports);
  t.record(entered, reason);
}

// True if the stopping stage led somewhere else.
bool leave_stopping(T& t, JobLive& live) {
  const JobState& s = t.state();
  if (!stop_done(s)) return false;
  bool all_stopped = active_ranks(s).empty();
  if (s.end_phase != Phase::queued) {
    if (all_stopped) t.record(ev::JobEnded{s.end_phase}, s.phase_reason);
    if (!all_stopped) stop_all(t, false, s.phase_reason);
    return !all_stopped;
  }
  if (const Incident* incident = open_incident(s); incident != nullptr && !incident->judged) {
    if (!judge_incident(t, live)) return true;
  }
  if (s.desired != Desired::run) {
    if (!all_stopped) {
      stop_all(t, false, s.desired_reason.empty() ? s.phase_reason : s.desired_reason);
      return true;
    }
    t.record(ev::JobParked{s.desired},
             s.desired_reason.empty() ? s.phase_reason : s.desired_reason);
    return false;
  }
  if (s.start.empty()) {
    plan_start(t, "resumed");
    return true;
  }
  ev::PlacementWanted wanted{s.grant + 1, {}, s.avoid_hosts, {}};
  for (RankIndex r : s.start) {
    const Slot& slot = s.slots[r.value];
    bool lost = slot.process == Process::lost && !slot.moved;
    if (slot.placed && !slot.replace && !lost) continue;
    wanted.ranks.push_back(r);
    if (lost) wanted.dirty.push_back(r);
  }
  if (wanted.ranks.empty()) {
    enter_back_off(t);
  } else {
    std::string reason = count_text(wanted.ranks.size(), "rank") + " to be placed";
    t.record(std::move(wanted), reason);
  }
  return true;
}

bool leave_placing(T& t) {
  const JobState& s = t.state();
  for (RankIndex r : s.start) {
    const Slot& slot = s.slots[r.value];
    if (!slot.placed || slot.replace || (slot.process == Process::lost && !slot.moved))
      return false;
  }
  enter_back_off(t);
  return true;
}

bool leave_backing_off(T& t, JobLive& live) {
  if (t.now().time < t.state().not_before) return false;
  enter_preparing(t, live, t.state().avoid_ports, "hosts look for checkpoints and lease a port");
  return true;
}

bool leave_preparing(T& t, JobLive& live) {
  const JobState& s = t.state();
  std::map<HostName, PrepareReport> reports;
  std::vector<HostName> missing;
  const HostName& first = meeting_host(s);
  for (const HostName& host : s.prepare_hosts) {
    auto it = live.prepared.find(host);
    if (it == live.prepared.end()) {
      missing.push_back(host);
      continue;
    }
    if (!it->second.error.empty()) {
      plan_stop(t, Phase::failed, true,
                "host " + host.value + " cannot run this job: " + it->second.error);
      return true;
    }
    if (s.spec.checkpoint.storage == StorageKind::host_local || host == first) reports.insert(*it);
  }
  if (!missing.empty()) {
    if (t.now().time < t.now().deadline(s.stage_since, kPrepareTimeout)) return false;
    on_silent_hosts(t, live, missing);
    return true;
  }
  std::vector<HostName> host_of_rank;
  for (const Slot& slot : s.slots) host_of_rank.push_back(slot.host);
  ResumePoint resume = choose_resume_point(s.spec.checkpoint, host_of_rank, reports);
  const PrepareReport& rendezvous = live.prepared.at(first);
  if (keeps_survivors(s) && !rendezvous.store) {
    const Incident* open = open_incident(s);
    plan_recovery(t, open == nullptr ? 0 : open->number, {},
                  "there is no store where survivors could meet new ranks: " + rendezvous.no_store,
                  {});
    return true;
  }
  ev::GenerationStarted started{s.generation,       resume.step,       resume.path,
                                rendezvous.address, rendezvous.port,   resume.rejected,
                                rendezvous.store,   keeps_survivors(s)};
  std::string from =
      resume.step >= 0 ? "from step " + std::to_string(resume.step) : "from the beginning";
  for (const std::string& no : resume.rejected) from += "; " + no;
  if (!rendezvous.no_store.empty())
    from += "; rank 0 hosts the rendezvous, no store: " + rendezvous.no_store;
  t.record(started, "generation " + std::to_string(s.generation.value) +
                        (keeps_survivors(s) ? " starts; if no state survives, " : " starts ") +
                        from);
  live.progress.clear();
  live.max_step = -1;
  live.advanced_at = {};
  return true;
}

bool leave_spawning(T& t) {
  const JobState& s = t.state();
  for (RankIndex r : s.start) {
    if (s.slots[r.value].process == Process::spawning) return false;
  }
  std::string what = count_text(s.start.size(), "rank") + " started";
  if (keeps_survivors(s)) {
    ev::StageEntered entered;
    entered.stage = Stage::joining;
    t.record(entered, what + ", all ranks are to join");
  } else {
    t.record(ev::GenerationRunning{s.generation}, what);
  }
  return true;
}

bool leave_stage(T& t, JobLive& live) {
  const JobState& s = t.state();
  switch (s.stage) {
    case Stage::stopping:
      return leave_stopping(t, live);
    case Stage::placing:
      return leave_placing(t);
    case Stage::backing_off:
      return leave_backing_off(t, live);
    case Stage::preparing:
      return leave_preparing(t, live);
    case Stage::spawning:
      return leave_spawning(t);
    case Stage::joining:
      return leave_joining(t, live);
    case Stage::none:
      if (!s.parked || s.desired == Desired::cancel || s.desired != Desired::run || s.holds_lease)
        return false;
      plan_start(t, "resumed by " + s.desired_by);
      return true;
  }
  return false;
}

}  // namespace

void advance(T& t, JobLive& live) {
  while (!is_terminal(t.state().phase) && leave_stage(t, live)) {
  }
}

std::optional<Time> stage_deadline(const JobState& s, const JobLive& live, Now now) {
  if (s.stage == Stage::backing_off) return s.not_before;
  std::optional<Time> first = ask_again_at(s, live, now);
  auto consider = [&](std::optional<Time> at) {
    if (at && (!first || *at < *first)) first = at;
  };
  if (s.stage == Stage::preparing) consider(now.deadline(s.stage_since, kPrepareTimeout));
  if (s.stage == Stage::joining) consider(joining_deadline(s, live, now));
  return first;
}

std::optional<Time> ask_again_at(const JobState& s, const JobLive& live, Now now) {
  std::optional<Duration> pause;
  if (s.stage == Stage::preparing) pause = kPrepareAgainAfter;
  if (s.stage != Stage::none && !s.start.empty() && keeps_survivors(s)) pause = kRegroupAgainAfter;
  if (!pause) return std::nullopt;
  return now.deadline(std::max(s.stage_since, live.asked_at), *pause);
}

std::vector<SpawnCommand> spawn_commands(const JobState& s, GroupIndex group) {
  struct OnHost {
    uint32_t index = 0;  // hosts in the order of their lowest rank
    uint32_t ranks = 0;
  };
  std::map<HostName, OnHost> hosts;
  std::vector<std::pair<const OnHost*, uint32_t>>
      where;  // of each slot: its host, and its number there
  for (const Slot& slot : s.slots) {
    auto [it, first] = hosts.try_emplace(slot.host);
    if (first) it->second.index = static_cast<uint32_t>(hosts.size()) - 1;
    where.emplace_back(&it->second, it->second.ranks++);
  }
  std::vector<SpawnCommand> commands;
  for (RankIndex r : s.start) {
    if (group_of(s, r) != group) continue;
    const Slot& slot = s.slots[r.value];
    SpawnCommand c;
    c.key = {s.job, r, slot.incarnation};
    c.generation = s.generation;
    c.group = group;
    c.world_size = s.spec.ranks;
    c.local_rank = where[r.value].second;
    c.local_world_size = where[r.value].first->ranks;
    c.group_rank = where[r.value].first->index;
    c.group_world_size = static_cast<uint32_t>(hosts.size());
    c.devices = slot.devices;
    c.master_address = s.master_address;
    c.master_port = s.master_port;
    c.resume_step = s.resume_step;
    c.resume_path = s.resume_path;
    // In a store that outlives restarts the count names what belongs to one generation; it must be
    // its own.
    c.restart_count = s.store ? s.generation.value - 1 : s.recoveries;
    c.store = s.store;
    c.rejoins = keeps_survivors(s);
    commands.push_back(std::move(c));
  }
  return commands;
}

}  // namespace regrow::job
