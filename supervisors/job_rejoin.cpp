// Survivors keep their process: who they are, and how they and the new ranks become one generation.
// Invariants, C-1.
#include <algorithm>
#include <map>

#include "supervisors/job_internal.h"

namespace regrow::job {
namespace {

// Incidents in a row without a new step, after which survivors are not trusted any more.
constexpr uint32_t kRejoinsWithoutProgress = 3;
// Generations in a row that took over the same step and lost a rank before the next one.
constexpr uint32_t kHealsAtStep = 1;

bool has_joined(const JobState& s, const JobLive& live, const Slot& slot) {
  auto it = live.joins.find(slot.rank);
  return it != live.joins.end() && it->second.incarnation == slot.incarnation &&
         it->second.generation == s.generation;
}

bool is_new(const JobState& s, const Slot& slot) { return contains(s.start, slot.rank); }

// The lowest of the intact ranks with the highest step; nothing if no state survives.
std::optional<RankIndex> best_source(const JobState& s, const JobLive& live) {
  std::optional<RankIndex> best;
  for (const auto& [rank, join] : live.joins) {
    if (!join.intact || join.step < 0 || rank.value >= s.slots.size()) continue;
    if (!best || join.step > live.joins.at(*best).step) best = rank;
  }
  return best;
}

ev::GenerationFormed form(const JobState& s, const JobLive& live, std::string& how) {
  ev::GenerationFormed formed{s.generation, -1, -1};
  std::string checkpoint =
      s.resume_step >= 0 ? "goes back to the checkpoint of step " + std::to_string(s.resume_step)
                         : "begins again";
  auto source = best_source(s, live);
  if (!source) {
    how = "no rank has intact state: the job " + checkpoint;
    return formed;
  }
  int64_t step = live.joins.at(*source).step;
  if (s.formed.source >= 0 && step == s.formed.source_step && s.heals_at_step >= kHealsAtStep) {
    how = "step " + std::to_string(step) + " was taken over twice and failed again: the job " +
          checkpoint;
    return formed;
  }
  formed.source = static_cast<int32_t>(source->value);
  formed.source_step = step;
  how = "all go on from step " + std::to_string(step) + " of " + rank_text(s, *source);
  return formed;
}

GoCommand go_command(const JobState& s) {
  GoCommand go;
  go.generation = s.generation;
  go.world_size = s.spec.ranks;
  go.master_address = s.master_address;
  go.master_port = s.master_port;
  go.source = s.formed.source;
  go.source_step = s.formed.source_step;
  go.resume_step = s.resume_step;
  go.resume_path = s.resume_path;
  return go;
}

IncarnationKey key_of(const JobState& s, const Slot& slot) {
  return {s.job, slot.rank, slot.incarnation};
}

// The ranks of each host that `wanted` says.
template <class Wanted>
std::map<HostName, std::vector<IncarnationKey>> by_host(const JobState& s, Wanted wanted) {
  std::map<HostName, std::vector<IncarnationKey>> hosts;
  for (const Slot& slot : s.slots) {
    if (wanted(slot)) hosts[slot.host].push_back(key_of(s, slot));
  }
  return hosts;
}

// A survivor counts from the call to join; a new rank first has to start up. While a host is out of
// reach its own time-out decides.
std::optional<Time> join_by(const JobState& s, const JobLive& live, const Slot& slot, Now now) {
  const Timeouts& limits = s.spec.timeouts;
  for (const HostNote& note : s.hosts) {
    if (note.host == slot.host && note.link != HostLink::up) return std::nullopt;
  }
  auto back = live.back_at.find(slot.host);
  Time since = back == live.back_at.end() ? s.stage_since : std::max(s.stage_since, back->second);
  if (!is_new(s, slot)) return now.deadline(since, limits.rejoin);
  if (limits.start.us == 0) return std::nullopt;
  return now.deadline(since, std::max(limits.start, limits.rejoin));
}

}  // namespace

std::vector<RankIndex> survivors(const JobState& s, const std::vector<RankIndex>& useless) {
  std::vector<RankIndex> ranks;
  for (const Slot& slot : s.slots) {
    bool runs = slot.process == Process::running || slot.process == Process::rejoining;
    bool doomed = s.stage == Stage::stopping && contains(s.stop, slot.rank);
    if (runs && !doomed && !slot.replace && !contains(useless, slot.rank))
      ranks.push_back(slot.rank);
  }
  return ranks;
}

std::string why_all_restart(const JobState& s, const std::vector<RankIndex>& useless) {
  if (s.spec.recovery == RecoveryScope::job) return "the script does not rejoin";
  if (s.spec.recovery == RecoveryScope::group) return "recovery: group is not there yet";
  const Incident* open = open_incident(s);
  if (open == nullptr || s.running_generation.value == 0) return "the job has never run yet";
  if (!s.store) return "rank 0 hosts the rendezvous, and survivors cannot meet new ranks there";
  if (is_bind_failure(*open) || open->failure_class == FailureClass::early_exit)
    return "survivors are of no use after " + std::string(to_string(open->failure_class));
  for (const Slot& slot : s.slots) {
    if (slot.succeeded) return rank_text(s, slot.rank) + " has exited with 0 and cannot rejoin";
  }
  if (s.without_progress >= kRejoinsWithoutProgress)
    return "no step was done since the last " + std::to_string(s.without_progress) + " incidents";
  if (survivors(s, useless).empty()) return "no rank survives";
  return "";
}

void on_joined(T& t, JobLive& live, const in::Joined& m) {
  const JobState& s = t.state();
  const JoinReport& j = m.report;
  if (j.key.rank.value >= s.slots.size()) return t.ignore("no such rank");
  const Slot& slot = s.slots[j.key.rank.value];
  if (j.key.incarnation != slot.incarnation || m.host != slot.host)
    return t.ignore("not the newest incarnation of the slot");
  if (j.generation != s.generation) return t.ignore("of another generation");
  bool formed = s.formed.generation == s.generation && s.stage == Stage::none;
  if (formed && s.phase == Phase::running) {
    // The answer was lost on its way.
    GoCommand go = go_command(s);
    go.keys = {j.key};
    t.effect(fx::Go{m.host, go});
    return t.ignore("the generation is complete: told again");
  }
  live.joins[j.key.rank] = {j.key.incarnation, j.generation, j.step, j.intact};
  advance(t, live);
}

bool leave_joining(T& t, JobLive& live) {
  const JobState& s = t.state();
  for (const Slot& slot : s.slots) {
    if (!has_joined(s, live, slot)) return false;
  }
  // A crash may have come between this event and the next.
  if (s.formed.generation != s.generation) {
    std::string how;
    ev::GenerationFormed formed = form(s, live, how);
    t.record(formed, "every rank has joined: " + how);
  }
  t.record(ev::GenerationRunning{s.generation},
           count_text(s.slots.size() - s.start.size(), "survivor") + " and " +
               count_text(s.start.size(), "new rank"));
  GoCommand go = go_command(s);
  for (auto& [host, keys] : by_host(s, [](const Slot&) { return true; })) {
    go.keys = keys;
    t.effect(fx::Go{host, go});
  }
  return true;
}

std::optional<Time> joining_deadline(const JobState& s, const JobLive& live, Now now) {
  std::optional<Time> first;
  for (const Slot& slot : s.slots) {
    if (has_joined(s, live, slot)) continue;
    auto at = join_by(s, live, slot, now);
    if (at && (!first || *at < *first)) first = at;
  }
  return first;
}

void check_joining(T& t, JobLive& live) {
  const JobState& s = t.state();
  std::vector<RankIndex> late;
  bool anyone = false;  // of the survivors
  for (const Slot& slot : s.slots) {
    bool joined = has_joined(s, live, slot);
    anyone = anyone || (joined && !is_new(s, slot));
    if (joined) continue;
    auto at = join_by(s, live, slot, t.now());
    if (at && t.now().time >= *at) late.push_back(slot.rank);
  }
  if (late.empty()) return;
  Slot slot = s.slots[late.front().value];
  Duration limit{t.now().time.us - s.stage_since.us};
  Verdict v{FailureClass::hang, "did not rejoin", false, false,
            (late.size() == 1 ? "" : "and " + std::to_string(late.size() - 1) + " more ") +
                std::string("did not rejoin within ") + seconds_text(limit)};
  // A script that does not rejoin at all is of no use to new ranks either.
  on_loss(t, live, slot, RankReport{}, v, anyone ? late : all_ranks(s));
}

void want_regroup(const JobState& s, std::vector<Action>& actions) {
  std::string why = s.incidents.empty() ? "" : s.incidents.back().cause;
  auto rejoining = [](const Slot& slot) { return slot.process == Process::rejoining; };
  for (auto& [host, keys] : by_host(s, rejoining))
    actions.push_back(fx::Regroup{host, {s.generation, keys, why}});
}

}  // namespace regrow::job
