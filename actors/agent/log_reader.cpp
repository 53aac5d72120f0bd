#include "actors/agent/log_reader.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <memory>

#include "actors/agent/files.h"

namespace regrow {
namespace {

constexpr size_t kMostChunkBytes = 1u << 20;
constexpr uint64_t kMostTailBytes = 8u << 20;

struct FileInfo {
  uint64_t size = 0;
  int64_t written_us = 0;
};

FileInfo stat_file(const std::string& path) {
  struct stat st;
  if (stat(path.c_str(), &st) != 0) return {};
  return {static_cast<uint64_t>(st.st_size),
          int64_t{st.st_mtim.tv_sec} * 1'000'000 + st.st_mtim.tv_nsec / 1000};
}

}  // namespace

LogReader::LogReader(std::string directory, std::string stream, shim::LogLayout layout)
    : prefix_(directory + "/log." + stream + "."),
      directory_(std::move(directory)),
      name_prefix_("log." + stream + "."),
      layout_(layout) {}

LogExtent LogReader::extent() const {
  FileInfo head = stat_file(prefix_ + "head");
  LogExtent extent{head.size, head.size, head.size, head.written_us};
  if (head.size < layout_.segment_bytes) return extent;
  std::unique_ptr<DIR, int (*)(DIR*)> stream(opendir(directory_.c_str()), closedir);
  if (!stream) return extent;
  uint64_t oldest = UINT64_MAX, newest = 0;
  while (dirent* entry = readdir(stream.get())) {
    std::string_view name = entry->d_name;
    if (!name.starts_with(name_prefix_)) continue;
    name.remove_prefix(name_prefix_.size());
    uint64_t index = 0;
    auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), index);
    if (error != std::errc() || end != name.data() + name.size()) continue;
    oldest = std::min(oldest, index);
    newest = std::max(newest, index);
  }
  if (oldest == UINT64_MAX) return extent;
  // A directory read while files come and go may miss some: at most `tail_files` are really there.
  if (newest >= layout_.tail_files) oldest = std::max(oldest, newest + 1 - layout_.tail_files);
  FileInfo last = stat_file(prefix_ + std::to_string(newest));
  extent.tail_begin = layout_.segment_bytes * (oldest + 1);
  extent.end = layout_.segment_bytes * (newest + 1) + last.size;
  if (last.written_us != 0) extent.written_us = last.written_us;
  return extent;
}

std::string LogReader::file_of(uint64_t position, uint64_t& offset) const {
  offset = position % layout_.segment_bytes;
  uint64_t file = position / layout_.segment_bytes;
  return prefix_ + (file == 0 ? "head" : std::to_string(file - 1));
}

std::string LogReader::read(const LogExtent& extent, uint64_t position, size_t most) const {
  uint64_t limit = position < extent.head_end && extent.gap() > 0 ? extent.head_end : extent.end;
  std::string bytes;
  while (bytes.size() < most && position < limit) {
    uint64_t offset = 0;
    Fd fd(open(file_of(position, offset).c_str(), O_RDONLY | O_CLOEXEC));
    if (!fd) break;
    size_t want =
        std::min<uint64_t>({most - bytes.size(), limit - position, layout_.segment_bytes - offset});
    size_t have = bytes.size();
    bytes.resize(have + want);
    ssize_t n = pread(fd.get(), bytes.data() + have, want, static_cast<off_t>(offset));
    bytes.resize(have + static_cast<size_t>(std::max<ssize_t>(n, 0)));
    if (n <= 0) break;
    position += static_cast<uint64_t>(n);
  }
  return bytes;
}

uint64_t LogReader::position_of_tail(const LogExtent& extent, uint32_t lines) const {
  constexpr uint64_t kBlock = 64 * 1024;
  uint64_t floor = extent.gap() > 0 ? extent.tail_begin : 0;
  if (extent.end - floor > kMostTailBytes) floor = extent.end - kMostTailBytes;
  uint64_t position = extent.end;
  bool last_byte =
      true;  // a newline at the very end closes the last line, it does not begin another
  while (position > floor) {
    uint64_t begin = position - std::min(kBlock, position - floor);
    std::string block = read(extent, begin, position - begin);
    for (size_t i = block.size(); i > 0; --i) {
      bool newline = block[i - 1] == '\n';
      if (newline && !last_byte && --lines == 0) return begin + i;
      last_byte = false;
    }
    position = begin;
  }
  return floor;
}

LogChunk LogReader::chunk(const LogQuery& query) const {
  LogChunk chunk;
  LogExtent extent = this->extent();
  uint64_t position = std::min(query.offset, extent.end);
  if (query.tail_lines > 0) position = position_of_tail(extent, query.tail_lines);
  if (position >= extent.head_end && position < extent.tail_begin) {
    chunk.note = std::to_string(extent.tail_begin - position) + " bytes dropped here (log limit)";
    position = extent.tail_begin;
  }
  size_t most = std::min<size_t>(query.max_bytes == 0 ? 65536 : query.max_bytes, kMostChunkBytes);
  chunk.data = read(extent, position, most);
  chunk.next_offset = position + chunk.data.size();
  chunk.at_end = chunk.next_offset >= extent.end;
  return chunk;
}

}  // namespace regrow
