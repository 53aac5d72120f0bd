// How a write-ahead log of RocksDB ends: cleanly, or in the middle of a write. RocksDB drops an
// unfinished end without a word; operators want to hear of it.
#pragma once

#include <cstdint>
#include <string>

namespace regrow {

struct LogTail {
  std::string file;               // the newest log, empty if there is none
  uint64_t unfinished_bytes = 0;  // behind its last complete record
};

// Reads the record headers of the newest *.log in a database directory. Files that cannot be read,
// and record types of later RocksDB versions, count as clean.
LogTail look_at_log_tail(const std::string& database);

}  // namespace regrow
