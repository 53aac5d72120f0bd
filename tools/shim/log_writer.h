// One output stream of a rank on disk: the first bytes, the newest bytes, and a note of the gap.
//
// Disk use stays below cap + one segment (LogLayout); the newest 8 KiB are kept in memory as well,
// as the rank's last words. A disk that is full costs log bytes, never the rank: what cannot be
// written is counted and dropped.
#pragma once

#include <cstddef>
#include <cstdint>

#include "actors/agent/shim_protocol.h"

namespace regrow::shim {

class LogWriter {
 public:
  // Files are made in the current directory, lazily: a silent stream makes none.
  void open(const char* stream, uint64_t cap_bytes, uint64_t segment_bytes);
  void append(const char* bytes, size_t size);
  // The note beside the log is up to date afterwards. Call at the end.
  void finish();

  // Copies the newest bytes, at most kLastWordsBytes, to `out`; returns how many.
  size_t last_words(char* out) const;
  bool last_words_cut() const { return seen_ > kLastWordsBytes; }

 private:
  void remember(const char* bytes, size_t size);
  bool next_file();
  void note_gap();

  const char* stream_ = "";
  LogLayout layout_{};
  int fd_ = -1;
  uint64_t position_ = 0;    // bytes stored, as LogLayout counts them
  uint64_t file_end_ = 0;    // position at which the open file is full
  uint64_t first_tail_ = 0;  // oldest tail file still there
  uint64_t unwritten_ = 0;   // bytes lost to write errors
  int write_error_ = 0;
  uint64_t seen_ = 0;
  char ring_[kLastWordsBytes];
};

}  // namespace regrow::shim
