// What a loss means: incidents, budgets, and which rung of the ladder is next.
#include <algorithm>

#include "supervisors/job_internal.h"

namespace regrow::job {
namespace {

std::string budget_text(const JobState& s, FailureClass c, Time now, int32_t& max, uint32_t& used) {
  Duration window;
  max = -1;
  for (const Intensity& i : s.spec.intensity) {
    if (i.failure_class == c) {
      max = i.max_restarts;
      window = i.window;
    }
  }
  used = 0;
  for (const Incident& i : s.incidents) {
    bool recent = window.us == 0 || now - i.at <= window;
    if (i.failure_class == c && i.counts && i.charged && recent) ++used;
  }
  std::string text = std::string(to_string(c)) + " failure " + std::to_string(used);
  return max < 0 ? text + " (no limit)" : text + " of " + std::to_string(max);
}

// Which hosts the next placement should avoid: those where this class of failure keeps happening.
std::vector<HostName> hosts_to_avoid(const JobState& s, const std::vector<RankIndex>& replace) {
  std::vector<HostName> avoid;
  for (RankIndex r : replace) {
    const HostName& host = s.slots[r.value].host;
    bool lost = s.slots[r.value].process == Process::lost;
    if (lost && std::find(avoid.begin(), avoid.end(), host) == avoid.end()) avoid.push_back(host);
  }
  return avoid;
}

// "rank 3", "ranks 3, 4, 7", "12 ranks"
std::string ranks_text(const std::vector<RankIndex>& ranks) {
  constexpr size_t kNamed = 4;
  if (ranks.size() > kNamed) return count_text(ranks.size(), "rank");
  std::string text = ranks.size() == 1 ? "rank" : "ranks";
  for (size_t i = 0; i < ranks.size(); ++i)
    text += (i == 0 ? " " : ", ") + std::to_string(ranks[i].value);
  return text;
}

std::string step_text(int64_t step) { return step >= 0 ? " at step " + std::to_string(step) : ""; }

// A long run of a job that does not tell its steps.
bool ran_long(const JobState& s, const Incident& i) {
  return i.step < 0 && s.running_since.us != 0 && i.at - s.running_since >= s.spec.healthy_for;
}

// A higher step than ever before. Where no steps are known newer checkpoints count (seen when the
// next generation starts), and where none are kept either, a long run is all that can be known.
bool has_progressed(const JobState& s, const Incident& i) {
  return i.step > s.best_step || (s.spec.checkpoint.directory.empty() && ran_long(s, i));
}

// The same program failure at the same step twice: a bug, not bad luck. However long it ran in
// between: it has not come any further.
bool same_bug_again(const JobState& s, const Incident& now) {
  if (now.failure_class != FailureClass::program || now.peer_error || s.incidents.size() < 2)
    return false;
  const Incident& before = s.incidents[s.incidents.size() - 2];
  // The rank's own step is exact; the job's may be a step off where ranks are not in lockstep.
  bool own = before.rank_step >= 0 && now.rank_step >= 0;
  bool same_step = own ? before.rank_step == now.rank_step : before.step == now.step;
  return before.failure_class == now.failure_class && before.signature == now.signature &&
         same_step && !ran_long(s, now);
}

// Empty if the job may go on after this incident.
std::string why_it_must_fail(const JobState& s, const Incident& incident) {
  std::string who = rank_text(s, incident.rank);
  if (incident.failure_class == FailureClass::start_up && incident.charged)
    return who + ": " + incident.signature;
  if (same_bug_again(s, incident))
    return who + " failed twice in the same way" + step_text(incident.step) + " (" +
           incident.signature + "): a fault of the program; no device is blamed";
  int32_t max = -1;
  uint32_t used = 0;
  std::string count = budget_text(s, incident.failure_class, incident.at, max, used);
  if (max >= 0 && used > static_cast<uint32_t>(max))
    return "restart budget spent: " + count + "; the last: " + incident.cause;
  return "";
}

}  // namespace

void plan_recovery(T& t, uint32_t incident, const std::vector<RankIndex>& useless,
                   const std::string& why, const std::vector<HostName>& avoid) {
  const JobState& s = t.state();
  const Incident* open = open_incident(s);
  bool hopeless = open != nullptr && !why_it_must_fail(s, *open).empty();
  std::string why_all = hopeless ? "no attempt is left" : why_all_restart(s, useless);
  std::vector<RankIndex> keep;
  if (why_all.empty()) keep = survivors(s, useless);

  ev::RecoveryPlanned plan;
  plan.generation = next(s.generation);
  plan.incident = incident;
  for (const Slot& slot : s.slots) {
    if (contains(keep, slot.rank)) continue;
    plan.start.push_back(slot.rank);
    if (is_active(slot)) plan.stop.push_back(slot.rank);
    if ((slot.process == Process::lost && !slot.moved) || slot.replace)
      plan.replace.push_back(slot.rank);
  }
  plan.rung = keep.empty() ? Rung::job : plan.replace.empty() ? Rung::respawn : Rung::other_device;
  plan.avoid_hosts = hosts_to_avoid(s, plan.replace);
  plan.avoid_hosts.insert(plan.avoid_hosts.end(), avoid.begin(), avoid.end());
  plan.force = !useless.empty();
  if (hopeless) return t.record(plan, why + "; no attempt is left: all ranks are stopped");
  std::string where = plan.replace.empty() ? "in place, hosts kept"
                      : plan.replace.size() == plan.start.size()
                          ? "on other devices"
                          : "of them " + std::to_string(plan.replace.size()) + " on other devices";
  std::string who =
      s.spec.ranks == 1 ? why_all + ": it restarts"
      : keep.empty()    ? why_all + ": all " + std::to_string(s.spec.ranks) + " ranks restart"
                     : ranks_text(plan.start) + (plan.start.size() == 1 ? " restarts" : " restart");
  std::string rung = keep.empty() ? "4" : plan.replace.empty() ? "1" : "2";
  std::string others =
      keep.empty() ? "" : ", " + count_text(keep.size(), "survivor") + " keep their process";
  t.record(plan, why + "; " + who + " " + where + others + " (rung " + rung + " of 6)");
}

namespace {

// Did this loss happen in a generation that was itself a recovery from the open incident?
bool second_attempt(const JobState& s, const Incident& open) {
  return s.generation > next(open.generation);
}

// A port taken by someone else is nobody's fault, unless it happens again and again.
bool is_charged(const JobState& s, const RankReport& report) {
  return !(report.bind_failed && s.bind_failures < kBindFailuresFree);
}

void join(T& t, const Incident& open, const Slot& slot, const RankReport& report,
          const Verdict& v) {
  bool better = open.peer_error && !v.peer_error && v.failure_class != FailureClass::early_exit;
  if (!better) return;
  ev::IncidentReclassified e{open.number,     slot.rank,         slot.incarnation,
                             v.failure_class, v.signature,       report.exit_code,
                             report.signal,   report.last_words, is_charged(t.state(), report),
                             report.last_step};
  t.record(e, rank_text(t.state(), slot.rank) + " is the root: " + v.text +
                  "; the first report only blamed a peer");
}

void open_new(T& t, JobLive& live, const Slot& slot, const RankReport& report, Verdict v) {
  const JobState& s = t.state();
  // A rank that left early took its peers' connections with it: their errors are its doing.
  RankIndex root = slot.rank;
  Incarnation incarnation = slot.incarnation;
  if (v.peer_error && s.first_success.us != 0) {
    for (const Slot& other : s.slots) {
      if (!other.succeeded) continue;
      root = other.rank;
      incarnation = other.incarnation;
      v.failure_class = FailureClass::early_exit;
      v.signature = "exit 0 before its peers";
      v.text = "exited with 0 while its peers still needed it";
      v.peer_error = false;
      break;
    }
  }
  if (live.max_step >= 0)
    t.record(ev::ProgressSampled{live.max_step, live.loss, 0, root}, "the generation ends here");
  ev::IncidentOpened e;
  e.incident = s.incident_count + 1;
  e.rank = root;
  e.incarnation = incarnation;
  e.failure_class = v.failure_class;
  e.signature = v.signature;
  e.peer_error = v.peer_error;
  e.step = std::max(live.max_step, report.last_step);
  e.rank_step = report.last_step;
  e.exit_code = report.exit_code;
  e.signal = report.signal;
  e.last_words = report.last_words;
  e.charged = is_charged(s, report);
  t.record(e, rank_text(s, root) + " " + v.text + step_text(e.step));
}

void fail(T& t, const std::string& why) { t.record(ev::EndDecided{Phase::failed, {}}, why); }

}  // namespace

// Every affected rank has ended: decide from all the evidence whether the job may go on. The
// verdict comes before IncidentJudged, so that a crash between the two cannot let the job off.
bool judge_incident(T& t, JobLive& live) {
  const JobState& s = t.state();
  Incident incident = *open_incident(s);
  incident.step = std::max(incident.step, live.max_step);
  bool progressed = has_progressed(s, incident);
  uint32_t without = progressed ? 0 : s.without_progress + 1;
  std::string why_not = why_it_must_fail(s, incident);
  if (!why_not.empty()) {
    fail(t, why_not);
  } else if (!is_nobodys_fault(incident) && without >= s.spec.max_without_progress &&
             s.desired == Desired::run) {
    t.record(ev::DesiredChanged{Desired::hold},
             "no progress" + step_text(incident.step) + " in " + std::to_string(without) +
                 " attempts in a row; the last: " + incident.cause +
                 ". Mend the cause, then `regrow resume " + std::to_string(s.job.value) + "`");
  }
  t.record(ev::IncidentJudged{incident.number, incident.step, progressed},
           progressed ? "progress since the last incident" : "no progress since the last incident");
  return why_not.empty();
}

void on_loss(T& t, JobLive& live, const Slot& lost, const RankReport& report,
             const Verdict& verdict, const std::vector<RankIndex>& useless,
             const std::vector<HostName>& avoid) {
  Slot slot = lost;
  live.max_step = std::max(live.max_step, report.last_step);
  const Incident* open = open_incident(t.state());
  bool joins = open != nullptr && !(open->judged && second_attempt(t.state(), *open)) &&
               !(open->judged && verdict.failure_class == FailureClass::program);
  if (joins) {
    join(t, *open, slot, report, verdict);
    bool covered = t.state().stage == Stage::stopping && contains(t.state().start, slot.rank);
    if (!covered)
      plan_recovery(
          t, open->number, useless,
          rank_text(t.state(), slot.rank) + " was lost during recovery (" + verdict.text + ")",
          avoid);
    return advance(t, live);
  }
  open_new(t, live, slot, report, verdict);
  int32_t max;
  uint32_t used;
  const Incident& incident = t.state().incidents.back();
  plan_recovery(t, incident.number, useless,
                incident.cause + " (" +
                    budget_text(t.state(), incident.failure_class, t.now().time, max, used) + ")",
                avoid);
  advance(t, live);
}

void on_silent_hosts(T& t, JobLive& live, const std::vector<HostName>& hosts) {
  std::string names;
  for (const HostName& h : hosts) names += (names.empty() ? "" : ", ") + h.value;
  std::string what = "no answer from " + names + " within " + seconds_text(kPrepareTimeout);
  std::optional<Slot> first;
  auto slots = t.state().slots;
  for (const Slot& slot : slots) {
    if (std::find(hosts.begin(), hosts.end(), slot.host) == hosts.end()) continue;
    if (!first) first = slot;
    t.record(ev::SlotCondemned{slot.rank}, what);
  }
  Verdict v{FailureClass::infrastructure, "host silent", false, false,
            "could not be prepared: " + what};
  if (first) on_loss(t, live, *first, RankReport{}, v, {}, hosts);
}

void on_device_trouble(T& t, JobLive& live, const in::DeviceTrouble& m) {
  const JobState& s = t.state();
  for (const Slot& slot : s.slots) {
    bool here = slot.placed && slot.host == m.host &&
                std::find(slot.devices.begin(), slot.devices.end(), m.device) != slot.devices.end();
    if (!here || slot.replace) continue;
    t.record(ev::SlotCondemned{slot.rank}, m.host.value + "/" + m.device.value + ": " + m.why);
    if (s.end_phase != Phase::queued || s.desired != Desired::run || is_terminal(s.phase)) return;
    Slot hit = t.state().slots[slot.rank.value];
    RankReport none;
    Verdict v{FailureClass::device, "device " + m.why, false, false,
              "lost its device " + m.device.value + ": " + m.why};
    return on_loss(t, live, hit, none, v, {hit.rank});
  }
  t.ignore("no rank of this job uses it");
}

namespace {

enum class WatchKind { not_started, early_exit, stalled, no_sign };

struct Watch {
  Time at;
  WatchKind kind;
  RankIndex rank;  // of the first two kinds
};

// The rank to name when nothing moves: one that someone stopped, else the one furthest behind.
RankIndex slowest(const JobState& s, const JobLive& live) {
  RankIndex worst = s.slots.front().rank;
  int64_t worst_step = INT64_MAX;
  for (const Slot& slot : s.slots) {
    if (!is_active(slot)) continue;
    auto it = live.progress.find(slot.rank);
    if (it != live.progress.end() && it->second.report.stopped) return slot.rank;
    int64_t step = it == live.progress.end() ? INT64_MAX - 1 : it->second.report.step;
    if (step < worst_step) {
      worst_step = step;
      worst = slot.rank;
    }
  }
  return worst;
}

// When the rank that has not moved for the longest time moved last; ranks that never show a step
// (only rank 0 may print) do not count, nor do those whose agent is silent: of them nothing is
// known, and steps of the others prove that they live. Nothing before the first step of this
// generation.
std::optional<Time> first_to_stall(const JobState& s, const JobLive& live, Now now) {
  std::optional<Time> first;
  for (const auto& [rank, progress] : live.progress) {
    const Slot& slot = s.slots[rank.value];
    if (!is_active(slot) || slot.incarnation != progress.incarnation) continue;
    Time moved =
        s.spec.progress_pattern.empty() ? progress.output_advanced_at : progress.step_advanced_at;
    if (moved <= s.running_since || now.time - progress.heard_at > kHostSuspectAfter) continue;
    if (!first || moved < *first) first = moved;
  }
  return first;
}

std::vector<Watch> watches(const JobState& s, const JobLive& live, Now now) {
  std::vector<Watch> all;
  const Timeouts& limits = s.spec.timeouts;
  if (s.stage == Stage::spawning) {
    for (RankIndex r : s.start) {
      if (s.slots[r.value].process != Process::spawning || limits.start.us == 0) continue;
      return {{now.deadline(s.stage_since, limits.start), WatchKind::not_started, r}};
    }
    return all;
  }
  if (s.first_success.us != 0) {
    for (const Slot& slot : s.slots) {
      if (!slot.succeeded) continue;
      all.push_back(
          {now.deadline(s.first_success, limits.finish), WatchKind::early_exit, slot.rank});
      break;
    }
  }
  if (limits.progress.us > 0) {
    if (auto stalled = first_to_stall(s, live, now))
      all.push_back({now.deadline(*stalled, limits.progress), WatchKind::stalled, {}});
  }
  bool moved = live.advanced_at > s.running_since;
  bool watched = !s.spec.progress_pattern.empty() || limits.progress.us > 0;
  if (!moved && limits.start.us > 0 && watched)
    all.push_back({now.deadline(s.running_since, limits.start), WatchKind::no_sign, {}});
  return all;
}

// What it means that this time has come.
Verdict verdict_of(const JobState& s, const JobLive& live, const Watch& w, RankIndex& rank) {
  auto verdict = [](FailureClass c, std::string what) {
    return Verdict{c, std::string(to_string(c)), false, false, std::move(what)};
  };
  const Timeouts& limits = s.spec.timeouts;
  rank = w.rank;
  if (w.kind == WatchKind::not_started)
    return verdict(FailureClass::infrastructure,
                   "was not started within " + seconds_text(limits.start));
  if (w.kind == WatchKind::early_exit)
    return verdict(FailureClass::early_exit, "exited with 0, and its peers had not finished " +
                                                 seconds_text(limits.finish) + " later");
  rank = slowest(s, live);
  std::string what =
      w.kind == WatchKind::stalled
          ? "hung: no progress for " + seconds_text(limits.progress)
          : "stuck in start-up: no sign of progress for " + seconds_text(limits.start);
  auto it = live.progress.find(rank);
  if (it != live.progress.end() && it->second.report.stopped)
    what += " (someone stopped it with SIGSTOP)";
  return verdict(FailureClass::hang, what);
}

}  // namespace

std::optional<Time> progress_deadline(const JobState& s, const JobLive& live, Now now) {
  std::optional<Time> first;
  for (const Watch& w : watches(s, live, now)) {
    if (!first || w.at < *first) first = w.at;
  }
  return first;
}

void check_progress(T& t, JobLive& live) {
  for (const Watch& w : watches(t.state(), live, t.now())) {
    if (t.now().time < w.at) continue;
    RankIndex rank;
    Verdict v = verdict_of(t.state(), live, w, rank);
    Slot slot = t.state().slots[rank.value];
    bool still_runs = w.kind != WatchKind::early_exit;
    return on_loss(t, live, slot, RankReport{}, v,
                   still_runs ? std::vector{rank} : std::vector<RankIndex>{});
  }
}

}  // namespace regrow::job
