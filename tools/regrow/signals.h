// Signals as something to poll, so that Ctrl-C is handled in the main loop and not in a handler.
//
//   SignalQueue signals({SIGINT, SIGTERM});     // before any thread is started: threads inherit
//   the mask poll(signals.fd() ...); while (auto signal = signals.take()) ...
//
// Main's thread only. The destructor gives the signals their former meaning back.
#pragma once

#include <signal.h>

#include <initializer_list>
#include <optional>

namespace regrow::cli {

class SignalQueue {
 public:
  explicit SignalQueue(std::initializer_list<int> signals);
  ~SignalQueue();
  SignalQueue(const SignalQueue&) = delete;
  SignalQueue& operator=(const SignalQueue&) = delete;

  int fd() const { return fd_; }
  std::optional<int> take();  // does not wait

 private:
  sigset_t former_;
  int fd_ = -1;
};

}  // namespace regrow::cli
