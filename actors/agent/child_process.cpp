#include "actors/agent/child_process.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>

#include "actors/agent/files.h"

namespace regrow {
namespace {

std::vector<char*> pointers(const std::vector<std::string>& strings) {
  std::vector<char*> list;
  for (const std::string& text : strings) list.push_back(const_cast<char*>(text.c_str()));
  list.push_back(nullptr);
  return list;
}

int highest_target(const ChildSpec& spec) {
  int highest = 2;
  for (auto [ours, theirs] : spec.descriptors) highest = std::max(highest, theirs);
  return highest;
}

// In the child, where other threads' locks may be held for ever: system calls only. Returns errno,
// if at all.
int become(const ChildSpec& spec, int report, char* const* argv, char* const* envp) {
  setsid();
  int null = open("/dev/null", O_RDWR);
  for (int fd = 0; fd <= 2; ++fd) dup2(null, fd);
  for (auto [ours, theirs] : spec.descriptors) dup2(ours, theirs);
  for (int fd = highest_target(spec) + 1; fd < report; ++fd) close(fd);
  syscall(SYS_close_range, report + 1, ~0u, 0);
  for (int number = 1; number < NSIG; ++number) signal(number, SIG_DFL);
  const ChildUser& user = *spec.user;
  // Not the library's calls: those are for all threads of a process.
  if (syscall(SYS_setgroups, user.groups.size(), user.groups.data()) != 0 ||
      syscall(SYS_setresgid, user.gid, user.gid, user.gid) != 0 ||
      syscall(SYS_setresuid, user.uid, user.uid, user.uid) != 0)
    return errno;
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  execve(argv[0], argv, envp);
  return errno;
}

// posix_spawn cannot change the user.
pid_t fork_child(const ChildSpec& spec) {
  auto argv = pointers(spec.arguments);
  auto envp = pointers(spec.environment);
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return -errno;
  Fd reader(ends[0]), writer(ends[1]);
  Fd report(fcntl(writer.get(), F_DUPFD_CLOEXEC, highest_target(spec) + 1));
  if (!report) return -errno;
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  pid_t pid = fork();
  if (pid == 0) {
    int error = become(spec, report.get(), argv.data(), envp.data());
    _exit(write(report.get(), &error, sizeof error) == sizeof error ? 127 : 126);
  }
  int error = pid < 0 ? errno : 0;
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (pid < 0) return -error;
  report = Fd();
  writer = Fd();
  while (read(reader.get(), &error, sizeof error) < 0 && errno == EINTR) {
  }
  if (error == 0) return pid;
  waitpid(pid, nullptr, 0);
  return -error;
}

}  // namespace

pid_t spawn_child(const ChildSpec& spec) {
  if (spec.user) return fork_child(spec);

  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  for (int fd = 0; fd <= 2; ++fd) {
    posix_spawn_file_actions_addopen(&actions, fd, "/dev/null", O_RDWR, 0);
  }
  // All of ours are above 2 and the targets ascend, so no source is overwritten before its turn as
  // long as it is not itself a later target; those few cases are callers' to avoid.
  for (auto [ours, theirs] : spec.descriptors) {
    posix_spawn_file_actions_adddup2(&actions, ours, theirs);
  }
  posix_spawn_file_actions_addclosefrom_np(&actions, highest_target(spec) + 1);

  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t none, all;
  sigemptyset(&none);
  sigfillset(&all);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setsigdefault(&attributes, &all);
  posix_spawnattr_setflags(&attributes,
                           POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSID);
  auto argv = pointers(spec.arguments);
  auto envp = pointers(spec.environment);
  pid_t pid = -1;
  int error = posix_spawn(&pid, argv[0], &actions, &attributes, argv.data(), envp.data());
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&actions);
  return error == 0 ? pid : -error;
}

}  // namespace regrow
