// News for a main loop from other threads: lines of a watch, answers of a poller.
//
//   Inbox<std::string> inbox;
//   inbox.push("...");                        // any thread
//   poll({inbox.fd(), POLLIN}); for (auto& item : inbox.take()) ...
#pragma once

#include <sys/eventfd.h>
#include <unistd.h>

#include <cstdint>
#include <mutex>
#include <utility>
#include <vector>

namespace regrow::cli {

template <class T>
class Inbox {
 public:
  Inbox() : fd_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {}
  ~Inbox() { close(fd_); }
  Inbox(const Inbox&) = delete;
  Inbox& operator=(const Inbox&) = delete;

  int fd() const { return fd_; }

  void push(T item) {
    {
      std::lock_guard lock(mutex_);
      items_.push_back(std::move(item));
    }
    uint64_t one = 1;
    [[maybe_unused]] auto n = write(fd_, &one, sizeof one);
  }

  std::vector<T> take() {
    uint64_t count = 0;
    [[maybe_unused]] auto n = read(fd_, &count, sizeof count);
    std::lock_guard lock(mutex_);
    return std::exchange(items_, {});
  }

 private:
  int fd_;
  std::mutex mutex_;
  std::vector<T> items_;  // guarded by mutex_
};

}  // namespace regrow::cli
