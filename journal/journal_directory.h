// The small files around the RocksDB of a journal: FORMAT and ballast. Used by RocksJournal only.
#pragma once

#include <cstdint>
#include <string>

#include "journal/journal_error.h"

namespace regrow {

// Reads DIRECTORY/FORMAT. 0 = a new, empty directory. Newer formats, and directories that hold
// something else, are errors; nothing is written.
JournalResult<int> read_format(const std::string& directory);

// Makes the directory (not its parents) and writes FORMAT durably.
JournalResult<Done> write_format(const std::string& directory, int format);

// Reserves `bytes` unless that would leave less than twice as much free. Returns false, and leaves
// nothing behind, if it did not.
bool make_ballast(const std::string& directory, uint64_t bytes);

// An error for a failed system call, no_space told apart.
JournalError system_error(const std::string& path, const std::string& what, int code);

}  // namespace regrow
