#include "tools/shim/oom.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/klog.h>
#include <unistd.h>

#include "tools/shim/rank_process.h"

namespace regrow::shim {
namespace {

// Reads a small file as a string. False if it cannot be read.
bool read_small(const char* path, char* text, size_t capacity) {
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return false;
  ssize_t n = read(fd, text, capacity - 1);
  close(fd);
  if (n < 0) return false;
  text[n] = 0;
  return true;
}

// The number behind "oom_kill " in memory.events (v2) or memory.oom_control (v1); -1 if not there.
int64_t read_counter(const char* path) {
  char text[1024];
  if (path[0] == 0 || !read_small(path, text, sizeof text)) return -1;
  for (char* line = text; line != nullptr; line = strchr(line, '\n')) {
    if (*line == '\n') ++line;
    if (strncmp(line, "oom_kill ", 9) == 0) return strtoll(line + 9, nullptr, 10);
  }
  return -1;
}

// Does the kernel log name the pid, in a line younger than `since_us` (monotonic)?
bool log_names(pid_t pid, int64_t since_us) {
  static char log[256 * 1024];
  constexpr int kReadAll = 3;
  int n = klogctl(kReadAll, log, sizeof log - 1);
  if (n <= 0) return false;
  log[n] = 0;
  char wanted[64];
  snprintf(wanted, sizeof wanted, "Killed process %d (", pid);
  for (char* at = strstr(log, wanted); at != nullptr; at = strstr(at + 1, wanted)) {
    char* line = at;
    while (line > log && line[-1] != '\n') --line;
    double seconds = 0;
    if (sscanf(line, "<%*d>[%lf]", &seconds) != 1 && sscanf(line, "[%lf]", &seconds) != 1) continue;
    // The log's clock and CLOCK_MONOTONIC drift apart a little.
    if (seconds * 1e6 >= static_cast<double>(since_us) - 2e6) return true;
  }
  return false;
}

}  // namespace

void OomWatch::begin() {
  began_us_ = monotonic_us();
  char cgroups[4096];
  if (!read_small("/proc/self/cgroup", cgroups, sizeof cgroups)) return;
  for (char *rest = nullptr, *line = strtok_r(cgroups, "\n", &rest); line != nullptr;
       line = strtok_r(nullptr, "\n", &rest)) {
    char* controllers = strchr(line, ':');
    char* group = controllers != nullptr ? strchr(controllers + 1, ':') : nullptr;
    if (group == nullptr) continue;
    *group++ = 0;
    ++controllers;
    const char* format = nullptr;
    if (strstr(controllers, "memory") != nullptr)
      format = "/sys/fs/cgroup/memory%s/memory.oom_control";
    if (*controllers == 0) format = "/sys/fs/cgroup%s/memory.events";
    if (format == nullptr) continue;
    char path[sizeof path_];
    if (snprintf(path, sizeof path, format, group) >= static_cast<int>(sizeof path)) continue;
    int64_t count = read_counter(path);
    if (count < 0) continue;
    strcpy(path_, path);
    count_ = count;
    return;
  }
}

bool OomWatch::killed(pid_t pid) const {
  if (count_ >= 0 && read_counter(path_) > count_) return true;
  return log_names(pid, began_us_);
}

}  // namespace regrow::shim
