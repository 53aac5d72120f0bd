// One rank's side of the connection to its agent. What it says and when: docs/rank-api.md.
//
// The library holds one for the process (rank.cpp), tests hold as many as they like. Any thread;
// nothing but finish() ever waits. libc only: no exceptions, no allocation but strdup for the two
// paths of init().
//
//   Client client;
//   client.init();
//   client.step(7, 0.25);
#pragma once

#include <pthread.h>
#include <sys/types.h>

#include "transport/rank_client/frame.h"
#include "transport/rank_client/include/regrow/rank.h"

namespace regrow::rank_client {

class Client {
 public:
  constexpr Client() = default;
  ~Client();
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  // As the functions of regrow/rank.h.
  int init(regrow_info* info);
  int step(int64_t step, double loss);
  uint64_t generation();
  int finish(int timeout_ms);
  int on_regroup(regrow_regroup_fn call, void* argument);
  int rejoin(int64_t step, bool intact, regrow_membership* out, int timeout_ms);
  int saved(int64_t step, const char* path);

  // Around fork(): the child has a client that is not locked, and leaves the connection to its
  // parent.
  void before_fork() { pthread_mutex_lock(&mutex_); }
  void after_fork_in_parent() { pthread_mutex_unlock(&mutex_); }
  void after_fork_in_child();

 private:
  struct Guard;
  struct Report {
    int64_t step = -1;  // none yet
    double loss = 0;
    int64_t time_us = 0;
  };
  struct Join {
    int64_t step = -1;
    bool intact = false;
  };
  static void* run_thread(void* self);

  // With the lock held.
  void init_once();
  void read_environment();
  void exchange();  // connect, read, send: as much as goes without waiting
  void connect();
  bool send(const rank_protocol::FrameWriter& frame);  // false: not now
  void send_pending();
  void receive();
  void on_frame(rank_protocol::FrameReader& frame);
  void heard_of(uint64_t generation);
  void on_go(rank_protocol::FrameReader& frame);
  void keep_text(int which, const char* text);  // in strings_
  bool must_join() const { return joins_first_ || info_.generation > member_.generation; }
  void disconnect();
  bool holds_socket() const;
  bool reports() const { return initialized_ && !foreign_ && info_.supervised != 0; }

  pthread_mutex_t mutex_ = PTHREAD_MUTEX_INITIALIZER;
  bool initialized_ = false;
  bool foreign_ = false;  // in a child of the process that called init()
  pid_t owner_ = 0;
  regrow_info info_ = REGROW_INFO_INIT;
  char* strings_[6] = {};  // resume path, checkpoint directory, socket; of the membership: address,
                           // resume path; of the newest checkpoint
  char token_[rank_protocol::kTokenBytes] = {};

  int fd_ = -1;
  dev_t device_ = 0;  // of the socket: a script may close descriptors that it does not know
  ino_t inode_ = 0;
  int64_t tried_ms_ = -1'000'000;
  bool hello_pending_ = false;

  Report newest_;
  bool step_pending_ = false;
  bool finish_pending_ = false;
  bool finishing_ = false;  // said and not yet answered

  regrow_membership member_ = REGROW_MEMBERSHIP_INIT;
  bool joins_first_ = false;  // it was started to join others
  Join join_;
  bool join_pending_ = false;
  bool joining_ = false;  // said and not yet answered
  int64_t saved_step_ = -1;
  bool saved_pending_ = false;

  regrow_regroup_fn call_ = nullptr;
  void* argument_ = nullptr;
  uint64_t told_ = 0;  // newest generation that `call_` was called for
  bool thread_runs_ = false;
  pthread_mutex_t calling_ = PTHREAD_MUTEX_INITIALIZER;  // taken before mutex_, around `call_`
};

}  // namespace regrow::rank_client
