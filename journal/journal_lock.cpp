#include "journal/journal_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>
#include <sstream>
#include <utility>
#include <vector>

namespace regrow {

namespace {

std::string read_text(const std::string& path) {
  std::ifstream in(path);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

// Field 22 of /proc/PID/stat, counted after the command's closing parenthesis; empty if it is gone.
std::string start_time_of(const std::string& pid) {
  std::string stat = read_text("/proc/" + pid + "/stat");
  size_t paren = stat.rfind(')');
  if (paren == std::string::npos) return {};
  std::istringstream fields(stat.substr(paren + 1));
  std::string field;
  for (int number = 3; number <= 22; ++number) fields >> field;
  return field;
}

std::string command_of(const std::string& pid) {
  std::string command = read_text("/proc/" + pid + "/cmdline");
  for (char& c : command) {
    if (c == '\0') c = ' ';
  }
  while (!command.empty() && command.back() == ' ') command.pop_back();
  return command.size() > 120 ? command.substr(0, 117) + "..." : command;
}

JournalError held_by(const std::string& path) {
  std::istringstream text(read_text(path));
  std::string pid, start_time;
  text >> pid >> start_time;
  std::string who = "another process";
  if (!pid.empty()) {
    who = "process " + pid;
    // The lock may be held by a process that inherited it, after the one that took it has gone.
    if (start_time_of(pid) == start_time)
      who += " (" + command_of(pid) + ")";
    else
      who += " or one that it started";
  }
  return {JournalFault::in_use, path + ": this journal is open in " + who +
                                    ". Stop that one first, or name another state directory."};
}

}  // namespace

JournalResult<JournalLock> JournalLock::take(const std::string& path) {
  int fd = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (fd < 0) {
    int code = errno;
    return JournalError{
        code == ENOSPC ? JournalFault::no_space : JournalFault::io,
        path + ": cannot be opened for writing: " + std::strerror(code) +
            ". The journal's directory must exist and belong to the user who runs regrow."};
  }
  JournalLock lock(fd);
  if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
    int code = errno;
    if (code == EWOULDBLOCK) return held_by(path);
    return JournalError{JournalFault::io,
                        path + ": cannot be locked: " + std::strerror(code) +
                            ". The journal needs a file system with working locks."};
  }
  std::string self = std::to_string(getpid());
  std::string text = self + " " + start_time_of(self) + "\n";
  // Only for people: a full disk must not keep the journal from opening (and freeing its ballast).
  if (ftruncate(fd, 0) == 0) {
    [[maybe_unused]] ssize_t written = pwrite(fd, text.data(), text.size(), 0);
  }
  return lock;
}

JournalLock::JournalLock(JournalLock&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}

JournalLock& JournalLock::operator=(JournalLock&& other) noexcept {
  std::swap(fd_, other.fd_);
  return *this;
}

JournalLock::~JournalLock() {
  if (fd_ >= 0) close(fd_);
}

}  // namespace regrow
