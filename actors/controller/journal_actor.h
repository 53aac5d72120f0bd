// The one actor that writes the journal: drains its mailbox into one synced batch, then tells
// everybody.
//
// Order of a batch: on disk → folded into the projection → owners told (their effects and replies
// go out) → watchers told. Detached: it blocks on the disk.
#pragma once

#include <caf/behavior.hpp>
#include <caf/stateful_actor.hpp>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "actors/controller/context.h"
#include "journal/snapshot.h"

namespace regrow {

inline constexpr size_t kMaxBatch = 2000;  // events in one synced write

struct JournalActorState {
  Context* context = nullptr;
  std::unique_ptr<Journal> journal;
  std::unique_ptr<Snapshotter> snapshotter;
  caf::actor watches;
  std::vector<EventRecord> batch;
  std::map<EntityId, std::pair<caf::actor, uint64_t>> owners;  // of the batch: actor and highest n
  std::vector<caf::response_promise> barriers;
  bool flushing = false;
  const char* name = "journal";
};

caf::behavior journal_actor(caf::stateful_actor<JournalActorState>* self, Context* context,
                            std::shared_ptr<std::unique_ptr<Journal>> journal, std::string program,
                            caf::actor watches);

}  // namespace regrow
