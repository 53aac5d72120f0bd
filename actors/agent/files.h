// Small file helpers of the agent. Blocking, local disk only; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace regrow {

// An owned descriptor. Always close-on-exec: what is inherited is chosen one by one.
class Fd {
 public:
  Fd() = default;
  explicit Fd(int fd) : fd_(fd) {}
  Fd(Fd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Fd& operator=(Fd&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Fd();
  int get() const { return fd_; }
  int release() { return std::exchange(fd_, -1); }
  explicit operator bool() const { return fd_ >= 0; }

 private:
  int fd_ = -1;
};

// The file's bytes; nothing if it cannot be read or has more than `limit` bytes.
std::optional<std::string> read_file(const std::string& path, size_t limit = 64u << 20);

// Writes beside the file and renames into place. With `durable`, file and directory reach the disk
// first. Returns an error text, empty if all went well.
std::string replace_file(const std::string& path, std::string_view bytes, unsigned mode = 0644,
                         bool durable = false);

// Makes a directory and its parents (mode 0711). Returns an error text.
std::string make_directories(const std::string& path);

bool file_exists(const std::string& path);
int64_t wall_clock_us();

// The text with everything that is not UTF-8, and every NUL, replaced by '?'.
std::string valid_utf8(std::string_view text);

// FNV-1a: the same on every machine and in every build, unlike std::hash.
uint64_t stable_hash(std::string_view text);

}  // namespace regrow
