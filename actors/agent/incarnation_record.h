// The highest incarnation this host was ever asked about, per slot (F-1). Survives the agent.
//
// An append-only text file "JOB RANK INCARNATION\n", rewritten at load. Not synced: after a crash
// of the machine its boot id has changed, which voids every incarnation anyway. Owned by the rank
// runner.
#pragma once

#include <map>
#include <string>
#include <utility>

#include "actors/agent/files.h"
#include "supervisors/types.h"

namespace regrow {

class IncarnationRecord {
 public:
  // Loads `path`, or begins it.
  explicit IncarnationRecord(std::string path);

  Incarnation highest(JobId job, RankIndex rank) const;
  // Remembers `incarnation` if it is higher.
  void raise(JobId job, RankIndex rank, Incarnation incarnation);

 private:
  std::string path_;
  Fd file_;
  std::map<std::pair<JobId, RankIndex>, Incarnation> highest_;
};

}  // namespace regrow
