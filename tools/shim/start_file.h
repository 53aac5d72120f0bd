// The start file: what to run and how. Read once; the strings live as long as the process.
#pragma once

#include <sys/types.h>

#include <cstdint>

#include "tools/shim/text.h"

namespace regrow::shim {

struct StartFile {
  char** argv = nullptr;  // NUL-terminated lists, ready for execve
  char** envp = nullptr;
  const char* cwd = "/";
  const char* tmp = nullptr;  // wiped when all processes are gone
  bool change_user = false;
  uid_t uid = 0;
  gid_t gid = 0;
  gid_t* groups = nullptr;
  size_t group_count = 0;
  uint64_t nofile = 0;  // 0 = the hard limit
  mode_t umask = 022;
  uint64_t cap_bytes = 64ull << 20;
  uint64_t segment_bytes = 8ull << 20;
  int stop_signal = 15;
  bool stop_group = false;
  int64_t grace_us = 10'000'000;
};

// Reads "start" in the current directory. False, with a sentence in `problem`, if it cannot be
// used.
bool read_start_file(StartFile& start, Message& problem);

// The value of NAME in the rank's environment, or null.
const char* rank_variable(const StartFile& start, const char* name);

// "TERM", "SIGTERM" or "15" to 15; 0 if there is no such signal.
int signal_number(const char* name);

}  // namespace regrow::shim
