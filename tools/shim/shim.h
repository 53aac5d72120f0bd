// One rank's keeper: starts it, stores its output, stops it when asked, ends what it leaves, tells
// how it ended. Single-threaded, one poll loop; lives as long as the rank and outlives the agent.
//
//   Shim shim;
//   return shim.run();   // in the incarnation's directory, with the lock held
//
// Phases: starting (forked, exec not yet known) -> running -> ending (leader gone, others being
// ended)
// -> done (exit file there).
#pragma once

#include <poll.h>
#include <sys/types.h>

#include "tools/shim/log_writer.h"
#include "tools/shim/oom.h"
#include "tools/shim/rank_process.h"
#include "tools/shim/start_file.h"

namespace regrow::shim {

class Shim {
 public:
  int run();

 private:
  enum class Phase { kStarting, kRunning, kEnding, kDone };
  struct Stream {
    const char* name;
    int fd;
    LogWriter log;
  };
  static constexpr int kMostClients = 16;

  bool set_up(Message& problem);
  bool launch(Message& problem);
  void refuse(const Message& problem);
  void loop();
  int poll_timeout_ms() const;
  void on_failure_pipe();
  void on_signal();
  void on_leader_ended(int status);
  void sweep();
  void finish();
  void write_exit(const char* state);
  void tell(int client) const;
  void tell_all() const;
  void add_client(int fd);
  void accept_client();
  void on_client(int index);
  void obey(const char* command);
  void stop(int signal, bool group, int64_t grace_us);
  void kill_all();
  void check_deadline();
  static bool drain(Stream& stream, size_t most);

  StartFile start_;
  Phase phase_ = Phase::kStarting;
  Stream streams_[2] = {{"stdout", -1, {}}, {"stderr", -1, {}}};
  int signal_fd_ = -1;
  int listen_fd_ = -1;
  int failure_fd_ = -1;
  int clients_[kMostClients];
  int client_count_ = 0;

  pid_t leader_ = 0;  // 0 once reaped
  pid_t pid_ = 0;     // the leader's, kept
  unsigned long long start_time_ = 0;
  ExecFailure failure_{ExecFailure::kDied, 0};
  bool failed_ = false;
  OomWatch oom_;

  bool ended_by_us_ = false;
  bool forced_ = false;
  bool out_of_memory_ = false;
  int64_t grace_us_ = 0;
  int64_t deadline_us_ = 0;  // monotonic; 0 = none
  int exit_code_ = 0;
  int exit_signal_ = 0;
  int64_t started_us_ = 0;
  int64_t leader_ended_us_ = 0;
  int64_t group_gone_us_ = 0;
  int64_t sweep_until_us_ = 0;  // monotonic
  int sweeps_ = 0;
  Message message_;
};

}  // namespace regrow::shim
