// Pieces of the job's state machine, shared by its source files only.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "supervisors/blame.h"
#include "supervisors/machines.h"
#include "supervisors/placement.h"

namespace regrow::job {

using T = Turn<JobState>;

inline bool is_active(const Slot& slot) {
  return slot.process == Process::spawning || slot.process == Process::running ||
         slot.process == Process::rejoining || slot.process == Process::stopping;
}
inline bool is_terminal(Phase p) {
  return p == Phase::completed || p == Phase::failed || p == Phase::cancelled;
}
// Of lists in rising order, as all lists of ranks in a job's plans are.
inline bool contains(const std::vector<RankIndex>& ranks, RankIndex rank) {
  return std::binary_search(ranks.begin(), ranks.end(), rank);
}
inline GroupIndex group_of(const JobState& s, RankIndex rank) {
  uint32_t per_group = s.spec.groups == 0 ? s.spec.ranks : s.spec.ranks / s.spec.groups;
  return {per_group == 0 ? 0 : rank.value / per_group};
}
const Incident* open_incident(const JobState& s);
// Where the rendezvous is.
inline const HostName& meeting_host(const JobState& s) { return s.slots.front().host; }
std::vector<RankIndex> active_ranks(const JobState& s);
std::vector<RankIndex> all_ranks(const JobState& s);

// Ends the job, or the ranks that remain, once the recipe's success rule is met.
void finish_if_done(T& t);

// "12.3 s"
std::string seconds_text(Duration d);
std::string rank_text(const JobState& s, RankIndex rank);  // "rank 3 (h2/gpu0)"

// --- job_recovery.cpp ----------------------------------------------------------------------------

// A slot's process ended or is given up, and nobody asked for that. `useless`: these still run, and
// must not any more; KILL, for nothing else may help.
void on_loss(T& t, JobLive& live, const Slot& slot, const RankReport& report,
             const Verdict& verdict, const std::vector<RankIndex>& useless,
             const std::vector<HostName>& avoid = {});
// Starts the lost ranks anew, or all if the others are of no use without them; hosts and devices
// are kept where they still work.
void plan_recovery(T& t, uint32_t incident, const std::vector<RankIndex>& useless,
                   const std::string& why, const std::vector<HostName>& avoid);
// A device that a slot holds cannot be used any more.
void on_device_trouble(T& t, JobLive& live, const in::DeviceTrouble& m);
// These hosts were asked to prepare a generation and gave no answer in time.
void on_silent_hosts(T& t, JobLive& live, const std::vector<HostName>& hosts);
// Deadlines of running ranks: hung, stuck in start-up, peers that never finish.
void check_progress(T& t, JobLive& live);
// When the next of these may come.
std::optional<Time> progress_deadline(const JobState& s, const JobLive& live, Now now);

// --- job_rejoin.cpp ------------------------------------------------------------------------------

// The plan under way keeps the survivors' processes.
inline bool keeps_survivors(const JobState& s) {
  return s.rung == Rung::respawn || s.rung == Rung::other_device;
}
// Keep their process if the lost ranks are replaced; with the `useless` those that run and must
// not.
std::vector<RankIndex> survivors(const JobState& s, const std::vector<RankIndex>& useless);
// Why nothing less than a restart of all ranks helps; empty if the survivors can go on.
std::string why_all_restart(const JobState& s, const std::vector<RankIndex>& useless);
void on_joined(T& t, JobLive& live, const in::Joined& m);
// True if every rank had joined.
bool leave_joining(T& t, JobLive& live);
std::optional<Time> joining_deadline(const JobState& s, const JobLive& live, Now now);
// Ranks that have not joined in time are lost.
void check_joining(T& t, JobLive& live);
void want_regroup(const JobState& s, std::vector<Action>& actions);

// --- job_resume.cpp ------------------------------------------------------------------------------

// Goes on where the journal ends, whatever its last event was.
void take_up(T& t, JobLive& live);
// This slot has ended, and what that means for the job is not decided: the crash came in between.
bool end_is_unaccounted(const JobState& s, const Slot& slot);

// --- job_stages.cpp ------------------------------------------------------------------------------

// First start, or start after an operator's resume.
void plan_start(T& t, const std::string& reason);
// Ends every active rank; what follows is decided already.
void stop_all(T& t, bool force, const std::string& reason);
// As stop_all; what follows depends on `end` (queued = park it).
void plan_stop(T& t, Phase end, bool force, const std::string& reason);
// Carries the present plan as far as it can go now.
void advance(T& t, JobLive& live);
// When the present stage needs a look.
std::optional<Time> stage_deadline(const JobState& s, const JobLive& live, Now now);
// When hosts or survivors that gave no answer are asked again.
std::optional<Time> ask_again_at(const JobState& s, const JobLive& live, Now now);
// How the ranks of the present plan are to be stopped.
StopCommand stop_order(const JobState& s);
// What a generation in stage spawning starts, with each rank's host.
std::vector<SpawnCommand> spawn_commands(const JobState& s, GroupIndex group);

// The words for a job in line, from the cluster's own about what is missing.
inline std::string waiting_text(const std::string& missing) {
  return missing.starts_with(kNoHostHas) ? missing : "waits for devices: " + missing;
}
// The rendezvous port was taken by a stranger.
inline bool is_bind_failure(const Incident& i) {
  return i.failure_class == FailureClass::start_up && !i.charged;
}
// Says nothing about whether the job gets anywhere.
inline bool is_nobodys_fault(const Incident& i) {
  return is_bind_failure(i) || i.failure_class == FailureClass::preempted;
}

inline constexpr Duration kPrepareTimeout = Duration::seconds(90);
inline constexpr Duration kPrepareAgainAfter =
    Duration::seconds(15);  // an agent may have been restarted
inline constexpr Duration kRegroupAgainAfter = Duration::seconds(2);
inline constexpr Duration kKillPatience = Duration::seconds(60);  // KILL to giving a process up
inline constexpr uint32_t kBindFailuresFree = 10;
inline constexpr Duration kSampleEvery = Duration::seconds(30);

}  // namespace regrow::job
