// Reads a rank's stored output: any part of it, without ever loading a file whole.
//
// Positions are those of shim::LogLayout: a missing range between head and tail is the gap. Cheap
// to make; holds no descriptor between calls. Blocking reads of local files; any thread.
#pragma once

#include <cstdint>
#include <string>

#include "actors/agent/shim_protocol.h"
#include "transport/host_link.h"

namespace regrow {

// What of a stream is there: [0, head_end) and [tail_begin, end). Without a gap they meet.
struct LogExtent {
  uint64_t head_end = 0;
  uint64_t tail_begin = 0;
  uint64_t end = 0;
  int64_t written_us = 0;  // wall clock of the newest output; 0 = none
  uint64_t gap() const { return tail_begin - head_end; }
};

class LogReader {
 public:
  // `directory` is the incarnation's, `stream` "stdout" or "stderr".
  LogReader(std::string directory, std::string stream, shim::LogLayout layout);

  LogExtent extent() const;
  // Up to `most` bytes from `position`, which must not be in the gap; stops at the gap and at the
  // end.
  std::string read(const LogExtent& extent, uint64_t position, size_t most) const;
  // Where the last `lines` lines begin; not before the gap, nor more than 8 MiB before the end.
  uint64_t position_of_tail(const LogExtent& extent, uint32_t lines) const;

  // One answer to `regrow logs`. Jumps over the gap and says so in `note`; at_end = nothing more
  // now.
  LogChunk chunk(const LogQuery& query) const;

 private:
  std::string file_of(uint64_t position, uint64_t& offset) const;

  std::string prefix_;  // ".../log.stdout."
  std::string directory_;
  std::string name_prefix_;
  shim::LogLayout layout_;
};

}  // namespace regrow
