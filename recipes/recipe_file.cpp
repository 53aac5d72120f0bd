#include "recipes/recipe_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <string_view>
#include <system_error>

#include "recipes/environment.h"
#include "recipes/recipe.h"

namespace regrow {
namespace {

// How much of a file that is too large is looked at to say what makes it so.
constexpr uint64_t kMostScanned = 32 << 20;
// A line this long is worth naming.
constexpr uint64_t kLongLine = 64 << 10;

class FileDescriptor {
 public:
  explicit FileDescriptor(int fd) : fd_(fd) {}
  ~FileDescriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  FileDescriptor(const FileDescriptor&) = delete;
  FileDescriptor& operator=(const FileDescriptor&) = delete;
  int get() const { return fd_; }

 private:
  int fd_;
};

ssize_t read_some(int fd, char* buffer, size_t size) {
  ssize_t n;
  do {
    n = ::read(fd, buffer, size);
  } while (n < 0 && errno == EINTR);
  return n;
}

std::string kind_of_file(mode_t mode) {
  if (S_ISDIR(mode)) return "a directory";
  if (S_ISFIFO(mode)) return "a pipe";
  if (S_ISSOCK(mode)) return "a socket";
  return "a device";
}

// Finds the longest line without keeping more than its beginning.
class LongestLine {
 public:
  void take(std::string_view chunk) {
    for (char c : chunk) {
      if (c == '\n') {
        finish_line();
      } else {
        if (length_ < 200) start_ += c;
        ++length_;
      }
    }
  }

  void finish_line() {
    if (length_ > best_length_) {
      best_length_ = length_;
      best_line_ = line_;
      best_start_ = start_;
    }
    ++line_;
    length_ = 0;
    start_.clear();
  }

  uint64_t length() const { return best_length_; }
  int line() const { return best_line_; }

  // "TPU_HOSTS" if the line reads `TPU_HOSTS: ...`; else empty.
  std::string key() const {
    size_t begin = best_start_.find_first_not_of(" -");
    if (begin == best_start_.npos) return {};
    std::string word = best_start_.substr(begin, best_start_.find(':', begin) - begin);
    return is_variable_name(word) ? word : "";
  }

 private:
  int line_ = 1;
  uint64_t length_ = 0;
  std::string start_;
  int best_line_ = 1;
  uint64_t best_length_ = 0;
  std::string best_start_;
};

void report_too_large(int fd, uint64_t size, Report& report) {
  std::string message = "the recipe has " + std::to_string(size) + " bytes; at most " +
                        std::to_string(kLargestRecipe) + " are read";
  LongestLine longest;
  std::array<char, 65536> buffer;
  for (uint64_t scanned = 0; scanned < kMostScanned;) {
    ssize_t n = read_some(fd, buffer.data(), buffer.size());
    if (n <= 0) break;
    longest.take({buffer.data(), static_cast<size_t>(n)});
    scanned += static_cast<uint64_t>(n);
  }
  longest.finish_line();
  if (longest.length() < kLongLine) return report.add({1, 1}, "", message);
  std::string what = longest.key().empty() ? "this line" : longest.key();
  report.add({longest.line(), 1}, longest.key(),
             message + "; " + what + " alone has " + std::to_string(longest.length()) +
                 " bytes: put a long list into a file and pass its path");
}

}  // namespace

bool read_recipe_file(const std::string& path, std::string& text, Report& report) {
  auto fail = [&](const std::string& message) {
    report.add({}, "", message);
    return false;
  };
  if (path.find('\0') != path.npos) return fail("the path holds a NUL character");
  // Without O_NONBLOCK, opening a pipe waits for a writer.
  FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  if (file.get() < 0) {
    std::string why = std::generic_category().message(errno);
    return fail("cannot read the recipe: " + why +
                (errno == ENOENT ? " (`regrow init` writes one)" : ""));
  }
  struct stat status {};
  if (::fstat(file.get(), &status) != 0) {
    return fail("cannot read the recipe: " + std::generic_category().message(errno));
  }
  if (!S_ISREG(status.st_mode))
    return fail("is " + kind_of_file(status.st_mode) + ", not a recipe file");
  if (static_cast<uint64_t>(status.st_size) > kLargestRecipe) {
    report_too_large(file.get(), static_cast<uint64_t>(status.st_size), report);
    return false;
  }
  std::array<char, 65536> buffer;
  while (text.size() <= kLargestRecipe) {
    ssize_t n = read_some(file.get(), buffer.data(), buffer.size());
    if (n < 0) return fail("cannot read the recipe: " + std::generic_category().message(errno));
    if (n == 0) return true;
    text.append(buffer.data(), static_cast<size_t>(n));
  }
  return fail("grew beyond " + std::to_string(kLargestRecipe) + " bytes while it was read");
}

}  // namespace regrow
