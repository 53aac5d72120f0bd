// What supervisors know but do not journal: it is told again, or measured again, after a restart.
// Held by one EntityHost beside the entity's state.
#pragma once

#include <limits>
#include <map>
#include <set>
#include <variant>
#include <vector>

#include "supervisors/inputs.h"

namespace regrow {

struct ClusterLive {
  std::map<JobId, Time> told_at;  // when a waiting job was last told what is missing
  std::set<JobId> outdated;       // by now something else is missing than these were told
};

struct HostLive {
  SessionId session;  // the agent's present connection; 0 = none
  Time last_heard;
  Time asked_at;  // the agent was last told what to kill
  // What the agent has and this host's journal does not: said again should a rank claim it after
  // all.
  std::vector<RankReport> unclaimed;
};

struct RankProgress {
  Incarnation incarnation;
  ProgressReport report;
  Time step_advanced_at;  // controller's clock
  Time output_advanced_at;
  Time heard_at;  // newest report, whether it moved or not
};

struct DeviceLive {
  SessionId heard_in;  // the connection over which the agent last reported a change
};

struct RankLive {
  SessionId heard_in;  // the connection over which the agent last reported this slot
  Time asked_at;       // the present order was last given to the agent again
};

struct RankJoin {
  Incarnation incarnation;
  Generation generation;
  int64_t step = -1;
  bool intact = false;
};

struct JobLive {
  std::map<RankIndex, RankJoin> joins;  // newest of each rank
  std::map<HostName, Time> back_at;     // when a host that was out of reach was back
  std::map<RankIndex, RankProgress> progress;
  std::map<HostName, PrepareReport> prepared;              // of the present attempt
  int64_t max_step = -1;                                   // in this generation
  double loss = std::numeric_limits<double>::quiet_NaN();  // NaN = none was seen
  Time advanced_at;                                        // newest progress of any rank
  Time sampled_at;
  Time asked_at;  // hosts were last asked to prepare, or survivors to join, again
};

struct NoLive {};

using AnyLive = std::variant<NoLive, HostLive, JobLive, RankLive, DeviceLive, ClusterLive>;

}  // namespace regrow
