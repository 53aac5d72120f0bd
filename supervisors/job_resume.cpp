// A job after a crash. The journal may have been cut after any event, also between two events of
// one decision: what the missing ones would have said is found out from the state and decided
// again.
#include <algorithm>

#include "supervisors/job_internal.h"

namespace regrow::job {
namespace {

// A slot that cannot stay where it is, and no plan that moves it.
const Slot* stranded(const JobState& s) {
  if (s.stage == Stage::stopping || s.parked || s.desired != Desired::run) return nullptr;
  for (const Slot& slot : s.slots) {
    bool in_line = s.stage == Stage::placing && contains(s.wanted, slot.rank);
    if (slot.replace && !in_line) return &slot;
  }
  return nullptr;
}

}  // namespace

bool end_is_unaccounted(const JobState& s, const Slot& slot) {
  bool over = slot.process == Process::exited || slot.process == Process::lost;
  bool under_way =
      s.stage == Stage::spawning || (s.stage == Stage::none && s.phase == Phase::running);
  return over && !slot.succeeded && under_way;
}

void take_up(T& t, JobLive& live) {
  const JobState& s = t.state();
  if (is_terminal(s.phase)) return;
  bool stopping = s.stage == Stage::stopping;
  const Incident* open = open_incident(s);
  if (s.desired == Desired::cancel && s.end_phase != Phase::cancelled) {
    plan_stop(t, Phase::cancelled, false, "cancelled: " + s.desired_reason);
  } else if (s.end_phase != Phase::queued && !stopping) {
    plan_stop(t, s.end_phase, false, s.phase_reason);
  } else if (s.desired != Desired::run && !s.parked && !stopping) {
    plan_stop(t, Phase::queued, false, std::string(to_string(s.desired)) + ": " + s.desired_reason);
  } else if (s.generation.value == 0 && !s.parked && s.desired == Desired::run) {
    plan_start(t, "first start");
  } else if (open != nullptr && !open->judged && !stopping) {
    const Slot& culprit = s.slots[open->rank.value];
    bool still_runs = is_active(culprit) && culprit.incarnation == open->incarnation;
    plan_recovery(t, open->number, still_runs ? std::vector{open->rank} : std::vector<RankIndex>{},
                  open->cause, {});
  } else if (const Slot* slot = stranded(s)) {
    Slot hit = *slot;
    Verdict v{FailureClass::infrastructure, "device lost", false, false,
              "cannot stay on its device or host"};
    on_loss(t, live, hit, RankReport{}, v, {hit.rank});
  } else if (s.stage == Stage::none && s.phase == Phase::running) {
    finish_if_done(t);
  }
  advance(t, live);
}

}  // namespace regrow::job
