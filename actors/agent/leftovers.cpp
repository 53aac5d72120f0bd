#include "actors/agent/leftovers.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "actors/agent/files.h"

namespace regrow {
namespace {

bool carries_marker(uint64_t pid, const std::string& entry) {
  auto environment = read_file("/proc/" + std::to_string(pid) + "/environ", 16u << 20);
  if (!environment) return false;
  for (size_t at = environment->find(entry); at != std::string::npos;
       at = environment->find(entry, at + 1)) {
    bool begins = at == 0 || (*environment)[at - 1] == '\0';
    size_t end = at + entry.size();
    if (begins && (end == environment->size() || (*environment)[end] == '\0')) return true;
  }
  return false;
}

// Holds the process by a descriptor while it is looked at, so that its number cannot change hands.
void check_and_kill(uint64_t pid, const std::string& entry, uint64_t leader, uint64_t not_before,
                    LeftoverScan& scan) {
  Fd handle(static_cast<int>(syscall(SYS_pidfd_open, static_cast<pid_t>(pid), 0)));
  if (!handle) return;
  ProcessStat stat = read_process_stat(pid);
  if (stat.state == 0 || stat.state == 'Z' || stat.state == 'X') return;
  bool is_leader = pid == leader && stat.start_time == not_before;
  if (!is_leader && (stat.start_time < not_before || !carries_marker(pid, entry))) return;
  ++scan.found;
  if (syscall(SYS_pidfd_send_signal, handle.get(), SIGKILL, nullptr, 0) != 0 && errno == EPERM) {
    ++scan.refused;
  }
}

}  // namespace

LeftoverScan kill_leftovers(const std::string& marker, uint64_t leader, uint64_t not_before) {
  LeftoverScan scan;
  std::string entry = "REGROW_INCARNATION=" + marker;
  std::unique_ptr<DIR, int (*)(DIR*)> proc(opendir("/proc"), closedir);
  if (!proc) return scan;
  auto self = static_cast<uint64_t>(getpid());
  while (dirent* item = readdir(proc.get())) {
    if (!isdigit(static_cast<unsigned char>(item->d_name[0]))) continue;
    uint64_t pid = strtoull(item->d_name, nullptr, 10);
    if (pid != self && pid > 1) check_and_kill(pid, entry, leader, not_before, scan);
  }
  return scan;
}

ProcessStat read_process_stat(uint64_t pid) {
  auto text = read_file("/proc/" + std::to_string(pid) + "/stat", 8192);
  ProcessStat stat;
  if (!text) return stat;
  // The name may hold spaces and parentheses; the state follows it, 19 fields on is the start time.
  size_t at = text->rfind(')');
  if (at == std::string::npos || at + 2 >= text->size()) return stat;
  stat.state = (*text)[at + 2];
  at += 2;
  for (int field = 0; field < 19 && at != std::string::npos; ++field) at = text->find(' ', at + 1);
  if (at != std::string::npos) stat.start_time = strtoull(text->c_str() + at + 1, nullptr, 10);
  return stat;
}

}  // namespace regrow
