#include "tools/shim/log_writer.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "tools/shim/text.h"

namespace regrow::shim {

void LogWriter::open(const char* stream, uint64_t cap_bytes, uint64_t segment_bytes) {
  stream_ = stream;
  layout_ = LogLayout::from_limits(cap_bytes, segment_bytes);
}

void LogWriter::append(const char* bytes, size_t size) {
  remember(bytes, size);
  while (size > 0) {
    if (position_ == file_end_ && !next_file()) break;
    uint64_t room = file_end_ - position_;
    ssize_t n = ::write(fd_, bytes, size < room ? size : room);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) {
      write_error_ = n < 0 ? errno : EIO;
      break;
    }
    position_ += static_cast<uint64_t>(n);
    bytes += n;
    size -= static_cast<size_t>(n);
  }
  unwritten_ += size;
}

// Opens the file that holds position_, which is at a file's beginning, and forgets the oldest tail
// file once there are too many. A failure is tried again with the next bytes.
bool LogWriter::next_file() {
  char name[64];
  uint64_t index = 0;
  if (position_ == 0) {
    snprintf(name, sizeof name, "log.%s.head", stream_);
  } else {
    index = position_ / layout_.segment_bytes - 1;
    snprintf(name, sizeof name, "log.%s.%" PRIu64, stream_, index);
  }
  if (fd_ >= 0) close(fd_);
  fd_ = ::open(name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0640);
  if (fd_ < 0) {
    write_error_ = errno;
    return false;
  }
  file_end_ = position_ + layout_.segment_bytes;
  bool dropped = false;
  for (; position_ > 0 && index - first_tail_ >= layout_.tail_files;
       ++first_tail_, dropped = true) {
    snprintf(name, sizeof name, "log.%s.%" PRIu64, stream_, first_tail_);
    unlink(name);
  }
  if (dropped) note_gap();
  return true;
}

void LogWriter::finish() {
  if (unwritten_ > 0) note_gap();
}

// For a person who looks into the directory; readers compute the gap from the files that are there.
void LogWriter::note_gap() {
  Message note;
  if (first_tail_ > 0) {
    note.add("%" PRIu64 " bytes dropped between log.%s.head and log.%s.%" PRIu64 "\n",
             first_tail_ * layout_.segment_bytes, stream_, stream_, first_tail_);
  }
  if (unwritten_ > 0) {
    note.add("%" PRIu64 " bytes could not be written: %s\n", unwritten_, strerror(write_error_));
  }
  char name[64];
  snprintf(name, sizeof name, "log.%s.gap", stream_);
  int fd = ::open(name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0640);
  if (fd < 0) return;
  if (::write(fd, note.c_str(), note.size()) < 0) write_error_ = errno;
  close(fd);
}

void LogWriter::remember(const char* bytes, size_t size) {
  seen_ += size;
  if (size > kLastWordsBytes) {
    bytes += size - kLastWordsBytes;
    size = kLastWordsBytes;
  }
  size_t at = (seen_ - size) % kLastWordsBytes;
  size_t first = kLastWordsBytes - at < size ? kLastWordsBytes - at : size;
  memcpy(ring_ + at, bytes, first);
  memcpy(ring_, bytes + first, size - first);
}

size_t LogWriter::last_words(char* out) const {
  if (seen_ <= kLastWordsBytes) {
    memcpy(out, ring_, seen_);
    return seen_;
  }
  size_t at = seen_ % kLastWordsBytes;
  memcpy(out, ring_ + at, kLastWordsBytes - at);
  memcpy(out + kLastWordsBytes - at, ring_, at);
  return kLastWordsBytes;
}

}  // namespace regrow::shim
