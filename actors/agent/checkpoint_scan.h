// Which checkpoints on this disk are whole, by the recipe's rule. Reads only; deletes nothing.
//
// Completeness is a property of the content (every shard of that world size, none empty, sizes as
// the manifest says, marker there), never of a name, a time stamp or a `latest` file. May block on
// a slow file system: call it off the event loop.
//
//   auto found = scan_checkpoints(spec.checkpoint, spec.ranks, error);
//   // found[0]: {step 300, not complete, "shards 5/8, marker missing"}
//   // found[1]: {step 200, complete}
#pragma once

#include <cstdint>
#include <vector>

#include "supervisors/host_protocol.h"

namespace regrow {

inline constexpr size_t kMostCheckpointsReported = 16;

// Newest step first, at most kMostCheckpointsReported; but the newest complete one is always among
// them. Empty if the job keeps no checkpoints or the directory does not exist (yet). An unreadable
// directory is an error text in `error`.
std::vector<CheckpointFound> scan_checkpoints(const CheckpointRule& rule, uint32_t world_size,
                                              std::string& error);

// The step that a directory entry's name stands for, by a pattern such as "step_{step}"; -1 if
// none.
int64_t match_step(const std::string& pattern, const std::string& name);

}  // namespace regrow
