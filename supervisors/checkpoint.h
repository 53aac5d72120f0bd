// Which checkpoint a generation resumes from. Pure. Invariant: C-1.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "supervisors/host_protocol.h"

namespace regrow {

struct ResumePoint {
  int64_t step = -1;  // -1 = from the beginning
  std::string path;
  std::vector<std::string> rejected;  // "step_300 rejected: shards 5/8, marker missing"
};

// The newest step that is complete by the rule. `reports` holds what each host saw. With shared
// storage any one host's word counts. With host-local storage a step is complete only if every rank
// finds its own shard on the host where it is going to run (`host_of_rank`), and some host has the
// marker; without one shard per rank every host must have all of it.
ResumePoint choose_resume_point(const CheckpointRule& rule,
                                const std::vector<HostName>& host_of_rank,
                                const std::map<HostName, PrepareReport>& reports);

}  // namespace regrow
