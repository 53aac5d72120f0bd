#include "tools/shim/shim.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "actors/agent/shim_protocol.h"
#include "tools/shim/descendants.h"

namespace regrow::shim {
namespace {

constexpr size_t kReadBytes = 256 * 1024;
constexpr size_t kMostPerTurn = 2 * kReadBytes;  // of one stream, before the others get their turn
constexpr int64_t kSweepLimit_us = 30'000'000;
constexpr int64_t kDrainLimit_us = 250'000;

char read_buffer[kReadBytes];

// Keeps the OOM killer away from the shim, where we may, and remembers what the rank shall have.
void protect_from_oom(char (&original)[16]) {
  strcpy(original, "0");
  int fd = open("/proc/self/oom_score_adj", O_RDWR | O_CLOEXEC);
  if (fd < 0) return;
  ssize_t n = read(fd, original, sizeof original - 1);
  original[n > 0 ? n : 0] = 0;
  if (write(fd, "-900", 4) < 0) errno = 0;  // needs a privilege
  close(fd);
}

}  // namespace

int Shim::run() {
  Message problem;
  if (!read_start_file(start_, problem) || !set_up(problem) || !launch(problem)) {
    refuse(problem);
    return 1;
  }
  loop();
  return 0;
}

bool Shim::set_up(Message& problem) {
  sigset_t all, child;
  sigfillset(&all);
  sigprocmask(SIG_SETMASK, &all, nullptr);  // only KILL ends a shim
  sigemptyset(&child);
  sigaddset(&child, SIGCHLD);
  signal_fd_ = signalfd(-1, &child, SFD_CLOEXEC | SFD_NONBLOCK);
  prctl(PR_SET_CHILD_SUBREAPER, 1);

  listen_fd_ = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  strcpy(address.sun_path, "sock");  // relative: the full path may be longer than a socket's may be
  umask(0077);
  bool listening = bind(listen_fd_, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0 &&
                   listen(listen_fd_, kMostClients) == 0;
  umask(0022);
  if (signal_fd_ < 0 || !listening) {
    problem.add("regrow-shim cannot set up its socket: %s", strerror(errno));
    return false;
  }
  struct stat st;
  if (fstat(kFirstClientFd, &st) == 0 && S_ISSOCK(st.st_mode)) {
    fcntl(kFirstClientFd, F_SETFD, FD_CLOEXEC);
    add_client(kFirstClientFd);
  }
  return true;
}

bool Shim::launch(Message& problem) {
  int write_ends[2];
  int failure[2];
  for (int i = 0; i < 2; ++i) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) {
      problem.add("regrow-shim cannot make a pipe: %s", strerror(errno));
      return false;
    }
    fcntl(ends[0], F_SETFL, O_NONBLOCK);
    fcntl(ends[1], F_SETPIPE_SZ, 1 << 20);  // the more, the shorter a flooding rank waits
    // Else a rank with a user of its own could not open /dev/stderr.
    if (start_.change_user && fchown(ends[1], start_.uid, start_.gid) != 0) errno = 0;
    streams_[i].fd = ends[0];
    streams_[i].log.open(streams_[i].name, start_.cap_bytes, start_.segment_bytes);
    write_ends[i] = ends[1];
  }
  if (pipe2(failure, O_CLOEXEC) != 0) {
    problem.add("regrow-shim cannot make a pipe: %s", strerror(errno));
    return false;
  }
  char oom_score[16];
  protect_from_oom(oom_score);
  leader_ = pid_ = fork_rank(start_, write_ends[0], write_ends[1], failure[1], oom_score);
  if (pid_ < 0) {
    problem.add("cannot fork: %s", strerror(errno));
    if (errno == EAGAIN) problem.add("; too many processes for this user or cgroup");
    return false;
  }
  close(write_ends[0]);
  close(write_ends[1]);
  close(failure[1]);
  failure_fd_ = failure[0];
  start_time_ = start_time_of(pid_);
  oom_.begin();
  return true;
}

// Nothing was started: say why, in the place where the end is looked for.
void Shim::refuse(const Message& problem) {
  message_ = problem;
  group_gone_us_ = wall_clock_us();
  write_exit("never_started");
  phase_ = Phase::kDone;
  tell_all();
}

void Shim::loop() {
  while (phase_ != Phase::kDone) {
    pollfd fds[5 + kMostClients] = {{signal_fd_, POLLIN, 0},
                                    {listen_fd_, POLLIN, 0},
                                    {failure_fd_, POLLIN, 0},  // negative ones are ignored
                                    {streams_[0].fd, POLLIN, 0},
                                    {streams_[1].fd, POLLIN, 0}};
    int clients = client_count_;
    for (int i = 0; i < clients; ++i) fds[5 + i] = {clients_[i], POLLIN, 0};
    if (poll(fds, static_cast<nfds_t>(5 + clients), poll_timeout_ms()) < 0 && errno != EINTR)
      return;
    // The exec's outcome before the end: a short rank can show both at once.
    if (fds[2].revents != 0) on_failure_pipe();
    for (int i = 0; i < 2; ++i) {
      if (fds[3 + i].revents != 0) drain(streams_[i], kMostPerTurn);
    }
    for (int i = clients - 1; i >= 0; --i) {
      if (fds[5 + i].revents != 0) on_client(i);
    }
    if (fds[1].revents != 0) accept_client();
    if (fds[0].revents != 0) on_signal();
    check_deadline();
    if (phase_ == Phase::kEnding) sweep();
  }
}

int Shim::poll_timeout_ms() const {
  if (phase_ == Phase::kEnding) return sweeps_ < 10 ? 1 : 50;
  if (deadline_us_ == 0) return -1;
  int64_t left_us = deadline_us_ - monotonic_us();
  return left_us <= 0 ? 0 : static_cast<int>(left_us / 1000 + 1);
}

void Shim::on_failure_pipe() {
  failed_ = read(failure_fd_, &failure_, sizeof failure_) == static_cast<ssize_t>(sizeof failure_);
  close(failure_fd_);
  failure_fd_ = -1;
  if (failed_) return;  // its end follows
  started_us_ = wall_clock_us();
  if (phase_ == Phase::kStarting) phase_ = Phase::kRunning;
  tell_all();
}

void Shim::on_signal() {
  signalfd_siginfo ignored[8];
  while (read(signal_fd_, ignored, sizeof ignored) > 0) {
  }
  reap_children(leader_);
  if (leader_ == 0) return;
  siginfo_t info = {};
  if (waitid(P_PID, static_cast<id_t>(leader_), &info, WEXITED | WNOHANG | WNOWAIT) != 0) return;
  if (info.si_pid == 0) return;
  // The zombie still holds the group's number: what is signalled now cannot be somebody else's
  // group.
  kill(-leader_, SIGKILL);
  int status = 0;
  waitpid(leader_, &status, 0);
  on_leader_ended(status);
}

void Shim::on_leader_ended(int status) {
  if (failure_fd_ >= 0) on_failure_pipe();
  leader_ended_us_ = wall_clock_us();
  leader_ = 0;
  deadline_us_ = 0;
  if (WIFEXITED(status)) exit_code_ = WEXITSTATUS(status);
  if (WIFSIGNALED(status)) exit_signal_ = WTERMSIG(status);
  if (exit_signal_ == SIGKILL && !ended_by_us_) out_of_memory_ = oom_.killed(pid_);
  sweep_until_us_ = monotonic_us() + kSweepLimit_us;
  phase_ = Phase::kEnding;
}

// Everything the rank started gets KILL until nothing is left, or until time is up.
void Shim::sweep() {
  ++sweeps_;
  // A few turns without waiting: most leftovers die in microseconds.
  for (int turn = 0; turn < 3; ++turn) {
    if (!reap_children(0)) {
      group_gone_us_ = wall_clock_us();
      return finish();
    }
    kill_children();
  }
  if (monotonic_us() < sweep_until_us_) return;
  message_.add("%ssome of its processes could not be ended within %" PRId64 " s",
               message_.empty() ? "" : "; ", kSweepLimit_us / 1'000'000);
  finish();
}

void Shim::finish() {
  // Strangers may hold the pipes, so an end of file may never come; what is there now is all that
  // is ours.
  int64_t until_us = monotonic_us() + kDrainLimit_us;
  for (Stream& stream : streams_) {
    while (drain(stream, kMostPerTurn) && monotonic_us() < until_us) {
    }
    stream.log.finish();
  }
  if (failed_) explain(failure_, start_, message_);
  if (failed_) exit_code_ = 0;  // that of the fork, not of a program
  write_exit(failed_ ? "never_started" : "exited");
  phase_ = Phase::kDone;
  tell_all();
  if (start_.tmp != nullptr && group_gone_us_ != 0) remove_tree(start_.tmp);
  // After the news: a reboot voids the incarnation, so this only helps whoever looks into it later.
  int fd = open("exit", O_RDONLY | O_CLOEXEC);
  if (fd >= 0) fsync(fd);
  int directory = open(".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (directory >= 0) fsync(directory);
}

void Shim::write_exit(const char* state) {
  Text<4096> head;
  head.add("%s\nstate %s\ncode %d\nsignal %d\nended_by_us %d\nforced %d\nout_of_memory %d\n",
           kExitMagic, state, exit_code_, exit_signal_, ended_by_us_, forced_, out_of_memory_);
  head.add("pid %d\nstart_time %llu\nstarted_us %" PRId64 "\nleader_ended_us %" PRId64
           "\ngroup_gone_us %" PRId64 "\nmessage %s\n",
           failed_ ? 0 : pid_, failed_ ? 0 : start_time_, started_us_, leader_ended_us_,
           group_gone_us_, message_.c_str());
  static char all[4096 + 2 * (kLastWordsBytes + 64)];
  size_t size = head.size();
  memcpy(all, head.c_str(), size);
  for (const Stream& stream : streams_) {
    static char words[kLastWordsBytes];
    size_t length = stream.log.last_words(words);
    size += static_cast<size_t>(snprintf(all + size, 64, "%s %zu%s\n", stream.name, length,
                                         stream.log.last_words_cut() ? " cut" : ""));
    memcpy(all + size, words, length);
    size += length;
  }
  if (replace_file("exit", all, size)) return;
  // A full disk may still have room for what matters most.
  head.add("stdout 0\nstderr 0\n");
  replace_file("exit", head.c_str(), head.size());
}

void Shim::tell(int client) const {
  Text<kMaxPacketBytes> news;
  if (phase_ == Phase::kDone) {
    news.add("ended");
  } else if (started_us_ != 0) {
    news.add("started %d %llu %" PRId64, pid_, start_time_, started_us_);
  } else {
    news.add("starting");
  }
  send(client, news.c_str(), news.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
}

void Shim::tell_all() const {
  for (int i = 0; i < client_count_; ++i) tell(clients_[i]);
}

void Shim::add_client(int fd) {
  if (client_count_ == kMostClients) {
    close(fd);
    return;
  }
  fcntl(fd, F_SETFL, O_NONBLOCK);
  clients_[client_count_++] = fd;
}

void Shim::accept_client() {
  int fd = accept4(listen_fd_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
  if (fd < 0) return;
  ucred peer = {};
  socklen_t size = sizeof peer;
  bool known = getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0;
  if (!known || (peer.uid != geteuid() && peer.uid != 0)) {
    close(fd);
    return;
  }
  tell(fd);
  add_client(fd);
}

void Shim::on_client(int index) {
  int fd = clients_[index];
  char packet[kMaxPacketBytes + 1];
  ssize_t n = recv(fd, packet, kMaxPacketBytes, MSG_DONTWAIT);
  // An agent that ends with news of ours unread resets the connection; its last command is still
  // behind.
  if (n < 0 && errno == ECONNRESET) n = recv(fd, packet, kMaxPacketBytes, MSG_DONTWAIT);
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (n <= 0) {
    clients_[index] = clients_[--client_count_];
    close(fd);
    return;
  }
  packet[n] = 0;
  if (strncmp(packet, "status", 6) == 0) return tell(fd);
  obey(packet);
}

void Shim::obey(const char* command) {
  char signal[32] = {}, scope[16] = {};
  long long grace_us = 0;
  if (strncmp(command, "kill", 4) == 0) {
    forced_ = forced_ || leader_ != 0;
    kill_all();
  } else if (sscanf(command, "stop %31s %15s %lld", signal, scope, &grace_us) == 3) {
    int number = signal_number(signal);
    stop(number != 0 ? number : SIGTERM, strcmp(scope, "group") == 0, grace_us);
  } else if (strncmp(command, "stop", 4) == 0) {
    stop(start_.stop_signal != 0 ? start_.stop_signal : SIGTERM, start_.stop_group,
         start_.grace_us);
  }
}

// The leader alone is asked first: its helpers must still be there while it saves.
void Shim::stop(int signal, bool group, int64_t grace_us) {
  if (leader_ == 0) return;
  int64_t deadline_us = monotonic_us() + (grace_us > 0 ? grace_us : 0);
  if (deadline_us_ != 0) {  // a repeat: may shorten the grace, is not said twice
    if (deadline_us < deadline_us_) deadline_us_ = deadline_us;
    return;
  }
  ended_by_us_ = true;
  grace_us_ = grace_us;
  deadline_us_ = deadline_us;
  pid_t target = group ? -leader_ : leader_;
  kill(target, signal);
  kill(target, SIGCONT);  // a stopped process cannot obey
}

void Shim::kill_all() {
  if (leader_ == 0) return;
  ended_by_us_ = true;
  deadline_us_ = 0;
  kill(-leader_, SIGKILL);
  kill(leader_, SIGKILL);
  kill_children();
}

void Shim::check_deadline() {
  if (deadline_us_ == 0 || leader_ == 0 || monotonic_us() < deadline_us_) return;
  forced_ = true;
  message_.add("did not stop within %.3g s", static_cast<double>(grace_us_) / 1e6);
  kill_all();
}

// Reads up to `most` bytes. True if there may be more now.
bool Shim::drain(Stream& stream, size_t most) {
  for (size_t total = 0; total < most;) {
    if (stream.fd < 0) return false;
    ssize_t n = read(stream.fd, read_buffer, sizeof read_buffer);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EAGAIN) return false;
    if (n <= 0) {
      close(stream.fd);
      stream.fd = -1;
      return false;
    }
    stream.log.append(read_buffer, static_cast<size_t>(n));
    total += static_cast<size_t>(n);
  }
  return true;
}

}  // namespace regrow::shim
