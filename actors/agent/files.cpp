#include "actors/agent/files.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

namespace regrow {
namespace {

bool write_all(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    ssize_t n = write(fd, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    bytes.remove_prefix(static_cast<size_t>(n));
  }
  return true;
}

// How many bytes the UTF-8 sequence at the beginning of `text` has; 0 if it is none.
size_t utf8_length(std::string_view text) {
  auto byte = [text](size_t i) { return static_cast<unsigned char>(text[i]); };
  unsigned char first = byte(0);
  if (first == 0) return 0;
  if (first < 0x80) return 1;
  size_t length = first >= 0xf0 && first < 0xf5 ? 4 : first >= 0xe0 ? 3 : first >= 0xc2 ? 2 : 0;
  if (first >= 0xf5 || length == 0 || text.size() < length) return 0;
  for (size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return 0;
  }
  unsigned char second = byte(1);
  bool overlong = (first == 0xe0 && second < 0xa0) || (first == 0xf0 && second < 0x90);
  bool surrogate = first == 0xed && second >= 0xa0;
  bool beyond = first == 0xf4 && second >= 0x90;
  return overlong || surrogate || beyond ? 0 : length;
}

}  // namespace

Fd::~Fd() {
  if (fd_ >= 0) close(fd_);
}

std::optional<std::string> read_file(const std::string& path, size_t limit) {
  Fd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd) return std::nullopt;
  std::string bytes;
  char buffer[16384];
  while (true) {
    ssize_t n = read(fd.get(), buffer, sizeof buffer);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return std::nullopt;
    if (n == 0) return bytes;
    bytes.append(buffer, static_cast<size_t>(n));
    if (bytes.size() > limit) return std::nullopt;
  }
}

std::string replace_file(const std::string& path, std::string_view bytes, unsigned mode,
                         bool durable) {
  size_t slash = path.rfind('/') + 1;
  std::string temporary = path.substr(0, slash) + "." + path.substr(slash) + ".new";
  auto failed = [&](const char* what) {
    return std::string("cannot ") + what + " " + path + ": " + strerror(errno);
  };
  {
    Fd fd(open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, mode));
    if (!fd || !write_all(fd.get(), bytes)) return failed("write");
    if (durable && fsync(fd.get()) != 0) return failed("sync");
  }
  if (rename(temporary.c_str(), path.c_str()) != 0) return failed("rename");
  if (durable) {
    Fd directory(open(path.substr(0, slash).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (!directory || fsync(directory.get()) != 0) return failed("sync the directory of");
  }
  return "";
}

std::string make_directories(const std::string& path) {
  for (size_t at = 1; at != std::string::npos;) {
    at = path.find('/', at + 1);
    std::string part = path.substr(0, at);
    if (mkdir(part.c_str(), 0711) != 0 && errno != EEXIST) {
      return "cannot make directory " + part + ": " + strerror(errno);
    }
  }
  return "";
}

bool file_exists(const std::string& path) { return access(path.c_str(), F_OK) == 0; }

int64_t wall_clock_us() {
  timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  return int64_t{now.tv_sec} * 1'000'000 + now.tv_nsec / 1000;
}

std::string valid_utf8(std::string_view text) {
  std::string valid;
  valid.reserve(text.size());
  while (!text.empty()) {
    size_t length = utf8_length(text);
    if (length == 0) {
      valid += '?';
      text.remove_prefix(1);
    } else {
      valid.append(text.substr(0, length));
      text.remove_prefix(length);
    }
  }
  return valid;
}

uint64_t stable_hash(std::string_view text) {
  uint64_t hash = 14695981039346656037ull;
  for (char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211ull;
  return hash;
}

}  // namespace regrow
