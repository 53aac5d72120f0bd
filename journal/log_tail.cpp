#include "journal/log_tail.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <vector>

namespace regrow {

namespace {

namespace fs = std::filesystem;

// Blocks of 32 KiB hold fragments: checksum (4 bytes), length (2), type (1), then the payload. The
// last bytes of a block that are too few for a header are padding.
constexpr uint64_t kBlock = 32768;
constexpr uint64_t kHeader = 7;
enum FragmentType : uint8_t { kZero, kFull, kFirst, kMiddle, kLast, kSetCompression = 9 };

// Offset behind the last complete record; the size for a log that we do not understand.
uint64_t complete_end(std::ifstream& in, uint64_t size) {
  uint64_t complete = 0;
  for (uint64_t at = 0; at + kHeader <= size;) {
    uint64_t left_in_block = kBlock - at % kBlock;
    if (left_in_block < kHeader) {
      at += left_in_block;
      continue;
    }
    unsigned char header[kHeader];
    in.seekg(static_cast<std::streamoff>(at));
    if (!in.read(reinterpret_cast<char*>(header), kHeader)) return size;
    uint64_t length = header[4] | header[5] << 8;
    uint8_t type = header[6];
    uint64_t next = at + kHeader + length;
    if (type == kZero || kHeader + length > left_in_block || next > size) return complete;
    if (type > kLast && type != kSetCompression) return size;
    at = next;
    if (type == kFull || type == kLast || type == kSetCompression) complete = at;
  }
  return complete;
}

}  // namespace

LogTail look_at_log_tail(const std::string& database) {
  LogTail tail;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(database, error)) {
    if (entry.path().extension() == ".log") tail.file = std::max(tail.file, entry.path().string());
  }
  if (tail.file.empty()) return tail;
  uint64_t size = fs::file_size(tail.file, error);
  std::ifstream in(tail.file, std::ios::binary);
  if (error || !in) return tail;
  tail.unfinished_bytes = size - std::min(size, complete_end(in, size));
  return tail;
}

}  // namespace regrow
