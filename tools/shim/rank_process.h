// Forks the rank and puts it into the state that a rank may count on; says in words why an exec
// failed.
//
// What a rank inherits is set, never passed on by accident: descriptors 0, 1, 2 only, empty signal
// mask, default dispositions, limits, all CPUs, umask, its own process group, and death if the shim
// dies.
#pragma once

#include <sys/types.h>

#include "tools/shim/start_file.h"
#include "tools/shim/text.h"

namespace regrow::shim {

// Comes back through a close-on-exec pipe if the rank could not be exec'ed.
struct ExecFailure {
  enum Step { kPidFile, kLimits, kUser, kDirectory, kExec, kDied };
  int step;
  int error;  // errno
};

// Does not return in the child. -1 with errno on failure.
pid_t fork_rank(const StartFile& start, int stdout_fd, int stderr_fd, int failure_fd,
                const char* original_oom_score);

// A sentence for a person: what could not be started, why, and what to do.
void explain(const ExecFailure& failure, const StartFile& start, Message& message);

// Clock ticks since boot at which `pid` started, from /proc; 0 if there is no such process.
unsigned long long start_time_of(pid_t pid);

int64_t wall_clock_us();
int64_t monotonic_us();

// Writes a small file under a temporary name and renames it into place. False on error.
bool replace_file(const char* name, const char* bytes, size_t size);

}  // namespace regrow::shim
