#include "journal/rocks_journal.h"

#include <rocksdb/write_batch.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <mutex>
#include <stdexcept>

#include "journal/codec.h"
#include "journal/journal_directory.h"
#include "journal/journal_lock.h"
#include "journal/log_tail.h"
#include "journal/rocks_store.h"

namespace regrow {

namespace {

using rocks::damage;
using rocks::error_of;

constexpr uint64_t kCheckedAtOpen =
    1000;  // newest events whose chain is verified before anything else
constexpr const char* kMarkSeq = ".snapshot_seq";
constexpr const char* kMarkStamp = ".snapshot_stamp";

int64_t monotonic_us() {
  auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::microseconds>(now).count();
}

bool is_possible_path(const std::string& path) {
  for (char c : path) {
    if (static_cast<unsigned char>(c) < 0x20) return false;
  }
  return !path.empty() && path.size() < 1024;
}

}  // namespace

struct RocksJournal::Impl {
  std::string directory;
  std::optional<JournalLock> lock;  // empty if read-only; outlives the store
  std::unique_ptr<rocks::Store> store;
  std::atomic<uint64_t> last_seq{0};
  uint64_t chain = 0;  // of event last_seq; writing thread
  RecordEncoder encoder;
  mutable std::mutex failure_mutex;
  std::optional<JournalError> failure;

  rocksdb::DB& db() const { return *store->db; }
  rocksdb::ColumnFamilyHandle* family(rocks::Family f) const { return store->family(f); }

  std::optional<JournalError> current_failure() const {
    std::lock_guard hold(failure_mutex);
    return failure;
  }
  JournalError fail(const rocksdb::Status& status, const std::string& doing) {
    JournalError error = error_of(status, directory, doing);
    std::lock_guard hold(failure_mutex);
    failure = error;
    return error;
  }

  JournalResult<std::optional<std::string>> lookup(rocks::Family f, const std::string& key) const {
    std::string value;
    rocksdb::Status status = db().Get(rocksdb::ReadOptions(), family(f), key, &value);
    if (status.IsNotFound()) return std::optional<std::string>();
    if (!status.ok()) return error_of(status, directory, "reading");
    return std::optional<std::string>(std::move(value));
  }

  JournalResult<uint64_t> chain_before(uint64_t seq) const;
  JournalResult<uint64_t> read(uint64_t from, uint64_t to, const EventCallback& each,
                               uint64_t& chain_at_end) const;
  JournalResult<Done> look_at_ends();
};

// The checksum that event `seq` was chained to.
JournalResult<uint64_t> RocksJournal::Impl::chain_before(uint64_t seq) const {
  if (seq <= 1) return uint64_t{0};
  auto bytes = lookup(rocks::kEvents, rocks::event_key(seq - 1));
  if (!bytes) return bytes.error();
  auto chain = *bytes ? stored_chain(**bytes) : std::nullopt;
  if (!chain) return damage(directory, "event " + std::to_string(seq - 1) + " is missing");
  return *chain;
}

// Hands out `from` to `to`, which must exist. `chain_at_end` is that of the last one read.
JournalResult<uint64_t> RocksJournal::Impl::read(uint64_t from, uint64_t to,
                                                 const EventCallback& each,
                                                 uint64_t& chain_at_end) const {
  auto before = chain_before(from);
  if (!before) return before.error();
  chain_at_end = *before;

  rocksdb::ReadOptions options;
  options.readahead_size = 4u << 20;
  options.fill_cache = false;
  std::unique_ptr<rocksdb::Iterator> at(db().NewIterator(options, family(rocks::kEvents)));
  uint64_t seq = from;
  for (at->Seek(rocks::event_key(from)); seq <= to && at->Valid(); at->Next(), ++seq) {
    std::string name = "event " + std::to_string(seq);
    if (at->key().size() != 8 || rocks::seq_of(rocks::view(at->key())) != seq) {
      return damage(directory, name + " is missing");
    }
    auto stored = decode_record(rocks::view(at->value()), chain_at_end);
    if (!stored) return damage(directory, name + ": " + stored.error().message);
    if (stored->record.seq != seq) {
      return damage(directory,
                    name + " says that it is event " + std::to_string(stored->record.seq));
    }
    chain_at_end = stored->chain;
    if (!each(stored->record)) return seq;
  }
  if (!at->status().ok()) return error_of(at->status(), directory, "reading events");
  if (seq <= to) return damage(directory, "event " + std::to_string(seq) + " is missing");
  return to;
}

// Finds the newest event, and that the oldest is number 1 and the newest thousand fit together.
JournalResult<Done> RocksJournal::Impl::look_at_ends() {
  std::unique_ptr<rocksdb::Iterator> at(
      db().NewIterator(rocksdb::ReadOptions(), family(rocks::kEvents)));
  at->SeekToLast();
  uint64_t last = at->Valid() ? rocks::seq_of(rocks::view(at->key())) : 0;
  if (last > 0) {
    at->SeekToFirst();
    if (at->Valid() && rocks::seq_of(rocks::view(at->key())) != 1) {
      return damage(directory, "event 1 is missing");
    }
  }
  if (!at->status().ok()) return error_of(at->status(), directory, "reading events");

  last_seq = last;
  if (last > 0) {
    uint64_t from = last > kCheckedAtOpen ? last - kCheckedAtOpen + 1 : 1;
    auto tail = read(
        from, last, [](const EventRecord&) { return true; }, chain);
    if (!tail) return tail.error();
  }
  auto mark = lookup(rocks::kMeta, kMarkSeq);
  if (!mark) return mark.error();
  if (*mark && rocks::seq_of(**mark) > last) {
    return damage(directory, "there are snapshots up to event " +
                                 std::to_string(rocks::seq_of(**mark)) +
                                 ", but events only up to " + std::to_string(last));
  }
  return Done{};
}

RocksJournal::RocksJournal(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
RocksJournal::~RocksJournal() = default;

JournalResult<std::unique_ptr<RocksJournal>> RocksJournal::open(
    const RocksJournalOptions& options) {
  auto warn = [&](const std::string& text) {
    if (options.on_warning) options.on_warning(text);
  };
  auto format = read_format(options.directory);
  if (!format) return format.error();
  if (*format == 0 && options.read_only) {
    return JournalError{JournalFault::io, options.directory +
                                              ": there is no journal here. Name the state "
                                              "directory of a controller that has run."};
  }
  auto impl = std::make_unique<Impl>();
  impl->directory = options.directory;
  if (!options.read_only) {
    if (*format == 0) {
      auto made = write_format(options.directory, kJournalFormat);
      if (!made) return made.error();
    }
    auto lock = JournalLock::take(options.directory + "/lock");
    if (!lock) return lock.error();
    impl->lock = std::move(*lock);

    // Under the lock: nobody is writing the log that we look at.
    LogTail tail = look_at_log_tail(options.directory + "/db");
    if (tail.unfinished_bytes > 0) {
      warn(tail.file + ": ends with an unfinished write (" + std::to_string(tail.unfinished_bytes) +
           " bytes), as after a crash; it is dropped");
    }
  }

  auto store = rocks::open_store(options, rocks::Recovery::strict_middle);
  if (store.is_no_space() && !options.read_only) {
    warn(options.directory +
         ": the file system is full; the reserved space is given up to open the journal");
    release_ballast(options.directory);
    store = rocks::open_store(options, rocks::Recovery::strict_middle);
  }
  if (!store) return store.error();
  impl->store = std::move(*store);

  auto ends = impl->look_at_ends();
  if (!ends) return ends.error();
  if (!options.read_only && options.ballast_bytes > 0 &&
      !make_ballast(options.directory, options.ballast_bytes)) {
    warn(options.directory + ": no space could be set aside for a full disk: less than " +
         std::to_string(3 * options.ballast_bytes >> 20) + " MiB are free");
  }
  return std::unique_ptr<RocksJournal>(new RocksJournal(std::move(impl)));
}

JournalResult<uint64_t> RocksJournal::append(std::vector<EventRecord>& events) {
  if (auto failure = impl_->current_failure()) return *failure;
  uint64_t first = impl_->last_seq + 1;
  if (events.empty()) return first;
  if (!impl_->lock)
    return JournalError{JournalFault::refused, "this journal was opened for reading only"};

  rocksdb::WriteBatch batch;
  std::string bytes;
  uint64_t chain = impl_->chain;
  uint64_t seq = first;
  int64_t mono_us = monotonic_us();
  for (EventRecord& event : events) {
    if (!is_possible_path(event.entity.path)) {
      return JournalError{JournalFault::refused,
                          "an event of \"" + event.entity.path + "\" cannot be kept"};
    }
    event.seq = seq;
    try {
      chain = impl_->encoder.encode(event, mono_us, chain, bytes);
    } catch (const std::length_error& e) {
      return JournalError{JournalFault::refused,
                          event.entity.path + ": " + e.what() + " cannot be kept"};
    }
    rocksdb::Status added = batch.Put(impl_->family(rocks::kEvents), rocks::event_key(seq), bytes);
    if (added.ok()) {
      added =
          batch.Put(impl_->family(rocks::kByEntity), rocks::index_key(event.entity.path, seq), "");
    }
    if (!added.ok()) return impl_->fail(added, "collecting events");
    ++seq;
  }
  rocksdb::WriteOptions durable;
  durable.sync = true;
  rocksdb::Status written = impl_->db().Write(durable, &batch);
  if (!written.ok()) return impl_->fail(written, "writing events");
  impl_->chain = chain;
  impl_->last_seq = seq - 1;
  return first;
}

JournalResult<uint64_t> RocksJournal::replay(uint64_t from, const EventCallback& each) const {
  from = std::max<uint64_t>(from, 1);
  uint64_t last = impl_->last_seq;
  if (from > last) return from - 1;
  uint64_t chain = 0;
  return impl_->read(from, last, each, chain);
}

uint64_t RocksJournal::last_seq() const { return impl_->last_seq; }

JournalResult<std::optional<EventRecord>> RocksJournal::get(uint64_t seq) const {
  std::optional<EventRecord> found;
  if (seq == 0 || seq > impl_->last_seq) return found;
  auto bytes = impl_->lookup(rocks::kEvents, rocks::event_key(seq));
  if (!bytes) return bytes.error();
  std::string name = "event " + std::to_string(seq);
  if (!*bytes) return damage(impl_->directory, name + " is missing");
  auto stored = decode_record(**bytes);
  if (!stored) return damage(impl_->directory, name + ": " + stored.error().message);
  found = std::move(stored->record);
  return found;
}

JournalResult<Done> RocksJournal::replay_entity(const EntityId& entity, uint64_t from, uint64_t to,
                                                const EventCallback& each,
                                                bool newest_first) const {
  std::unique_ptr<rocksdb::Iterator> at(
      impl_->db().NewIterator(rocksdb::ReadOptions(), impl_->family(rocks::kByEntity)));
  if (newest_first)
    at->SeekForPrev(rocks::index_key(entity.path, to));
  else
    at->Seek(rocks::index_key(entity.path, from));
  for (; at->Valid(); newest_first ? at->Prev() : at->Next()) {
    std::string_view path;
    uint64_t seq = 0;
    if (!rocks::split_index_key(at->key(), path, seq) || path != entity.path || seq < from ||
        seq > to)
      break;
    auto record = get(seq);
    if (!record) return record.error();
    if (!*record) continue;  // appended after this reader looked
    if ((*record)->entity != entity) {
      return damage(impl_->directory, "event " + std::to_string(seq) + " belongs to " +
                                          (*record)->entity.path + ", the index says " +
                                          entity.path);
    }
    if (!each(**record)) break;
  }
  if (!at->status().ok()) return error_of(at->status(), impl_->directory, "reading the index");
  return Done{};
}

JournalResult<std::vector<IndexedEntity>> RocksJournal::entities(uint64_t up_to) const {
  std::vector<IndexedEntity> out;
  std::unique_ptr<rocksdb::Iterator> at(
      impl_->db().NewIterator(rocksdb::ReadOptions(), impl_->family(rocks::kByEntity)));
  at->SeekToFirst();
  while (at->Valid()) {
    std::string_view path;
    uint64_t seq = 0;
    if (!rocks::split_index_key(at->key(), path, seq))
      return damage(impl_->directory, "a bad index key");
    std::string name(path);
    if (seq <= up_to) {
      at->SeekForPrev(rocks::index_key(name, up_to));
      if (at->Valid() && rocks::split_index_key(at->key(), path, seq)) out.push_back({{name}, seq});
    }
    at->Seek(name + '\x01');  // past this entity's last event
  }
  if (!at->status().ok()) return error_of(at->status(), impl_->directory, "reading the index");
  return out;
}

JournalResult<Done> RocksJournal::put_meta(const std::string& key, const std::string& value) {
  if (auto failure = impl_->current_failure()) return *failure;
  if (!impl_->lock)
    return JournalError{JournalFault::refused, "this journal was opened for reading only"};
  if (key.empty() || key[0] == '.') {
    return JournalError{JournalFault::refused, "\"" + key + "\" is not a key that may be set"};
  }
  rocksdb::WriteOptions durable;
  durable.sync = true;
  rocksdb::Status written = impl_->db().Put(durable, impl_->family(rocks::kMeta), key, value);
  if (!written.ok()) return impl_->fail(written, "writing " + key);
  return Done{};
}

JournalResult<std::optional<std::string>> RocksJournal::get_meta(const std::string& key) const {
  return impl_->lookup(rocks::kMeta, key);
}

JournalResult<Done> RocksJournal::write_snapshots(const SnapshotBatch& snapshots) {
  if (auto failure = impl_->current_failure()) return *failure;
  if (!impl_->lock)
    return JournalError{JournalFault::refused, "this journal was opened for reading only"};
  auto* family = impl_->family(rocks::kSnapshots);
  rocksdb::WriteBatch batch;
  rocksdb::Status added;
  auto add = [&added](rocksdb::Status status) {
    if (added.ok()) added = std::move(status);
  };
  if (snapshots.replace_all) add(batch.DeleteRange(family, "", "\xff"));
  for (const StoredSnapshot& snapshot : snapshots.put) {
    add(batch.Put(family, snapshot.entity.path, snapshot.bytes));
  }
  for (const EntityId& entity : snapshots.drop) add(batch.Delete(family, entity.path));
  add(batch.Put(impl_->family(rocks::kMeta), kMarkSeq, rocks::event_key(snapshots.seq)));
  add(batch.Put(impl_->family(rocks::kMeta), kMarkStamp, snapshots.stamp));
  if (!added.ok()) return impl_->fail(added, "collecting snapshots");
  rocksdb::Status written = impl_->db().Write(rocksdb::WriteOptions(), &batch);
  if (!written.ok()) return impl_->fail(written, "writing snapshots");
  return Done{};
}

JournalResult<SnapshotMark> RocksJournal::snapshot_mark() const {
  auto seq = impl_->lookup(rocks::kMeta, kMarkSeq);
  if (!seq) return seq.error();
  auto stamp = impl_->lookup(rocks::kMeta, kMarkStamp);
  if (!stamp) return stamp.error();
  if (!*seq || !*stamp) return SnapshotMark{};
  return SnapshotMark{rocks::seq_of(**seq), **stamp};
}

JournalResult<std::optional<std::string>> RocksJournal::get_snapshot(const EntityId& entity) const {
  return impl_->lookup(rocks::kSnapshots, entity.path);
}

std::optional<JournalError> RocksJournal::failure() const { return impl_->current_failure(); }

JournalResult<Salvaged> salvage_journal(const std::string& from, const std::string& to) {
  auto format = read_format(from);
  if (!format) return format.error();
  RocksJournalOptions source;
  source.directory = from;
  source.read_only = true;
  auto store = rocks::open_store(source, rocks::Recovery::point_in_time);
  if (!store) return store.error();
  RocksJournal::Impl damaged;
  damaged.directory = from;
  damaged.store = std::move(*store);

  auto target = RocksJournal::open({.directory = to});
  if (!target) return target.error();
  if ((*target)->last_seq() > 0) {
    return JournalError{JournalFault::refused,
                        to + ": holds events already. Name a new directory."};
  }
  Salvaged out;
  std::vector<EventRecord> batch;
  uint64_t chain = 0;
  // One by one: a file that is missing or broken then costs its own events and those behind them,
  // not those of the other files, as it would an iterator over all of them.
  for (uint64_t seq = 1;; ++seq) {
    auto bytes = damaged.lookup(rocks::kEvents, rocks::event_key(seq));
    if (!bytes) out.damage = bytes.error().message;
    if (!bytes || !*bytes) break;
    auto stored = decode_record(**bytes, chain);
    if (!stored || stored->record.seq != seq) {
      out.damage = "event " + std::to_string(seq) + ": " +
                   (stored ? "says that it is another one" : stored.error().message);
      break;
    }
    chain = stored->chain;
    out.last_at = stored->record.at;
    batch.push_back(std::move(stored->record));
    if (batch.size() < 1000) continue;
    auto written = (*target)->append(batch);
    if (!written) return written.error();
    batch.clear();
  }
  auto written = (*target)->append(batch);
  if (!written) return written.error();
  out.events = (*target)->last_seq();

  std::unique_ptr<rocksdb::Iterator> at(
      damaged.db().NewIterator(rocksdb::ReadOptions(), damaged.family(rocks::kEvents)));
  at->SeekToLast();
  out.seen_up_to = std::max(out.events, at->Valid() ? rocks::seq_of(rocks::view(at->key())) : 0);
  return out;
}

}  // namespace regrow
