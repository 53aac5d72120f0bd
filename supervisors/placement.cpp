#include "supervisors/placement.h"

#include <algorithm>
#include <map>
#include <set>

namespace regrow {
namespace {

struct Room {
  const HostEntry* host;
  std::vector<DeviceName> free;
  uint32_t slots = 0;  // ranks that fit
};

bool contains(const std::vector<RankIndex>& ranks, RankIndex rank) {
  return std::find(ranks.begin(), ranks.end(), rank) != ranks.end();
}

bool is_kind(const DeviceView& device, const DeviceRequest& want) {
  return want.kind == "any" || device.kind == want.kind;
}

bool fits(const DeviceView& device, const DeviceRequest& want) {
  return is_kind(device, want) && device.memory_bytes >= want.memory_bytes;
}

// "h2" before "h10".
bool natural_less(const std::string& a, const std::string& b) {
  if (a.size() != b.size() && !a.empty() && !b.empty()) {
    size_t i = 0;
    while (i < a.size() && i < b.size() && a[i] == b[i] &&
           !isdigit(static_cast<unsigned char>(a[i])))
      ++i;
    bool digits = std::all_of(a.begin() + i, a.end(), ::isdigit) &&
                  std::all_of(b.begin() + i, b.end(), ::isdigit);
    if (digits) return a.size() < b.size();
  }
  return a < b;
}

std::vector<Room> find_room(const ClusterState& cluster, const PlacementRequest& request,
                            bool avoid) {
  std::map<std::pair<std::string, std::string>, bool> leased;
  std::map<std::string, uint32_t> ranks_here;  // of this job, not being replaced
  for (const Lease& lease : cluster.leases) {
    bool mine = lease.job == request.job && !lease.dirty;
    bool moving = mine && contains(request.ranks, lease.rank);
    if (mine && !moving) ++ranks_here[lease.host.value];
    if (moving && !contains(request.dirty, lease.rank))
      continue;  // its process has ended: free for this request
    for (const auto& device : lease.devices) leased[{lease.host.value, device.value}] = true;
  }
  std::vector<Room> rooms;
  for (const HostEntry& host : cluster.hosts) {
    if (!host.usable) continue;
    if (avoid && std::find(request.avoid_hosts.begin(), request.avoid_hosts.end(), host.host) !=
                     request.avoid_hosts.end())
      continue;
    Room room{&host, {}, 0};
    for (const DeviceView& device : host.devices) {
      if (device.usable && fits(device, request.devices) &&
          !leased.count({host.host.value, device.name.value}))
        room.free.push_back(device.name);
    }
    uint32_t limit = request.ranks_per_host != 0  ? request.ranks_per_host
                     : request.devices.count == 0 ? kMostRanksWithoutDevices
                                                  : UINT32_MAX;
    uint32_t used = ranks_here[host.host.value];
    uint32_t cap = limit > used ? limit - used : 0;
    uint32_t by_devices = request.devices.count == 0
                              ? static_cast<uint32_t>(request.ranks.size())
                              : static_cast<uint32_t>(room.free.size()) / request.devices.count;
    room.slots = std::min(cap, by_devices);
    if (room.slots > 0) rooms.push_back(std::move(room));
  }
  std::stable_sort(rooms.begin(), rooms.end(), [](const Room& a, const Room& b) {
    if (a.slots != b.slots) return a.slots > b.slots;
    return natural_less(a.host->host.value, b.host->host.value);
  });
  return rooms;
}

std::vector<Placement> fill(const std::vector<Room>& rooms, const PlacementRequest& request) {
  std::vector<Placement> placements;
  std::vector<RankIndex> ranks = request.ranks;
  std::sort(ranks.begin(), ranks.end());
  size_t next_rank = 0;
  for (const Room& room : rooms) {
    size_t device = 0;
    for (uint32_t i = 0; i < room.slots && next_rank < ranks.size(); ++i) {
      Placement p{ranks[next_rank++], room.host->host, {}};
      for (uint32_t d = 0; d < request.devices.count; ++d) p.devices.push_back(room.free[device++]);
      placements.push_back(std::move(p));
    }
  }
  if (next_rank < ranks.size()) placements.clear();
  return placements;
}

std::string memory_text(uint64_t bytes) {
  constexpr uint64_t kMiB = 1ull << 20, kGiB = 1ull << 30;
  if (bytes >= kGiB && bytes % kGiB == 0) return std::to_string(bytes / kGiB) + " GiB";
  if (bytes >= kMiB && bytes % kMiB == 0) return std::to_string(bytes / kMiB) + " MiB";
  return count_text(bytes, "byte");
}

// What the hosts have instead of the kind that is wanted: "8 sim devices, 2 cpu devices".
std::string kinds_there_are(const ClusterState& cluster) {
  std::map<std::string, uint64_t> kinds;
  for (const HostEntry& host : cluster.hosts) {
    for (const DeviceView& device : host.devices) ++kinds[device.kind];
  }
  std::string text;
  for (const auto& [kind, n] : kinds)
    text += (text.empty() ? "" : ", ") + count_text(n, kind + " device");
  return text;
}

// Why no host could take a rank even if everything on it were free; empty if one could.
std::string why_never(const ClusterState& cluster, const DeviceRequest& want) {
  if (want.count == 0 || cluster.hosts.empty()) return "";
  uint64_t most_memory = 0;
  size_t largest = 0;
  bool kind_exists = false;
  const HostEntry* best = nullptr;
  for (const HostEntry& host : cluster.hosts) {
    size_t fitting = 0;
    for (const DeviceView& device : host.devices) {
      if (!is_kind(device, want)) continue;
      kind_exists = true;
      most_memory = std::max(most_memory, device.memory_bytes);
      fitting += fits(device, want);
    }
    if (best != nullptr && fitting <= largest) continue;
    largest = fitting;
    best = &host;
  }
  std::string start(kNoHostHas);
  std::string kind = want.kind == "any" ? "device" : want.kind + " device";
  if (!kind_exists) {
    std::string others = kinds_there_are(cluster);
    return start + "a " + kind + (others.empty() ? "" : "; there are " + others);
  }
  if (most_memory < want.memory_bytes)
    return start + "a " + kind + " with " + memory_text(want.memory_bytes) +
           " of memory; the largest has " + memory_text(most_memory);
  if (largest >= want.count) return "";
  std::string with =
      want.memory_bytes == 0 ? "" : " with " + memory_text(want.memory_bytes) + " of memory";
  return start + count_text(want.count, kind) + with + ", as each rank needs; the largest, " +
         best->host.value + ", has " + std::to_string(largest);
}

// "needs 4 sim devices (1 each for 4 ranks), 2 free; h1/gpu0 is leased to job/3, h2: cordoned
// (fan)".
std::string what_is_missing(const ClusterState& cluster, const PlacementRequest& request,
                            const std::vector<Room>& rooms) {
  uint64_t free = 0, slots = 0;
  for (const Room& room : rooms) {
    free += room.free.size();
    slots += room.slots;
  }
  std::string kind = request.devices.kind == "any" ? "device" : request.devices.kind + " device";
  std::string text =
      "needs " + count_text(uint64_t(request.devices.count) * request.ranks.size(), kind) +
      " for " + count_text(request.ranks.size(), "rank") + ", " + std::to_string(free) + " free";
  if (request.devices.count == 0) {
    text = "needs room for " + count_text(request.ranks.size(), "rank") + ", there is room for " +
           std::to_string(slots);
    if (request.ranks_per_host == 0)
      text += " (a host takes " + std::to_string(kMostRanksWithoutDevices) +
              " of a job without devices, unless `ranks_per_host` says more)";
  }
  if (slots < free && request.ranks_per_host != 0)
    text += " (ranks_per_host " + std::to_string(request.ranks_per_host) + " allows " +
            count_text(slots, "rank") + ")";
  std::vector<std::string> holders;
  for (const HostEntry& host : cluster.hosts) {
    if (!host.usable) holders.push_back(host.host.value + ": " + host.why_not);
    for (const DeviceView& device : host.devices) {
      if (host.usable && !device.usable)
        holders.push_back(host.host.value + "/" + device.name.value + ": " + device.why_not);
    }
  }
  std::map<uint64_t, uint64_t> by_job;
  uint64_t dirty = 0;
  for (const Lease& lease : cluster.leases) {
    if (lease.dirty) {
      dirty += lease.devices.size();
    } else if (lease.job != request.job) {
      by_job[lease.job.value] += lease.devices.size();
    }
  }
  for (const auto& [job, n] : by_job)
    holders.push_back("job/" + std::to_string(job) + " holds " + std::to_string(n));
  if (dirty > 0) holders.push_back(count_text(dirty, "device") + " wait until their host is clean");
  if (cluster.hosts.empty()) holders.push_back("no host has joined yet");
  for (size_t i = 0; i < holders.size() && i < 8; ++i) text += (i == 0 ? "; " : ", ") + holders[i];
  if (holders.size() > 8) text += ", and " + std::to_string(holders.size() - 8) + " more";
  return text;
}

}  // namespace

PlacementResult place(const ClusterState& cluster, const PlacementRequest& request) {
  auto rooms = find_room(cluster, request, true);
  PlacementResult result;
  result.placements = fill(rooms, request);
  bool gave_in = false;
  if (result.placements.empty() && !request.avoid_hosts.empty()) {
    rooms = find_room(cluster, request, false);
    result.placements = fill(rooms, request);
    gave_in = !result.placements.empty();
  }
  if (result.placements.empty()) {
    result.reason = why_never(cluster, request.devices);
    if (result.reason.empty()) result.reason = what_is_missing(cluster, request, rooms);
    return result;
  }
  std::set<std::string> hosts;
  for (const auto& p : result.placements) hosts.insert(p.host.value);
  result.reason = "placed " + count_text(request.ranks.size(), "rank") + " on " +
                  count_text(hosts.size(), "host") + ":";
  for (const auto& h : hosts) result.reason += " " + h;
  if (gave_in) result.reason += " (hosts to avoid had to be used: nothing else fits)";
  return result;
}

}  // namespace regrow
