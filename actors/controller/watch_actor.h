// Feeds those who follow events: from where they are, in order, without holding up the journal.
// Detached: it reads from disk for those who are behind.
#pragma once

#include <caf/behavior.hpp>
#include <caf/stateful_actor.hpp>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "actors/controller/messages.h"
#include "journal/journal.h"

namespace regrow {

struct WatchActorState {
  struct Watch {
    WatchSink sink;
    std::string entity;
    uint64_t next = 1;  // first event not sent yet
  };
  const Journal* journal = nullptr;
  std::vector<Watch> watches;
  uint64_t last = 0;  // newest event published
  bool pumping = false;
  const char* name = "watches";
};

inline constexpr uint64_t kWatchStep = 1000;  // events read for one follower in one turn

// Does a follower of `filter` ("job/7", "host/h1", "" = all) want events of `entity`?
bool watch_matches(const std::string& filter, const EntityId& entity);

// `journal` outlives the actor; `fatal` as in Context.
caf::behavior watch_actor(caf::stateful_actor<WatchActorState>* self, const Journal* journal,
                          std::function<void(const std::string&)> fatal);

}  // namespace regrow
