// The journal on disk: one RocksDB and four small files in a directory of its own.
//
//   DIRECTORY/FORMAT    "regrow journal 1": read before anything else, so that a newer format is
//   left alone DIRECTORY/lock      who has it open for writing DIRECTORY/ballast   space to be
//   given up when the file system is full DIRECTORY/db/       RocksDB: events, by_entity,
//   snapshots, meta (docs/journal.md)
//
//   auto opened = RocksJournal::open({.directory = "/var/lib/regrow/journal"});
//   if (!opened) return fail(opened.error().message);
//   std::unique_ptr<RocksJournal> journal = std::move(*opened);
//
// When append fails with no_space: destroy the journal, release_ballast(), wait until has_space(),
// open again and replay. Thread rule as for Journal: one writing thread, any number of reading
// ones.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "journal/journal.h"

namespace regrow {

inline constexpr int kJournalFormat = 1;

struct RocksJournalOptions {
  std::string directory;             // made if missing (its parent must exist)
  bool read_only = false;            // takes no lock, changes nothing; a journal in use may be read
  size_t memtable_bytes = 8u << 20;  // small: writes must come back quickly after a full disk
  uint64_t ballast_bytes = 32u << 20;  // at least 4 x memtable; 0 = none
  // Told, in a sentence, what opening found and put right, and RocksDB's own warnings. Any thread.
  std::function<void(const std::string&)> on_warning = {};
};

class RocksJournal final : public Journal {
 public:
  static JournalResult<std::unique_ptr<RocksJournal>> open(const RocksJournalOptions& options);
  ~RocksJournal() override;

  using Journal::append;
  JournalResult<uint64_t> append(std::vector<EventRecord>& events) override;
  JournalResult<uint64_t> replay(uint64_t from, const EventCallback& each) const override;
  uint64_t last_seq() const override;
  JournalResult<std::optional<EventRecord>> get(uint64_t seq) const override;
  JournalResult<Done> replay_entity(const EntityId& entity, uint64_t from, uint64_t to,
                                    const EventCallback& each,
                                    bool newest_first = false) const override;
  JournalResult<std::vector<IndexedEntity>> entities(uint64_t up_to = UINT64_MAX) const override;
  JournalResult<Done> put_meta(const std::string& key, const std::string& value) override;
  JournalResult<std::optional<std::string>> get_meta(const std::string& key) const override;
  JournalResult<Done> write_snapshots(const SnapshotBatch& batch) override;
  JournalResult<SnapshotMark> snapshot_mark() const override;
  JournalResult<std::optional<std::string>> get_snapshot(const EntityId& entity) const override;
  std::optional<JournalError> failure() const override;

  // Gives the reserved space back to the file system. Safe while the journal is closed or open.
  static void release_ballast(const std::string& directory);
  // Whether `bytes` can be written and synced in the directory right now (tries it).
  static bool has_space(const std::string& directory, uint64_t bytes);

 private:
  struct Impl;
  explicit RocksJournal(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;

  friend JournalResult<struct Salvaged> salvage_journal(const std::string& from,
                                                        const std::string& to);
};

struct Salvaged {
  uint64_t events = 0;      // saved: 1 to this one
  Time last_at;             // of the newest one saved
  uint64_t seen_up_to = 0;  // the newest event that there is a trace of; what lies between is lost
  std::string
      damage;  // what the first event that was not saved suffers from; empty = it is missing
};

// Copies the events before the first damage into a new journal in the empty or missing directory
// `to`. `from` is only read.
JournalResult<Salvaged> salvage_journal(const std::string& from, const std::string& to);

}  // namespace regrow
