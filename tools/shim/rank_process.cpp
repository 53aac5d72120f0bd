#include "tools/shim/rank_process.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <limits.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

namespace regrow::shim {
namespace {

[[noreturn]] void fail(int failure_fd, ExecFailure::Step step) {
  ExecFailure failure{step, errno};
  if (write(failure_fd, &failure, sizeof failure) < 0) _exit(126);
  _exit(127);
}

void reset_signals() {
  // By system call: the library refuses to touch the two signals that it keeps for itself, but a
  // parent far away may have had them ignored.
  char defaults[64] = {};  // struct sigaction as the kernel has it; all zero = SIG_DFL
  for (int number = 1; number < NSIG; ++number) {
    syscall(SYS_rt_sigaction, number, defaults, nullptr, 8);
  }
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
}

// The service's soft limits come from whoever started it; its hard limits from whoever runs the
// host.
bool set_limits(const StartFile& start) {
  static constexpr int kToHard[] = {RLIMIT_AS,       RLIMIT_CPU,   RLIMIT_DATA, RLIMIT_FSIZE,
                                    RLIMIT_MEMLOCK,  RLIMIT_NPROC, RLIMIT_RSS,  RLIMIT_SIGPENDING,
                                    RLIMIT_MSGQUEUE, RLIMIT_LOCKS};
  for (int resource : kToHard) {
    struct rlimit limit;
    if (getrlimit(static_cast<__rlimit_resource_t>(resource), &limit) != 0) continue;
    limit.rlim_cur = limit.rlim_max;
    setrlimit(static_cast<__rlimit_resource_t>(resource), &limit);
  }
  // An unlimited stack would change the layout of memory and of what exec accepts; 8 MiB is the
  // norm.
  struct rlimit stack;
  if (getrlimit(RLIMIT_STACK, &stack) == 0) {
    constexpr rlim_t kNormal = 8u << 20;
    stack.rlim_cur = stack.rlim_max < kNormal ? stack.rlim_max : kNormal;
    setrlimit(RLIMIT_STACK, &stack);
  }
  struct rlimit files;
  if (getrlimit(RLIMIT_NOFILE, &files) != 0) return false;
  if (start.nofile > 0) files.rlim_max = start.nofile;
  files.rlim_cur = files.rlim_max;
  return setrlimit(RLIMIT_NOFILE, &files) == 0;
}

void reset_scheduling(const char* original_oom_score) {
  unsigned long all[8192 / (8 * sizeof(unsigned long))];
  memset(all, 0xff, sizeof all);
  sched_setaffinity(0, sizeof all, reinterpret_cast<cpu_set_t*>(all));
  setpriority(PRIO_PROCESS, 0, 0);
  int fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
  if (fd < 0) return;
  if (write(fd, original_oom_score, strlen(original_oom_score)) < 0) errno = 0;
  close(fd);
}

bool change_user(const StartFile& start) {
  if (!start.change_user) return true;
  return setgroups(start.group_count, start.groups) == 0 && setgid(start.gid) == 0 &&
         setuid(start.uid) == 0;
}

bool write_pid_file(pid_t shim) {
  Text<128> line;
  line.add("%d %llu %d %lld\n", getpid(), start_time_of(getpid()), shim,
           static_cast<long long>(wall_clock_us()));
  return replace_file("pid", line.c_str(), line.size());
}

// execvpe, but with the rank's own PATH. Returns with errno: what the best candidate failed with.
void exec_by_path(const StartFile& start) {
  const char* program = start.argv[0];
  if (strchr(program, '/') != nullptr) {
    execve(program, start.argv, start.envp);
    return;
  }
  const char* path = rank_variable(start, "PATH");
  int worst = ENOENT;
  for (const char* at = path != nullptr ? path : "/usr/bin:/bin"; at != nullptr;) {
    const char* colon = strchr(at, ':');
    int length =
        static_cast<int>(colon != nullptr ? colon - at : static_cast<ptrdiff_t>(strlen(at)));
    char full[PATH_MAX];
    if (length > 0 && snprintf(full, sizeof full, "%.*s/%s", length, at, program) < PATH_MAX) {
      execve(full, start.argv, start.envp);
      if (errno != ENOENT && errno != ENOTDIR) {
        if (errno != EACCES) return;
        worst = EACCES;
      }
    }
    at = colon != nullptr ? colon + 1 : nullptr;
  }
  errno = worst;
}

[[noreturn]] void become_rank(const StartFile& start, int stdout_fd, int stderr_fd, int failure_fd,
                              const char* original_oom_score, pid_t shim) {
  setpgid(0, 0);
  reset_signals();
  dup2(stdout_fd, STDOUT_FILENO);
  dup2(stderr_fd, STDERR_FILENO);
  // There before the exec: without it an agent may say that the rank never ran.
  if (!write_pid_file(shim)) fail(failure_fd, ExecFailure::kPidFile);
  reset_scheduling(original_oom_score);
  if (!set_limits(start)) fail(failure_fd, ExecFailure::kLimits);
  umask(start.umask);
  if (!change_user(start)) fail(failure_fd, ExecFailure::kUser);
  // After the change of user, which clears it.
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != shim) _exit(126);
  if (chdir(start.cwd) != 0) fail(failure_fd, ExecFailure::kDirectory);
  syscall(SYS_close_range, 3u, ~0u, 4u /* CLOSE_RANGE_CLOEXEC */);
  exec_by_path(start);
  fail(failure_fd, ExecFailure::kExec);
}

}  // namespace

pid_t fork_rank(const StartFile& start, int stdout_fd, int stderr_fd, int failure_fd,
                const char* original_oom_score) {
  pid_t shim = getpid();
  pid_t pid = fork();
  if (pid == 0) {
    become_rank(start, stdout_fd, stderr_fd, failure_fd, original_oom_score, shim);
  }
  // Also here, so that a signal to the group cannot come too early; fails harmlessly after the
  // exec.
  if (pid > 0) setpgid(pid, pid);
  return pid;
}

unsigned long long start_time_of(pid_t pid) {
  char path[64], stat[1024];
  snprintf(path, sizeof path, "/proc/%d/stat", pid);
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return 0;
  ssize_t n = read(fd, stat, sizeof stat - 1);
  close(fd);
  if (n <= 0) return 0;
  stat[n] = 0;
  // The name may hold spaces and parentheses; the start time is the 20th field behind it.
  const char* at = strrchr(stat, ')');
  for (int field = 0; at != nullptr && field < 20; ++field) at = strchr(at + 1, ' ');
  return at != nullptr ? strtoull(at + 1, nullptr, 10) : 0;
}

int64_t wall_clock_us() {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  return int64_t{now.tv_sec} * 1'000'000 + now.tv_nsec / 1000;
}

int64_t monotonic_us() {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return int64_t{now.tv_sec} * 1'000'000 + now.tv_nsec / 1000;
}

bool replace_file(const char* name, const char* bytes, size_t size) {
  char temporary[64];
  snprintf(temporary, sizeof temporary, ".%s.new", name);
  int fd = open(temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (fd < 0) return false;
  bool written = write(fd, bytes, size) == static_cast<ssize_t>(size);
  close(fd);
  return written && rename(temporary, name) == 0;
}

}  // namespace regrow::shim
