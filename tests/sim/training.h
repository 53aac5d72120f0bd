// What really runs: the ranks' processes, their steps and their checkpoints. The engine sees none
// of this; it hears what agents report.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "supervisors/host_protocol.h"
#include "tests/driver/controller.h"
#include "tests/sim/plan.h"

namespace regrow::sim {

// One incarnation as its host has it.
struct Process {
  SpawnCommand command;
  HostName host;
  RankReport report;     // state, and how it ended
  bool alive = false;    // something of it is there
  bool dying = false;    // its leader has ended
  bool stopped = false;  // SIGSTOP
  Time unkillable_until;
  bool ready = false;     // joined its peers
  bool finished = false;  // did all its steps
  bool stop_requested = false;
  bool told = false;  // the controller has this report, durably
  Time told_at;       // last said
  int64_t step = -1;
  Time step_at;
  Generation member_of;            // whose team it is in; 0 = none
  Generation called;               // newest generation it was told of
  bool intact = false;             // its state is that of `step`
  std::optional<JoinReport> join;  // said and not answered
  const IncarnationKey& key() const { return command.key; }
};

class Training {
 public:
  Training(Loop& loop, Random& random) : loop_(loop), random_(random) {}

  void know(JobId job, const JobPlan& plan) { plans_[job] = &plan; }
  const JobPlan& plan(JobId job) const { return *plans_.at(job); }

  // Called by the host. `end` makes the host end the process.
  std::function<void(Process&, int32_t exit_code, int32_t signal, const std::string& error_line)>
      end;

  // A rank says that it is ready for a generation; called by the host's side of it.
  std::function<void(Process&)> joined;

  void started(Process& p);
  void regroup(Process& p, Generation g);
  void go(Process& p, const GoCommand& c);
  void ended(Process& p);   // its leader has ended, whatever the reason
  void forget(Process& p);  // its memory goes away
  std::vector<CheckpointFound> scan(JobId job, const HostName& host) const;

  // Truth for the checkers.
  bool complete(JobId job, int64_t step, const std::vector<HostName>& host_of_rank) const;
  int64_t newest_complete(JobId job) const;  // of shared storage
  Time last_step(JobId job) const;
  // What this rank said when it joined; null if it did not.
  const JoinReport* said(JobId job, Generation g, RankIndex rank) const;

 private:
  struct Team {  // the ranks of one generation
    std::map<uint32_t, Process*> ranks;
    int64_t step = 0;
    bool stepping = false;
    bool broken = false;
  };
  struct Checkpoint {
    std::map<uint32_t, std::set<HostName>> shards;  // where each was written
    std::set<HostName> marker;
  };
  using TeamId = std::pair<JobId, Generation>;

  void become_ready(Process& p);
  void begin(TeamId id, int64_t step);
  void leave(Process& p);
  void say_join(Process& p);
  void step(TeamId id);
  void save(TeamId id, const Team& team);
  void when_alive(Process& p, Duration d, std::function<void(Process&)> run);

  Loop& loop_;
  Random& random_;
  std::map<JobId, const JobPlan*> plans_;
  std::map<TeamId, Team> teams_;
  std::map<IncarnationKey, Process*> processes_;
  std::map<JobId, std::map<int64_t, Checkpoint>> checkpoints_;
  std::map<JobId, int> thefts_;
  std::map<JobId, Time> last_step_;
  std::map<std::tuple<JobId, Generation, RankIndex>, JoinReport> said_;
};

}  // namespace regrow::sim
