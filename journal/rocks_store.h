// RocksDB as RocksJournal uses it: column families, keys, options, statuses in words. Internal.
#pragma once

#include <rocksdb/db.h>

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "journal/journal_error.h"
#include "journal/rocks_journal.h"

namespace regrow::rocks {

// Order of the handles in Store.
enum Family : size_t { kDefault, kEvents, kByEntity, kSnapshots, kMeta, kFamilies };

enum class Recovery {
  strict_middle,
  point_in_time
};  // what to do about a damaged middle: refuse, cut

// An open RocksDB; closes it when it goes.
struct Store {
  std::unique_ptr<rocksdb::DB> db;
  std::vector<rocksdb::ColumnFamilyHandle*> families;
  std::string directory;  // of the journal, for messages

  Store() = default;
  Store(Store&&) = default;
  ~Store();
  rocksdb::ColumnFamilyHandle* family(Family f) const { return families[f]; }
};

JournalResult<std::unique_ptr<Store>> open_store(const RocksJournalOptions& options,
                                                 Recovery recovery);

// `doing` completes "while ...". What to do depends on the kind of failure and is part of the
// message.
JournalError error_of(const rocksdb::Status& status, const std::string& directory,
                      const std::string& doing);
JournalError damage(const std::string& directory, const std::string& what);

// events: 8 bytes, big-endian, so that byte order is number order.
std::string event_key(uint64_t seq);
uint64_t seq_of(std::string_view event_key);

// by_entity: path, one zero byte, the event's key.
std::string index_key(std::string_view path, uint64_t seq);
bool split_index_key(rocksdb::Slice key, std::string_view& path, uint64_t& seq);

inline std::string_view view(const rocksdb::Slice& slice) { return {slice.data(), slice.size()}; }

}  // namespace regrow::rocks
