// One writer per journal: a lock file held for as long as the journal is open.
//
// The kernel drops the lock with the process, however it dies, so a stale file never blocks a
// start. The file's text, "PID START_TIME", only says who holds it: START_TIME (field 22 of
// /proc/PID/stat) tells a later process of the same number apart.
//
//   auto lock = JournalLock::take(directory + "/lock");
//   if (!lock) return lock.error();   // in_use, with the holder's pid, or io
#pragma once

#include <string>

#include "journal/journal_error.h"

namespace regrow {

class JournalLock {
 public:
  static JournalResult<JournalLock> take(const std::string& path);

  JournalLock(JournalLock&& other) noexcept;
  JournalLock& operator=(JournalLock&& other) noexcept;
  ~JournalLock();

 private:
  explicit JournalLock(int fd) : fd_(fd) {}
  int fd_ = -1;
};

}  // namespace regrow
