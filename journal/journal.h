// The journal: every decision's event, in one order, durable before anything acts on it.
//
// Two implementations: RocksJournal (journal/rocks_journal.h) on disk, MemoryJournal
// (journal/memory_journal.h) for the simulator. Owned by the journal actor; append, meta and
// snapshots are called by that thread only, reads by any thread.
//
//   auto journal = RocksJournal::open({.directory = state_dir + "/journal"});
//   if (!journal) die(journal.error().message);
//   auto first = (*journal)->append(events);       // events[i].seq is set; on disk when this
//   returns
//   (*journal)->replay(1, [&](const EventRecord& e) { projection.apply(e); return true; });
//
// Invariants: J-1 (what append acknowledged is there after kill -9; what is there is a prefix),
// J-2.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "journal/journal_error.h"
#include "supervisors/events.h"

namespace regrow {

// Return false to stop.
using EventCallback = std::function<bool(const EventRecord&)>;

// What is known about an entity without reading its events.
struct IndexedEntity {
  EntityId entity;
  uint64_t last_seq = 0;  // its newest event, or its newest up to the seq asked about
};

// A state at a moment of its history (journal/snapshot.h makes and reads the bytes).
struct StoredSnapshot {
  EntityId entity;
  std::string bytes;
};

// Everything a checkpoint changes, written as one.
struct SnapshotBatch {
  uint64_t seq = 0;          // all states are as of this event
  std::string stamp;         // what the code that folded them was; see snapshot.h
  bool replace_all = false;  // forget every older snapshot first
  std::vector<StoredSnapshot> put;
  std::vector<EntityId> drop;
};

// What the newest checkpoint says of itself; seq 0 = there is none.
struct SnapshotMark {
  uint64_t seq = 0;
  std::string stamp;
};

class Journal {
 public:
  virtual ~Journal() = default;

  // Gives the events contiguous sequence numbers (set in `events`) and makes them durable, all or
  // none. Returns the first number; with no events the next number, and writes nothing. Any failure
  // but `refused` is final: whether the events are on disk is then unknown, every later append
  // answers the same, and the journal has to be closed, opened and replayed.
  virtual JournalResult<uint64_t> append(std::vector<EventRecord>& events) = 0;
  JournalResult<uint64_t> append(std::vector<EventRecord>&& events) { return append(events); }

  // Calls back with events `from`, `from` + 1, ... up to the newest one present when it starts,
  // each checked for sequence and checksum. Returns the last number handed out, or from - 1 if
  // there was none.
  virtual JournalResult<uint64_t> replay(uint64_t from, const EventCallback& each) const = 0;

  // The newest durable event; 0 = none yet.
  virtual uint64_t last_seq() const = 0;
  virtual JournalResult<std::optional<EventRecord>> get(uint64_t seq) const = 0;

  // Events of one entity with from <= seq <= to, oldest first (or newest first).
  virtual JournalResult<Done> replay_entity(const EntityId& entity, uint64_t from, uint64_t to,
                                            const EventCallback& each,
                                            bool newest_first = false) const = 0;
  // Every entity that has an event up to `up_to`, in order of its path.
  virtual JournalResult<std::vector<IndexedEntity>> entities(uint64_t up_to = UINT64_MAX) const = 0;

  // Small facts: "cluster_id", "epoch". Durable on return.
  virtual JournalResult<Done> put_meta(const std::string& key, const std::string& value) = 0;
  virtual JournalResult<std::optional<std::string>> get_meta(const std::string& key) const = 0;

  // Snapshots save replay time and nothing else: losing one loses no event. Not synced.
  virtual JournalResult<Done> write_snapshots(const SnapshotBatch& batch) = 0;
  virtual JournalResult<SnapshotMark> snapshot_mark() const = 0;
  virtual JournalResult<std::optional<std::string>> get_snapshot(const EntityId& entity) const = 0;

  // Why append fails from now on; nothing while it works.
  virtual std::optional<JournalError> failure() const = 0;
};

// Up to `limit` of the newest events of an entity, oldest first.
JournalResult<std::vector<EventRecord>> newest_events(const Journal& journal,
                                                      const EntityId& entity, size_t limit);

// What `verify` found. `events` were read and fit together.
struct JournalCheck {
  uint64_t events = 0;
  uint64_t entities = 0;
  uint64_t snapshots = 0;
};

// Reads everything: sequence, checksums, each entity's own numbering, the index. An error names the
// first event that does not fit.
JournalResult<JournalCheck> verify(const Journal& journal);

}  // namespace regrow
