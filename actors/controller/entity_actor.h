// One node of the supervision tree as a CAF actor: hosts exactly one EntityHost and decides
// nothing.
//
// It gives its EntityHost a mailbox, the clock and the journal, makes and monitors the actors below
// it, and makes a child that died anew from the journal's fold: everybody then says again what they
// want, and who waits for an answer of the dead one is told that there is none. The cluster has no
// parent: when its actor dies the process ends.
#pragma once

#include <caf/behavior.hpp>
#include <caf/stateful_actor.hpp>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "actors/controller/context.h"
#include "supervisors/engine.h"

namespace regrow {

// Which entities stand below which, as the projection says at boot.
using ChildrenMap = std::map<EntityId, std::vector<EntityId>>;
ChildrenMap children_of(const Projection& projection);

struct EntityActorState {
  struct Child {
    caf::actor_addr address;
    uint32_t restarts = 0;
    std::deque<Time> recent;  // deaths within the intensity's window
    std::optional<Absence> absence;
    // For it or for what it has to make, while it is being made anew.
    std::deque<std::shared_ptr<const Envelope>> waiting;
  };
  Context* context = nullptr;
  std::unique_ptr<EntityHost> host;
  uint32_t restarts = 0;
  std::map<EntityId, Child> children;
  std::optional<Time> wake_at;
  const char* name = "entity";
};

// Restart intensity of the tree itself: a child that dies more often than this stays down.
inline constexpr size_t kMaxRestarts = 5;
inline constexpr Duration kRestartWindow = Duration::seconds(60);
// Inputs kept for a child that is being made anew; what comes beyond is refused.
inline constexpr size_t kMaxWaiting = 1000;

// `tree`: children to make at once, recursively (boot); null = none yet, or take over those that
// live.
caf::behavior entity_actor(caf::stateful_actor<EntityActorState>* self, Context* context,
                           EntityId id, uint32_t restarts, std::shared_ptr<const ChildrenMap> tree);

}  // namespace regrow
