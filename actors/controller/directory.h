// Which actor is which entity, and who waits for which reply. Any thread.
#pragma once

#include <caf/actor.hpp>
#include <functional>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <vector>

#include "supervisors/inputs.h"

namespace regrow {

// Why an entity that exists has no actor now.
enum class Absence { being_mended, stays_down };

class Directory {
 public:
  void set(const EntityId& id, caf::actor actor, const EntityId& parent) {
    std::lock_guard lock(mutex_);
    absent_.erase(id);
    actors_[id] = {std::move(actor), parent};
  }
  void set_absent(const EntityId& id, Absence why) {
    std::lock_guard lock(mutex_);
    actors_.erase(id);
    absent_[id] = why;
  }
  std::optional<caf::actor> find(const EntityId& id) const {
    std::lock_guard lock(mutex_);
    auto it = actors_.find(id);
    if (it == actors_.end()) return std::nullopt;
    return it->second.actor;
  }
  std::optional<Absence> absence(const EntityId& id) const {
    std::lock_guard lock(mutex_);
    auto it = absent_.find(id);
    if (it == absent_.end()) return std::nullopt;
    return it->second;
  }
  std::vector<std::pair<EntityId, caf::actor>> all() const {
    std::lock_guard lock(mutex_);
    std::vector<std::pair<EntityId, caf::actor>> all;
    for (const auto& [id, entry] : actors_) all.emplace_back(id, entry.actor);
    return all;
  }
  // Those that this entity's actor made, or took over. In no order.
  std::vector<EntityId> below(const EntityId& parent) const {
    std::lock_guard lock(mutex_);
    std::vector<EntityId> below;
    for (const auto& [id, entry] : actors_) {
      if (entry.parent == parent) below.push_back(id);
    }
    return below;
  }

 private:
  struct Entry {
    caf::actor actor;
    EntityId parent;
  };
  mutable std::mutex mutex_;
  std::unordered_map<EntityId, Entry> actors_;
  std::unordered_map<EntityId, Absence> absent_;
};

// Requests from outside that wait until an entity's answer is durable.
class Replies {
 public:
  using Callback = std::function<void(const Reply&)>;

  // A request to `to`. `lost` is called instead if its actor dies first: whether it did what was
  // asked is unknown then.
  RequestId expect(EntityId to, Callback answered, std::function<void()> lost = {}) {
    std::lock_guard lock(mutex_);
    RequestId id{++last_};
    waiting_.emplace(id.value, Waiting{std::move(to), std::move(answered), std::move(lost)});
    return id;
  }
  // Calls the callback on the caller's thread; a reply that nobody waits for is dropped.
  void complete(const Reply& reply) {
    Waiting found;
    {
      std::lock_guard lock(mutex_);
      auto it = waiting_.find(reply.request.value);
      if (it == waiting_.end()) return;
      found = std::move(it->second);
      waiting_.erase(it);
    }
    found.answered(reply);
  }
  // An actor died: what waits for one that is not there any more will get no answer.
  void give_up_unless(const std::function<bool(const EntityId& to)>& is_there) {
    std::vector<Waiting> lost;
    {
      std::lock_guard lock(mutex_);
      for (auto it = waiting_.begin(); it != waiting_.end();) {
        if (!is_there(it->second.to)) {
          lost.push_back(std::move(it->second));
          it = waiting_.erase(it);
        } else {
          ++it;
        }
      }
    }
    for (const Waiting& request : lost) {
      if (request.lost) request.lost();
    }
  }

 private:
  struct Waiting {
    EntityId to;
    Callback answered;
    std::function<void()> lost;
  };
  std::mutex mutex_;
  uint64_t last_ = 0;
  std::unordered_map<uint64_t, Waiting> waiting_;
};

}  // namespace regrow
