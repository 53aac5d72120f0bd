// Snapshots: a state per entity, so that a start replays the tail and not the whole history.
//
// They are a cache of the journal and may be thrown away at any time. A snapshot is used only if it
// was made by the same program version from the same state structs (its stamp), is intact, and is
// as new as the entity's index says it must be; otherwise that one entity is folded from its own
// events.
//
//   auto loaded = load_projection(*journal, projection, {.program = REGROW_VERSION});
//   Snapshotter snapshotter(*journal, projection, {.program = REGROW_VERSION});
//   ...after each append was applied to the projection:   snapshotter.after_append();
//   ...before closing:                                    snapshotter.write_now();
//
// Invariant J-2: snapshot + tail gives the same state_hash() as a full replay. Used by the
// journal's writing thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "journal/journal.h"
#include "journal/projection.h"

namespace regrow {

// Bytes: docs/journal.md, "Snapshots".
std::string encode_snapshot(const EntityView& entity);
// An error for bytes that are damaged, of another entity, or do not fit the state structs.
JournalResult<EntityView> decode_snapshot(const EntityId& entity, std::string_view bytes);

// What decides whether a snapshot still means the same: the layout of the state structs, and the
// program version for changes of `apply` that do not show in the structs.
std::string snapshot_stamp(const std::string& program);

struct SnapshotOptions {
  std::string program;      // version of the running program
  uint64_t every = 10'000;  // events between checkpoints
};

class Snapshotter {
 public:
  Snapshotter(Journal& journal, const Projection& projection, SnapshotOptions options);

  // Writes a checkpoint if enough events have come since the last one.
  JournalResult<Done> after_append();
  // Writes a checkpoint of everything that has changed. The projection must be up to date.
  JournalResult<Done> write_now();

 private:
  Journal& journal_;
  const Projection& projection_;
  SnapshotOptions options_;
  std::string stamp_;
  SnapshotMark mark_;
};

struct LoadOptions {
  std::string program;
  uint64_t up_to = UINT64_MAX;  // time travel: as of this event
  bool use_snapshots = true;
};

struct LoadReport {
  uint64_t from_snapshots = 0;    // entities
  std::vector<EntityId> rebuilt;  // had an unusable snapshot or none
  uint64_t events = 0;            // replayed
  std::string snapshots_unused;   // why none was used although there are some; empty otherwise
};

// Fills an empty projection from the journal.
JournalResult<LoadReport> load_projection(const Journal& journal, Projection& projection,
                                          const LoadOptions& options);

}  // namespace regrow
