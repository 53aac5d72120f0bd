// A journal in memory, for the seeded simulator and for tests: cut it after any event, make it
// fail.
//
//   MemoryJournal journal;
//   journal.append(events);
//   journal.cut_after(17);                                  // a crash that lost everything behind
//   17 journal.fail_after(20, JournalFault::no_space);         // event 21 and later cannot be
//   written journal.recover();                                      // closed, space freed, opened
//   again
//
// One thread.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "journal/journal.h"

namespace regrow {

class MemoryJournal final : public Journal {
 public:
  using Journal::append;
  JournalResult<uint64_t> append(std::vector<EventRecord>& events) override;
  JournalResult<uint64_t> replay(uint64_t from, const EventCallback& each) const override;
  uint64_t last_seq() const override { return events_.size(); }
  JournalResult<std::optional<EventRecord>> get(uint64_t seq) const override;
  JournalResult<Done> replay_entity(const EntityId& entity, uint64_t from, uint64_t to,
                                    const EventCallback& each,
                                    bool newest_first = false) const override;
  JournalResult<std::vector<IndexedEntity>> entities(uint64_t up_to = UINT64_MAX) const override;
  JournalResult<Done> put_meta(const std::string& key, const std::string& value) override;
  JournalResult<std::optional<std::string>> get_meta(const std::string& key) const override;
  JournalResult<Done> write_snapshots(const SnapshotBatch& batch) override;
  JournalResult<SnapshotMark> snapshot_mark() const override { return mark_; }
  JournalResult<std::optional<std::string>> get_snapshot(const EntityId& entity) const override;
  std::optional<JournalError> failure() const override { return failure_; }

  // Forgets every event behind `seq`, and all snapshots if they are newer than that.
  void cut_after(uint64_t seq);
  // An append that would go beyond `seq` fails, writes nothing, and leaves the journal failed.
  void fail_after(uint64_t seq, JournalFault fault = JournalFault::io);
  // Ends a failure, as closing and opening again does.
  void recover();
  // Puts other bytes in the place of a snapshot, as damage would.
  void damage_snapshot(const EntityId& entity, std::string bytes) {
    snapshots_[entity] = std::move(bytes);
  }

  const std::vector<EventRecord>& events() const { return events_; }

 private:
  std::vector<EventRecord> events_;  // event seq is at index seq - 1
  std::map<EntityId, std::vector<uint64_t>> by_entity_;
  std::map<std::string, std::string> meta_;
  std::map<EntityId, std::string> snapshots_;
  SnapshotMark mark_;
  uint64_t fail_after_ = UINT64_MAX;
  JournalFault fault_ = JournalFault::io;
  std::optional<JournalError> failure_;
};

}  // namespace regrow
