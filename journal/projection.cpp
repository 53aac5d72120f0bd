#include "journal/projection.h"

#include <algorithm>
#include <exception>
#include <utility>

#include "journal/state_hash.h"
#include "supervisors/machines.h"

namespace regrow {

Projection::Projection()
    : Projection([](const EntityId& id) { return initial_state(id); },
                 [](AnyState& state, const EventRecord& record) { regrow::apply(state, record); }) {
}

Projection::Projection(Initial initial, Fold fold)
    : initial_(std::move(initial)), fold_(std::move(fold)) {}

void Projection::fold_into(EntityView& entity, const EventRecord& record) {
  uint64_t expected = entity.n + 1;
  entity.n = record.n;
  entity.last_seq = record.seq;
  entity.last_at = record.at;
  if (entity.broken) return;

  std::string what;
  try {
    if (record.n != expected) {
      what = "number " + std::to_string(expected) + " was to follow";
    } else {
      fold_(entity.state, record);
    }
  } catch (const std::exception& e) {
    what = e.what();
  }
  if (!what.empty()) {
    entity.broken = true;
    entity.quarantined = "event " + std::to_string(record.seq) + " (" + event_name(record.event) +
                         ", number " + std::to_string(record.n) + " of " + entity.id.path +
                         ") does not apply: " + what;
  } else if (auto* quarantine = std::get_if<ev::EntityQuarantined>(&record.event)) {
    entity.quarantined = quarantine->what;
  }
}

void Projection::apply(const EventRecord& record) {
  std::lock_guard hold(mutex_);
  auto found = entities_.find(record.entity);
  if (found == entities_.end()) {
    EntityView fresh;
    fresh.id = record.entity;
    fresh.state = initial_(record.entity);
    found = entities_.emplace(record.entity, std::move(fresh)).first;
  }
  fold_into(found->second, record);
  last_seq_ = std::max(last_seq_, record.seq);
  last_at_ = std::max(last_at_, record.at);
}

void Projection::restore(EntityView view) {
  std::lock_guard hold(mutex_);
  last_seq_ = std::max(last_seq_, view.last_seq);
  last_at_ = std::max(last_at_, view.last_at);
  EntityId id = view.id;
  entities_.insert_or_assign(std::move(id), std::move(view));
}

std::optional<EntityView> Projection::find(const EntityId& id) const {
  std::lock_guard hold(mutex_);
  auto found = entities_.find(id);
  if (found == entities_.end()) return std::nullopt;
  return found->second;
}

void Projection::for_each(const std::function<void(const EntityView&)>& each) const {
  std::lock_guard hold(mutex_);
  for (const auto& [id, entity] : entities_) each(entity);
}

std::vector<EntityView> Projection::quarantined() const {
  std::vector<EntityView> out;
  for_each([&out](const EntityView& entity) {
    if (!entity.quarantined.empty()) out.push_back(entity);
  });
  return out;
}

size_t Projection::size() const {
  std::lock_guard hold(mutex_);
  return entities_.size();
}

uint64_t Projection::last_seq() const {
  std::lock_guard hold(mutex_);
  return last_seq_;
}

Time Projection::last_at() const {
  std::lock_guard hold(mutex_);
  return last_at_;
}

uint64_t Projection::state_hash() const {
  uint64_t hash = 0;
  std::string bytes;
  for_each([&](const EntityView& entity) {
    bytes.clear();
    add_canonical(entity.id, bytes);
    add_canonical(entity.n, bytes);
    add_canonical(entity.last_seq, bytes);
    add_canonical(entity.quarantined, bytes);
    add_canonical(entity.state, bytes);
    hash = xxh64(bytes, hash);
  });
  return hash;
}

}  // namespace regrow
