// A job: what was asked for, how far it is, and who must do what next.
// Invariants, C-1, B-1, O-1, O-2.
#include <algorithm>

#include "supervisors/job_internal.h"

namespace regrow {
namespace job {

const Incident* open_incident(const JobState& s) {
  return !s.incidents.empty() && s.incidents.back().open ? &s.incidents.back() : nullptr;
}

std::vector<RankIndex> active_ranks(const JobState& s) {
  std::vector<RankIndex> ranks;
  for (const Slot& slot : s.slots) {
    if (is_active(slot)) ranks.push_back(slot.rank);
  }
  return ranks;
}

std::vector<RankIndex> all_ranks(const JobState& s) {
  std::vector<RankIndex> ranks;
  for (const Slot& slot : s.slots) ranks.push_back(slot.rank);
  return ranks;
}

std::string seconds_text(Duration d) {
  int64_t tenths = d.us / 100000;
  return std::to_string(tenths / 10) + "." + std::to_string(tenths % 10) + " s";
}

std::string rank_text(const JobState& s, RankIndex rank) {
  std::string text = "rank " + std::to_string(rank.value);
  if (rank.value >= s.slots.size() || !s.slots[rank.value].placed) return text;
  const Slot& slot = s.slots[rank.value];
  text += " (" + slot.host.value;
  for (size_t i = 0; i < slot.devices.size(); ++i)
    text += (i == 0 ? "/" : "+") + slot.devices[i].value;
  return text + ")";
}

namespace {

void on_create(T& t, JobLive& live, const in::CreateJob& m) {
  if (t.state().spec.ranks != 0 && !t.state().slots.empty()) return t.ignore("already created");
  t.record(ev::JobCreated{m.spec, m.submitted_by}, "submitted by " + m.submitted_by);
  plan_start(t, "first start");
  advance(t, live);
}

void on_slot_running(T& t, JobLive& live, const Slot& slot, const in::RankStatus& m) {
  if (slot.process != Process::spawning) return t.ignore("known");
  t.record(ev::SlotRunning{m.rank, m.incarnation}, rank_text(t.state(), m.rank) + " runs");
  advance(t, live);
}

Verdict lost_verdict(const std::string& why) {
  return {FailureClass::infrastructure, "host lost", false, false, "lost: " + why};
}

// Did somebody ask for this end? Then it is no loss.
bool was_asked_for(const JobState& s, const in::RankStatus& m) {
  if (s.stage != Stage::stopping || !contains(s.stop, m.rank)) return false;
  bool stopped = m.report.ended_by_us || m.report.state == ProcessState::never_started;
  return stopped || m.process == Process::lost || s.end_phase != Phase::queued ||
         s.desired != Desired::run;
}

void record_slot_ended(T& t, const in::RankStatus& m) {
  const RankReport& r = m.report;
  ev::SlotEnded ended;
  ended.rank = m.rank;
  ended.incarnation = m.incarnation;
  bool given_up = m.process == Process::lost;
  // Where something of it may still run nothing else is started; its device is given back as dirty
  // (D-2).
  ended.lost = given_up || left_something(r);
  ended.ended_by_us = r.ended_by_us;
  ended.exit_code = r.exit_code;
  ended.signal = r.signal;
  ended.succeeded = !given_up && r.state == ProcessState::exited && r.exit_code == 0 &&
                    r.signal == 0 && !r.ended_by_us;
  if (given_up) {
    ended.message = m.why;
  } else if (r.ended_by_us) {
    ended.message =
        r.forced && !t.state().force_stop ? "did not stop in time: killed" : "stopped on request";
  } else {
    ended.message = ended.succeeded ? "exited with 0" : judge(r).text;
  }
  if (left_something(r)) ended.message += "; something that it started could not be ended";
  std::string reason = rank_text(t.state(), m.rank) + ": " + ended.message;
  t.record(std::move(ended), std::move(reason));
}

void on_slot_ended(T& t, JobLive& live, const in::RankStatus& m) {
  const JobState& s = t.state();
  bool asked_for = was_asked_for(s, m);
  record_slot_ended(t, m);
  Slot slot = s.slots[m.rank.value];
  if (asked_for || is_terminal(s.phase)) {
    advance(t, live);
  } else if (slot.succeeded) {
    // One that finishes by itself while the others are being stopped starts again with them.
    if (s.stage != Stage::stopping) finish_if_done(t);
    const Incident* open = open_incident(s);
    if (open != nullptr && keeps_survivors(s) && !s.start.empty() && !is_terminal(s.phase))
      plan_recovery(t, open->number, {},
                    rank_text(s, m.rank) + " exited with 0 while its peers wait for a new one", {});
    advance(t, live);
  } else {
    on_loss(t, live, slot, m.report,
            m.process == Process::lost ? lost_verdict(m.why) : judge(m.report), {});
  }
}

void on_rank_status(T& t, JobLive& live, const in::RankStatus& m) {
  const JobState& s = t.state();
  if (m.rank.value >= s.slots.size()) return t.ignore("no such rank");
  const Slot& slot = s.slots[m.rank.value];
  if (m.incarnation != slot.incarnation) return t.ignore("not the newest incarnation of the slot");
  bool over = m.process == Process::exited || m.process == Process::lost;
  if (over && end_is_unaccounted(s, slot)) {
    Slot ended = slot;
    return on_loss(t, live, ended, m.report,
                   m.process == Process::lost ? lost_verdict(m.why) : judge(m.report), {});
  }
  if (!is_active(slot)) return t.ignore("its end is known");
  switch (m.process) {
    case Process::running:
      return on_slot_running(t, live, slot, m);
    case Process::exited:
    case Process::lost:
      return on_slot_ended(t, live, m);
    default:
      return t.ignore("nothing new");
  }
}

void on_desired(T& t, JobLive& live, const in::SetDesired& m) {
  const JobState& s = t.state();
  std::string name = "job/" + std::to_string(s.job.value);
  if (s.slots.empty()) return t.reply(false, "no such job: " + name);
  if (is_terminal(s.phase) || s.end_phase == Phase::cancelled) {
    bool same = m.desired == Desired::cancel &&
                (s.phase == Phase::cancelled || s.end_phase == Phase::cancelled);
    return t.reply(same, same ? name + " is cancelled already"
                              : name + " has ended (" + std::string(to_string(s.phase)) + ")");
  }
  if (m.desired == s.desired)
    return t.reply(true,
                   name + ": nothing to do, " + std::string(to_string(m.desired)) + " already");
  if (m.desired == Desired::run && s.end_phase != Phase::queued)
    return t.reply(false, name + " is ending (" + std::string(to_string(s.end_phase)) + ")");
  t.record(ev::DesiredChanged{m.desired}, m.reason);
  switch (m.desired) {
    case Desired::cancel:
      plan_stop(t, Phase::cancelled, false, "cancelled: " + m.reason);
      break;
    case Desired::pause:
    case Desired::hold:
      if (!s.parked)
        plan_stop(t, Phase::queued, false, std::string(to_string(m.desired)) + ": " + m.reason);
      break;
    case Desired::run:
      break;
  }
  advance(t, live);
  t.reply(true, name + ": " + std::string(to_string(m.desired)));
}

void on_granted(T& t, JobLive& live, const in::Granted& m) {
  const JobState& s = t.state();
  if (m.grant != s.grant || s.stage != Stage::placing)
    return t.ignore("not the grant that is waited for");
  t.record(ev::SlotsPlaced{m.grant, m.placements},
           "devices granted for " + count_text(m.placements.size(), "rank"));
  advance(t, live);
}

void on_delayed(T& t, const in::GrantDelayed& m) {
  const JobState& s = t.state();
  if (m.grant != s.grant || s.stage != Stage::placing || s.phase_reason == waiting_text(m.reason))
    return t.ignore("nothing new");
  t.record(ev::WaitingNoted{m.grant}, m.reason);
}

void on_freed(T& t, JobLive& live, const in::DevicesFreed& m) {
  if (!t.state().holds_lease || m.grant < t.state().grant) return t.ignore("known");
  t.record(ev::SlotsReleased{m.grant}, "devices given back");
  advance(t, live);
}

void on_host_link(T& t, JobLive& live, const in::HostLinkNews& m) {
  if (m.link == HostLink::up) live.back_at[m.host] = t.now().time;
  for (const HostNote& note : t.state().hosts) {
    if (note.host == m.host && note.link == m.link) return t.ignore("known");
  }
  bool noted = std::any_of(t.state().hosts.begin(), t.state().hosts.end(),
                           [&](const HostNote& n) { return n.host == m.host; });
  if (!noted && m.link == HostLink::up) return t.ignore("nothing new");
  t.record(ev::HostLinkNoted{m.host, m.link, m.since},
           "host " + m.host.value + " is " + std::string(to_string(m.link)));
}

void on_prepared(T& t, JobLive& live, const in::Prepared& m) {
  const JobState& s = t.state();
  if (m.report.generation != s.generation || m.report.attempt != s.prepare_attempt)
    return t.ignore("of an older attempt");
  // It answered, so it is in reach; news of that may have come when no rank of this job was there.
  bool noted = std::any_of(s.hosts.begin(), s.hosts.end(),
                           [&](const HostNote& n) { return n.host == m.host; });
  if (noted)
    t.record(ev::HostLinkNoted{m.host, HostLink::up, t.now().time},
             "host " + m.host.value + " answers");
  live.prepared[m.host] = m.report;
  advance(t, live);
}

void on_group_status(T& t, JobLive& live, const in::GroupStatus& m) {
  const JobState& s = t.state();
  if (m.stopped && m.generation == s.generation && s.stage == Stage::stopping) {
    // Nothing of the group is active. What seems so here was never started, or its end is on the
    // way.
    for (RankIndex r : s.stop) {
      if (group_of(s, r) == m.group && is_active(s.slots[r.value]))
        t.send(EntityId::rank(s.job, r), in::RankStop{s.slots[r.value].incarnation, stop_order(s)});
    }
  }
  advance(t, live);
}

struct GiveUp {
  Time at;
  bool host = false;  // because its host is out of reach; otherwise because it does not die
};

std::string reason_of(const JobState& s, const Slot& slot, const GiveUp& g) {
  if (g.host)
    return "host " + slot.host.value + " is out of reach for longer than " +
           seconds_text(s.spec.timeouts.host);
  Duration patience{s.spec.timeouts.stop_grace.us + kKillPatience.us};
  return "it has not ended " + seconds_text(patience) + " after the order to stop";
}

// When a slot is given up although nobody knows that its process has ended: its host is out of
// reach, or it does not die. Nothing while neither is the case.
std::optional<GiveUp> give_up_at(const JobState& s, const JobLive& live, const Slot& slot,
                                 Now now) {
  if (!is_active(slot)) return std::nullopt;
  std::optional<GiveUp> first;
  if (s.stage == Stage::stopping && contains(s.stop, slot.rank)) {
    Duration patience{s.spec.timeouts.stop_grace.us + kKillPatience.us};
    first = GiveUp{now.deadline(s.stage_since, patience), false};
  }
  for (const HostNote& note : s.hosts) {
    if (note.host != slot.host || note.link == HostLink::up) continue;
    if (note.link == HostLink::lost) return GiveUp{now.time, true};
    bool ending = s.end_phase != Phase::queued || s.desired != Desired::run;
    Time base = std::max(note.since, now.floor);
    Time since = base;
    // A step of the job proves all its ranks live, up to a limit.
    if (!ending && live.advanced_at > since)
      since = std::min(live.advanced_at, base + s.spec.timeouts.max_unreachable);
    // `since` is when the link became suspect; that much silence has passed already.
    Time at =
        since + std::max(Duration{s.spec.timeouts.host.us - kHostSuspectAfter.us}, Duration{0});
    if (!first || at < first->at) first = GiveUp{at, true};
  }
  return first;
}

// Gives up all slots whose time has come; they are one loss.
bool give_up_slots(T& t, JobLive& live) {
  std::optional<in::RankStatus> loss;
  bool any = false;
  auto slots = t.state().slots;
  for (const Slot& slot : slots) {
    auto give_up = give_up_at(t.state(), live, slot, t.now());
    if (!give_up || t.now().time < give_up->at) continue;
    any = true;
    in::RankStatus status{slot.rank,
                          slot.incarnation,
                          t.state().generation,
                          Process::lost,
                          {},
                          reason_of(t.state(), slot, *give_up)};
    if (!was_asked_for(t.state(), status) && !loss) loss = status;
    record_slot_ended(t, status);
  }
  if (loss) {
    Slot slot = t.state().slots[loss->rank.value];
    on_loss(t, live, slot, loss->report, lost_verdict(loss->why), {});
  } else if (any) {
    advance(t, live);
  }
  return any;
}

ev::ProgressSampled progress_sample(const JobLive& live) {
  ev::ProgressSampled sample{live.max_step, live.loss, 0, {}};
  std::vector<double> seconds;
  double worst = 0;
  for (const auto& [rank, progress] : live.progress) {
    if (progress.report.step_seconds <= 0) continue;
    seconds.push_back(progress.report.step_seconds);
    if (progress.report.step_seconds <= worst) continue;
    worst = progress.report.step_seconds;
    sample.slowest_rank = rank;
  }
  if (seconds.empty()) return sample;
  std::nth_element(seconds.begin(), seconds.begin() + seconds.size() / 2, seconds.end());
  sample.median_step_seconds = seconds[seconds.size() / 2];
  return sample;
}

void on_progress(T& t, JobLive& live, const in::Progress& m) {
  const ProgressReport& p = m.report;
  const JobState& s = t.state();
  if (p.key.rank.value >= s.slots.size() ||
      s.slots[p.key.rank.value].incarnation != p.key.incarnation)
    return t.ignore("not of a present incarnation");
  RankProgress& known = live.progress[p.key.rank];
  if (known.incarnation != p.key.incarnation)
    known = RankProgress{p.key.incarnation, {}, {}, {}, {}};
  Time now = t.now().time;
  // After a silence old reports may come first: what counts as a stall is measured anew.
  if (known.heard_at.us != 0 && now - known.heard_at > kHostSuspectAfter) {
    if (known.step_advanced_at.us != 0) known.step_advanced_at = now;
    if (known.output_advanced_at.us != 0) known.output_advanced_at = now;
  }
  known.heard_at = now;
  if (p.step > known.report.step) {
    known.step_advanced_at = now;
    live.advanced_at = now;
  }
  if (p.output_us > known.report.output_us) {
    known.output_advanced_at = now;
    if (s.spec.progress_pattern.empty()) live.advanced_at = now;
  }
  known.report = p;
  live.max_step = std::max(live.max_step, p.step);
  if (p.step >= 0 && !std::isnan(p.loss)) live.loss = p.loss;
  if (live.max_step >= 0 && s.phase == Phase::running &&
      now - std::max(live.sampled_at, s.running_since) >= kSampleEvery) {
    live.sampled_at = now;
    t.record(progress_sample(live), "sampled");
  }
}

// Past incidents are forgotten only by a job that came further than they did.
bool came_further(const JobState& s, const JobLive& live) {
  if (live.max_step >= 0) return live.max_step > s.best_step;
  bool knows_of_none = s.spec.checkpoint.directory.empty() || s.without_progress == 0;
  return knows_of_none && live.advanced_at > s.running_since;
}

bool has_counting(const JobState& s) {
  return std::any_of(s.incidents.begin(), s.incidents.end(),
                     [](const Incident& i) { return i.counts; });
}

void on_tick(T& t, JobLive& live) {
  const JobState& s = t.state();
  bool acted = give_up_slots(t, live);
  size_t before = t.decision().events.size();
  if (s.stage == Stage::spawning || (s.stage == Stage::none && s.phase == Phase::running))
    check_progress(t, live);
  if (s.stage == Stage::joining) check_joining(t, live);
  if (auto again = ask_again_at(s, live, t.now()); again && t.now().time >= *again) {
    live.asked_at = t.now().time;
    t.decision().reissue = true;
  }
  advance(t, live);
  if (s.phase == Phase::running && s.stage == Stage::none && came_further(s, live)) {
    if (has_counting(s) && t.now().time >= t.now().deadline(s.running_since, s.spec.healthy_for))
      t.record(ev::BudgetRefilled{static_cast<uint32_t>(s.incidents.size())},
               "ran with progress for " + seconds_text(s.spec.healthy_for) +
                   ": past incidents no longer count");
  }
  if (!acted && t.decision().events.size() == before) t.ignore("no deadline has come");
}

}  // namespace

void finish_if_done(T& t) {
  const JobState& s = t.state();
  if (s.spec.success == SuccessRule::rank_zero && s.slots[0].succeeded)
    return plan_stop(t, Phase::completed, false, "rank 0 exited with 0, which ends this job");
  bool all = std::all_of(s.slots.begin(), s.slots.end(), [](const Slot& x) { return x.succeeded; });
  if (all) t.record(ev::JobEnded{Phase::completed}, "every rank exited with 0");
}

}  // namespace job

void decide(Turn<JobState>& t, JobLive& live) {
  using namespace job;
  bool create = std::holds_alternative<in::CreateJob>(t.envelope().input) ||
                std::holds_alternative<in::SetDesired>(t.envelope().input);
  if (!create && t.state().slots.empty()) return t.ignore("the job does not exist yet");
  std::visit(Overloaded{
                 [&](const in::CreateJob& m) { on_create(t, live, m); },
                 [&](const in::SetDesired& m) { on_desired(t, live, m); },
                 [&](const in::Granted& m) { on_granted(t, live, m); },
                 [&](const in::GrantDelayed& m) { on_delayed(t, m); },
                 [&](const in::DevicesFreed& m) { on_freed(t, live, m); },
                 [&](const in::RankStatus& m) { on_rank_status(t, live, m); },
                 [&](const in::GroupStatus& m) { on_group_status(t, live, m); },
                 [&](const in::Prepared& m) { on_prepared(t, live, m); },
                 [&](const in::Progress& m) { on_progress(t, live, m); },
                 [&](const in::Joined& m) { on_joined(t, live, m); },
                 [&](const in::DeviceTrouble& m) { on_device_trouble(t, live, m); },
                 [&](const in::HostLinkNews& m) { on_host_link(t, live, m); },
                 [&](const in::Tick&) { on_tick(t, live); },
                 [&](const in::Resumed&) {
                   live.advanced_at = {};
                   take_up(t, live);
                 },
                 [&](const auto& m) { t.ignore(std::string(m.kTypeName) + " is not for a job"); },
             },
             t.envelope().input);
}

std::optional<Time> deadline(const JobState& s, const JobLive& live, Now now) {
  if (job::is_terminal(s.phase) || s.parked) return std::nullopt;
  std::optional<Time> first;
  auto consider = [&](std::optional<Time> at) {
    if (at && (!first || *at < *first)) first = at;
  };
  for (const Slot& slot : s.slots) {
    if (auto give_up = job::give_up_at(s, live, slot, now)) consider(give_up->at);
  }
  consider(job::stage_deadline(s, live, now));
  if (s.stage == Stage::spawning) consider(job::progress_deadline(s, live, now));
  if (s.phase == Phase::running && s.stage == Stage::none) {
    consider(job::progress_deadline(s, live, now));
    Time refill = now.deadline(s.running_since, s.spec.healthy_for);
    // Without progress yet it is looked at again later, not in a busy loop.
    if (job::has_counting(s))
      consider(
          std::max(refill, job::came_further(s, live) ? refill : now.time + kHostUnreachableAfter));
  }
  return first;
}

}  // namespace regrow
