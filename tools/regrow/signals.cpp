#include "tools/regrow/signals.h"

#include <sys/signalfd.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

namespace regrow::cli {

SignalQueue::SignalQueue(std::initializer_list<int> signals) {
  sigset_t wanted;
  sigemptyset(&wanted);
  for (int signal : signals) sigaddset(&wanted, signal);
  pthread_sigmask(SIG_BLOCK, &wanted, &former_);
  fd_ = signalfd(-1, &wanted, SFD_NONBLOCK | SFD_CLOEXEC);
  if (fd_ < 0) throw std::system_error(errno, std::generic_category(), "signalfd");
}

SignalQueue::~SignalQueue() {
  close(fd_);
  pthread_sigmask(SIG_SETMASK, &former_, nullptr);
}

std::optional<int> SignalQueue::take() {
  signalfd_siginfo info;
  if (read(fd_, &info, sizeof info) != sizeof info) return std::nullopt;
  return static_cast<int>(info.ssi_signo);
}

}  // namespace regrow::cli
