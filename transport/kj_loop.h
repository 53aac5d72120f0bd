// The one KJ event loop of a process, on its own thread.
//
// Everything that touches a connection, a KJ promise or a Cap'n Proto capability happens on it.
// Other threads (CAF workers, main) hand it work with post(), which never blocks. Owned by main;
// destroyed after everything that uses it.
//
//   KjLoop loop("kj", [](const std::string& error) { log_error(error); });
//   loop.post([] { ... });                              // any thread
//   auto port = loop.run_sync([&] { return listen(); });  // any thread but the loop's own; blocks
#pragma once

#include <kj/async-io.h>
#include <kj/function.h>

#include <atomic>
#include <exception>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <type_traits>
#include <vector>

namespace regrow {

class KjLoop : private kj::TaskSet::ErrorHandler {
 public:
  using Task = kj::Function<void()>;
  // Called on the loop's thread with what a task or a detached promise threw. Must not throw.
  using OnError = std::function<void(const std::string&)>;

  // `name` is the thread's name (at most 15 bytes). Returns when the loop runs.
  explicit KjLoop(const std::string& name, OnError on_error = {});
  ~KjLoop();
  KjLoop(const KjLoop&) = delete;
  KjLoop& operator=(const KjLoop&) = delete;

  // Any thread; never blocks. Tasks run in the order posted. Returns false, and drops the task on
  // the caller's thread, if the loop has been stopped.
  bool post(Task task);

  // Any thread but the loop's (std::logic_error). Runs `f` there and returns or throws what it
  // does; std::runtime_error if the loop has been stopped.
  template <class F>
  auto run_sync(F f) -> std::invoke_result_t<F>;

  // Runs what was posted before, cancels detached promises, ends the thread. Idempotent; not from
  // the loop's own thread.
  void stop();

  bool on_loop_thread() const { return std::this_thread::get_id() == loop_thread_id_; }

  // The rest: on the loop's thread only.
  kj::AsyncIoContext& io() { return *io_; }
  kj::Timer& timer() { return io_->provider->getTimer(); }
  kj::Network& network() { return io_->provider->getNetwork(); }
  // Lets a promise run to its end; failures other than a disconnect go to on_error.
  void detach(kj::Promise<void> promise) { tasks_->add(kj::mv(promise)); }
  void report_error(const std::string& what) noexcept;

 private:
  void run(const std::string& name, std::promise<void> started);
  kj::Promise<void> drain();
  void run_batch(std::vector<Task>& batch);
  void taskFailed(kj::Exception&& exception) override;

  OnError on_error_;
  std::mutex mutex_;
  std::vector<Task> queue_;                              // guarded by mutex_
  kj::Own<kj::CrossThreadPromiseFulfiller<void>> wake_;  // guarded by mutex_
  bool stopped_ = false;                                 // guarded by mutex_
  kj::Own<kj::PromiseFulfiller<void>> quit_;             // loop thread
  kj::AsyncIoContext* io_ = nullptr;                     // loop thread
  kj::TaskSet* tasks_ = nullptr;                         // loop thread
  std::atomic<std::thread::id> loop_thread_id_{};
  std::thread thread_;
};

template <class F>
auto KjLoop::run_sync(F f) -> std::invoke_result_t<F> {
  using R = std::invoke_result_t<F>;
  if (on_loop_thread()) throw std::logic_error("run_sync called on the loop's own thread");
  // Shared: the task may be dropped (stop) while the caller waits; the broken promise then wakes
  // it.
  auto done = std::make_shared<std::promise<R>>();
  auto future = done->get_future();
  post([done = std::move(done), f = std::move(f)]() mutable {
    try {
      if constexpr (std::is_void_v<R>) {
        f();
        done->set_value();
      } else {
        done->set_value(f());
      }
    } catch (...) {
      done->set_exception(std::current_exception());
    }
  });
  try {
    return future.get();
  } catch (const std::future_error&) {
    throw std::runtime_error("the event loop has been stopped");
  }
}

}  // namespace regrow
