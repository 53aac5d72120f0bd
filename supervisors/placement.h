// Which devices a gang of ranks gets: a pure function of the cluster's view.
//
// Ranks are packed onto as few hosts as possible (hosts with the most free room first, then by
// name), in rank order. A device with a lease, dirty ones included, is never given out (D-2), but
// for what the requested ranks themselves held and have left. Hosts in `avoid_hosts` are used only
// when nothing else can satisfy the request, and the reason says so.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "supervisors/state.h"

namespace regrow {

struct PlacementRequest {
  JobId job;
  DeviceRequest devices;
  uint32_t ranks_per_host = 0;
  std::vector<RankIndex> ranks;
  std::vector<HostName> avoid_hosts;
  std::vector<RankIndex> dirty;  // of `ranks`: may still have a process where they were
};

struct PlacementResult {
  std::vector<Placement> placements;  // empty = not possible now
  std::string reason;  // what was chosen and why, or what is missing and who holds it
};

// How a reason begins that no free device would change: "no host has 16 gpu devices, as each rank
// needs; ...".
inline constexpr std::string_view kNoHostHas = "no host has ";

// Of one job on one host, where no device and no `ranks_per_host` limits it: a slip of the pen must
// not take a host down.
inline constexpr uint32_t kMostRanksWithoutDevices = 1024;

PlacementResult place(const ClusterState& cluster, const PlacementRequest& request);

}  // namespace regrow
