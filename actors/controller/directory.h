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

class Directory {
 public:
  void set(const EntityId& id, caf::actor actor) {
    std::lock_guard lock(mutex_);
    actors_[id] = std::move(actor);
  }
  void erase(const EntityId& id) {
    std::lock_guard lock(mutex_);
    actors_.erase(id);
  }
  std::optional<caf::actor> find(const EntityId& id) const {
    std::lock_guard lock(mutex_);
    auto it = actors_.find(id);
    if (it == actors_.end()) return std::nullopt;
    return it->second;
  }
  std::vector<std::pair<EntityId, caf::actor>> all() const {
    std::lock_guard lock(mutex_);
    return {actors_.begin(), actors_.end()};
  }
  void clear() {
    std::lock_guard lock(mutex_);
    actors_.clear();
  }

 private:
  mutable std::mutex mutex_;
  std::unordered_map<EntityId, caf::actor> actors_;
};

// Requests from outside that wait until an entity's answer is durable.
class Replies {
 public:
  using Callback = std::function<void(const Reply&)>;

  RequestId expect(Callback callback) {
    std::lock_guard lock(mutex_);
    RequestId id{++last_};
    waiting_.emplace(id.value, std::move(callback));
    return id;
  }
  // Calls the callback on the caller's thread; a reply that nobody waits for is dropped.
  void complete(const Reply& reply) {
    Callback callback;
    {
      std::lock_guard lock(mutex_);
      auto it = waiting_.find(reply.request.value);
      if (it == waiting_.end()) return;
      callback = std::move(it->second);
      waiting_.erase(it);
    }
    callback(reply);
  }

 private:
  std::mutex mutex_;
  uint64_t last_ = 0;
  std::unordered_map<uint64_t, Callback> waiting_;
};

}  // namespace regrow
