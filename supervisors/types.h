// Ids, time and small facts that every folder shares. Plain values; any thread.
#pragma once

#include <algorithm>
#include <charconv>
#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "supervisors/reflect.h"

namespace regrow {

using JobId = StrongId<struct JobIdTag, uint64_t>;            // never reused
using RankIndex = StrongId<struct RankIndexTag, uint32_t>;    // stable slot, 0 .. world size - 1
using GroupIndex = StrongId<struct GroupIndexTag, uint32_t>;  // replica group of a job
using Incarnation =
    StrongId<struct IncarnationTag, uint32_t>;  // unique per start of a slot; 0 = none
using Generation = StrongId<struct GenerationTag, uint32_t>;  // job-wide; 0 = never started
using HostName = StrongId<struct HostNameTag, std::string>;   // label; identity is the host's uid
using DeviceName = StrongId<struct DeviceNameTag, std::string>;  // "gpu0", unique on its host
using SessionId = StrongId<struct SessionIdTag, uint64_t>;  // one host link connection; 0 = none
using RequestId =
    StrongId<struct RequestIdTag, uint64_t>;  // a client waits for the reply; 0 = nobody

inline Incarnation next(Incarnation i) { return {i.value + 1}; }
inline Generation next(Generation g) { return {g.value + 1}; }

// A span of time in microseconds.
struct Duration {
  int64_t us = 0;
  static constexpr Duration ms(int64_t n) { return {n * 1000}; }
  static constexpr Duration seconds(int64_t n) { return {n * 1000000}; }
  friend auto operator<=>(const Duration&, const Duration&) = default;
  REGROW_FIELDS(Duration, us)
};

// A point in time, microseconds since the Unix epoch. The engine's clock never runs backwards: the
// wall clock read once at start (and never before the newest journaled event), then monotonic.
struct Time {
  int64_t us = 0;
  friend auto operator<=>(const Time&, const Time&) = default;
  REGROW_FIELDS(Time, us)
};
inline constexpr Time operator+(Time t, Duration d) { return {t.us + d.us}; }
inline constexpr Duration operator-(Time a, Time b) { return {a.us - b.us}; }

// What a decision knows about time. Deadlines count from max(since, floor): `floor` moves to the
// present at start-up and after the controller's own tick was late, so that a pause of the
// controller is never held against the hosts and ranks it watches.
struct Now {
  Time time;
  Time floor;
  Time deadline(Time since, Duration timeout) const { return std::max(since, floor) + timeout; }
};

REGROW_ENUM(EntityKind, unknown, cluster, host, device, job, group, rank)

// The address of one node of the supervision tree: "cluster", "host/h1", "device/h1/gpu0", "job/7",
// "group/7/0", "rank/7/3".
struct EntityId {
  std::string path;

  static EntityId cluster() { return {"cluster"}; }
  static EntityId host(const HostName& h) { return {"host/" + h.value}; }
  static EntityId device(const HostName& h, const DeviceName& d) {
    return {"device/" + h.value + "/" + d.value};
  }
  static EntityId job(JobId j) { return {"job/" + std::to_string(j.value)}; }
  static EntityId group(JobId j, GroupIndex g) {
    return {"group/" + std::to_string(j.value) + "/" + std::to_string(g.value)};
  }
  static EntityId rank(JobId j, RankIndex r) {
    return {"rank/" + std::to_string(j.value) + "/" + std::to_string(r.value)};
  }

  EntityKind kind() const;
  // Part 1 is what follows the kind, part 2 what follows that; empty where there is none.
  std::string_view part(size_t index) const;
  std::optional<JobId> job_id() const;  // of a job, group or rank
  // The node that supervises this one. A rank's group is known to its job, not to its name, so the
  // parent of a rank reads as its job here.
  std::optional<EntityId> parent() const;

  friend auto operator<=>(const EntityId&, const EntityId&) = default;
  REGROW_FIELDS(EntityId, path)
};

// Parses "job/7"; nothing for text that names no possible entity.
std::optional<EntityId> parse_entity_id(std::string_view text);

// Names one event before it has a global sequence number: the n-th event (from 1) of its owner.
struct EventRef {
  EntityId entity;
  uint64_t n = 0;  // 0 = no cause recorded
  REGROW_FIELDS(EventRef, entity, n)
};

// "1 rank", "3 ranks"
inline std::string count_text(uint64_t n, const std::string& word) {
  return std::to_string(n) + " " + word + (n == 1 ? "" : "s");
}

// Who asked: a certificate name or "uid:1000", and what role that gave.
struct Actor {
  std::string who;
  std::string role;  // operator, viewer, agent, system
  REGROW_FIELDS(Actor, who, role)
};

}  // namespace regrow

template <>
struct std::hash<regrow::EntityId> {
  size_t operator()(const regrow::EntityId& id) const noexcept {
    return std::hash<std::string>{}(id.path);
  }
};
