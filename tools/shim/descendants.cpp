#include "tools/shim/descendants.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

namespace regrow::shim {
namespace {

// The parent of a process, from /proc; -1 if it is gone.
pid_t parent_of(const char* pid) {
  char path[300], stat[512];
  snprintf(path, sizeof path, "/proc/%s/stat", pid);
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return -1;
  ssize_t n = read(fd, stat, sizeof stat - 1);
  close(fd);
  if (n <= 0) return -1;
  stat[n] = 0;
  const char* name_end = strrchr(stat, ')');
  char state;
  int parent;
  if (name_end == nullptr || sscanf(name_end + 1, " %c %d", &state, &parent) != 2) return -1;
  return parent;
}

// The slow way, for kernels without task/TID/children.
size_t kill_children_by_scan() {
  DIR* proc = opendir("/proc");
  if (proc == nullptr) return 0;
  size_t killed = 0;
  while (dirent* entry = readdir(proc)) {
    if (!isdigit(static_cast<unsigned char>(entry->d_name[0]))) continue;
    if (parent_of(entry->d_name) != getpid()) continue;
    if (kill(atoi(entry->d_name), SIGKILL) == 0) ++killed;
  }
  closedir(proc);
  return killed;
}

// Kills this process's direct children as listed by the kernel; -1 if it keeps no such list.
ssize_t kill_listed_children() {
  char path[64], list[4096];
  snprintf(path, sizeof path, "/proc/self/task/%d/children", getpid());
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return -1;
  ssize_t n = read(fd, list, sizeof list - 1);
  close(fd);
  if (n < 0) return -1;
  list[n] = 0;
  ssize_t killed = 0;
  char* at = list;
  while (true) {
    char* end;
    long pid = strtol(at, &end, 10);
    // A number cut off at the end of the buffer would name somebody else.
    if (end == at || *end != ' ') break;
    if (pid > 1 && kill(static_cast<pid_t>(pid), SIGKILL) == 0) ++killed;
    at = end;
  }
  return killed;
}

void remove_contents(int directory, int depth) {
  DIR* stream = fdopendir(directory);
  if (stream == nullptr) {
    close(directory);
    return;
  }
  while (dirent* entry = readdir(stream)) {
    const char* name = entry->d_name;
    if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0) continue;
    if (unlinkat(directory, name, 0) == 0 || depth == 0) continue;
    int below = openat(directory, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (below < 0) continue;
    fchmod(below, 0700);
    remove_contents(below, depth - 1);
    unlinkat(directory, name, AT_REMOVEDIR);
  }
  closedir(stream);
}

}  // namespace

size_t kill_children() {
  ssize_t killed = kill_listed_children();
  return killed >= 0 ? static_cast<size_t>(killed) : kill_children_by_scan();
}

bool reap_children(pid_t keep) {
  while (true) {
    siginfo_t info = {};
    if (waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) != 0) {
      if (errno == EINTR) continue;
      return false;
    }
    if (info.si_pid == 0 || info.si_pid == keep) return true;
    waitpid(info.si_pid, nullptr, WNOHANG);
  }
}

void remove_tree(const char* path) {
  int directory = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (directory < 0) return;
  remove_contents(directory, 64);
  rmdir(path);
}

}  // namespace regrow::shim
