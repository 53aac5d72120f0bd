#include "tools/shim/start_file.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "actors/agent/shim_protocol.h"

namespace regrow::shim {
namespace {

// The whole file with a NUL behind it; null on error (errno says why).
char* read_whole(const char* path, size_t* size) {
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return nullptr;
  struct stat st;
  if (fstat(fd, &st) != 0) return nullptr;
  char* bytes = static_cast<char*>(malloc(static_cast<size_t>(st.st_size) + 1));
  if (bytes == nullptr) return nullptr;
  size_t have = 0;
  while (have < static_cast<size_t>(st.st_size)) {
    ssize_t n = read(fd, bytes + have, static_cast<size_t>(st.st_size) - have);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) break;
    have += static_cast<size_t>(n);
  }
  close(fd);
  bytes[have] = 0;
  *size = have;
  return bytes;
}

void set_value(StartFile& start, const char* key, const char* value) {
  auto number = [value] { return strtoull(value, nullptr, 10); };
  auto is = [key](const char* name) { return strcmp(key, name) == 0; };
  if (is("cwd")) start.cwd = value;
  if (is("tmp")) start.tmp = value;
  if (is("uid")) start.uid = static_cast<uid_t>(number()), start.change_user = true;
  if (is("gid")) start.gid = static_cast<gid_t>(number());
  if (is("nofile")) start.nofile = number();
  if (is("umask")) start.umask = static_cast<mode_t>(strtoul(value, nullptr, 8));
  if (is("cap_bytes")) start.cap_bytes = number();
  if (is("segment_bytes")) start.segment_bytes = number();
  if (is("stop_signal")) start.stop_signal = signal_number(value);
  if (is("stop_scope")) start.stop_group = strcmp(value, "group") == 0;
  if (is("grace_us")) start.grace_us = static_cast<int64_t>(number());
}

}  // namespace

bool read_start_file(StartFile& start, Message& problem) {
  size_t size = 0;
  char* bytes = read_whole("start", &size);
  if (bytes == nullptr) {
    problem.add("cannot read the start file: %s", strerror(errno));
    return false;
  }
  if (size < sizeof kStartMagic || memcmp(bytes, kStartMagic, sizeof kStartMagic) != 0) {
    problem.add("the start file is of another version; this regrow-shim reads '%s'", kStartMagic);
    return false;
  }
  // One record is at least two NULs long, which bounds how many pointers the lists need.
  size_t most = size / 2 + 1;
  start.argv = static_cast<char**>(calloc(most, sizeof(char*)));
  start.envp = static_cast<char**>(calloc(most, sizeof(char*)));
  start.groups = static_cast<gid_t*>(calloc(most, sizeof(gid_t)));
  if (start.argv == nullptr || start.envp == nullptr || start.groups == nullptr) {
    problem.add("out of memory reading a start file of %zu bytes", size);
    return false;
  }
  size_t argc = 0, envc = 0;
  bool complete = false;
  char* at = bytes + sizeof kStartMagic;
  char* end = bytes + size;
  while (at < end && !complete) {
    char* key = at;
    char* value = key + strlen(key) + 1;
    if (value >= end) break;
    at = value + strlen(value) + 1;
    if (strcmp(key, "end") == 0) {
      complete = true;
    } else if (strcmp(key, "arg") == 0) {
      start.argv[argc++] = value;
    } else if (strcmp(key, "env") == 0) {
      start.envp[envc++] = value;
    } else if (strcmp(key, "group") == 0) {
      start.groups[start.group_count++] = static_cast<gid_t>(strtoul(value, nullptr, 10));
    } else {
      set_value(start, key, value);
    }
  }
  if (!complete || argc == 0) {
    problem.add("the start file is %s", complete ? "without a command" : "cut short");
    return false;
  }
  return true;
}

const char* rank_variable(const StartFile& start, const char* name) {
  size_t length = strlen(name);
  for (char** entry = start.envp; *entry != nullptr; ++entry) {
    if (strncmp(*entry, name, length) == 0 && (*entry)[length] == '=') return *entry + length + 1;
  }
  return nullptr;
}

int signal_number(const char* name) {
  if (strncmp(name, "SIG", 3) == 0) name += 3;
  if (*name >= '0' && *name <= '9') {
    int number = atoi(name);
    return number > 0 && number <= SIGRTMAX ? number : 0;
  }
  for (int number = 1; number < NSIG; ++number) {
    const char* known = sigabbrev_np(number);
    if (known != nullptr && strcmp(known, name) == 0) return number;
  }
  return 0;
}

}  // namespace regrow::shim
