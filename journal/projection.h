// What the journal says: the fold of all its events, entity by entity.
//
// The controller keeps one for its readers (CLI, shell, page); time travel and tests make their
// own. Thread rule: apply and restore by one thread, everything else by any. Readers get copies, or
// hold everybody up while their callback runs.
//
//   Projection projection;
//   load_projection(journal, projection, {});             // journal/snapshot.h
//   projection.apply(record);                             // as each event becomes durable
//   if (auto job = projection.find(EntityId::job({7}))) show(*job);
//
// A record that cannot be applied (a check fails, a number is skipped) quarantines its entity:
// later records only count, the state stays as it is, and quarantined() lists it. The rest goes on.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "supervisors/state.h"

namespace regrow {

struct EntityView {
  EntityId id;
  AnyState state;
  uint64_t n = 0;         // its events so far
  uint64_t last_seq = 0;  // its newest event
  Time last_at;
  std::string quarantined;  // why; empty = in service
  bool broken = false;  // quarantined because a record did not apply: `state` is not to be trusted

  friend bool operator==(const EntityView&, const EntityView&) = default;
};

class Projection {
 public:
  using Fold = std::function<void(AnyState&, const EventRecord&)>;
  using Initial = std::function<AnyState(const EntityId&)>;

  // Folds with `apply` of supervisors/machines.h.
  Projection();
  // Tests bring their own.
  Projection(Initial initial, Fold fold);

  // Never throws. Events of one entity in order; entities in any order.
  void apply(const EventRecord& record);

  // Puts an entity's state in place, as a snapshot has it.
  void restore(EntityView view);

  std::optional<EntityView> find(const EntityId& id) const;
  // In order of the path. Hold no other lock in `each`, and do not call back into the projection.
  void for_each(const std::function<void(const EntityView&)>& each) const;
  std::vector<EntityView> quarantined() const;

  size_t size() const;
  uint64_t last_seq() const;  // newest event applied
  Time last_at() const;       // newest time of any event applied

  // Equal for equal histories, on every platform; for J-2 and for comparing a live state with a
  // replay.
  uint64_t state_hash() const;

 private:
  void fold_into(EntityView& entity, const EventRecord& record);

  Initial initial_;
  Fold fold_;
  mutable std::mutex mutex_;
  std::map<EntityId, EntityView> entities_;
  uint64_t last_seq_ = 0;
  Time last_at_;
};

}  // namespace regrow
