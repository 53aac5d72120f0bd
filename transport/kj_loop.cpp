#include "transport/kj_loop.h"

#include <kj/exception.h>
#include <pthread.h>

namespace regrow {

namespace {

// KJ logs to stderr by default; this sends it where our own errors go. Lives on the loop thread's
// stack.
class LogRedirect final : public kj::ExceptionCallback {
 public:
  explicit LogRedirect(KjLoop& loop) : loop_(loop) {}
  void logMessage(kj::LogSeverity severity, const char*, int, int, kj::String&& text) override {
    if (severity >= kj::LogSeverity::WARNING) loop_.report_error(text.cStr());
  }

 private:
  KjLoop& loop_;
};

}  // namespace

KjLoop::KjLoop(const std::string& name, OnError on_error) : on_error_(std::move(on_error)) {
  std::promise<void> started;
  auto running = started.get_future();
  thread_ = std::thread(
      [this, name, started = std::move(started)]() mutable { run(name, std::move(started)); });
  try {
    running.get();
  } catch (...) {
    thread_.join();
    throw;
  }
}

KjLoop::~KjLoop() { stop(); }

void KjLoop::run(const std::string& name, std::promise<void> started) {
  pthread_setname_np(pthread_self(), name.substr(0, 15).c_str());
  loop_thread_id_ = std::this_thread::get_id();
  LogRedirect redirect(*this);
  bool announced = false;
  try {
    auto io = kj::setupAsyncIo();
    io_ = &io;
    kj::TaskSet tasks(*this);
    tasks_ = &tasks;
    auto quit = kj::newPromiseAndFulfiller<void>();
    quit_ = kj::mv(quit.fulfiller);
    auto draining =
        kj::evalNow([this] { return drain(); }).eagerlyEvaluate([this](kj::Exception&& e) {
          report_error(e.getDescription().cStr());
        });
    announced = true;
    started.set_value();
    quit.promise.wait(io.waitScope);

    draining = nullptr;
    // What was posted after stop() is destroyed here, where KJ objects may be.
    std::vector<Task> dropped;
    {
      std::lock_guard lock(mutex_);
      stopped_ = true;
      dropped.swap(queue_);
      wake_ = nullptr;
    }
  } catch (...) {
    if (!announced) {
      started.set_exception(std::current_exception());
    } else {
      report_error("the event loop ended on an exception");
    }
    std::lock_guard lock(mutex_);
    stopped_ = true;
    queue_.clear();
    wake_ = nullptr;
  }
}

bool KjLoop::post(Task task) {
  std::lock_guard lock(mutex_);
  if (stopped_) return false;
  queue_.push_back(kj::mv(task));
  // One wake per batch: the loop takes the whole queue.
  if (queue_.size() == 1 && wake_.get() != nullptr) wake_->fulfill();
  return true;
}

kj::Promise<void> KjLoop::drain() {
  auto next = kj::newPromiseAndCrossThreadFulfiller<void>();
  std::vector<Task> batch;
  {
    std::lock_guard lock(mutex_);
    batch.swap(queue_);
    wake_ = kj::mv(next.fulfiller);
  }
  run_batch(batch);
  return next.promise.then([this] { return drain(); });
}

void KjLoop::run_batch(std::vector<Task>& batch) {
  for (auto& task : batch) {
    KJ_IF_MAYBE (exception, kj::runCatchingExceptions([&] { task(); })) {
      report_error(exception->getDescription().cStr());
    }
  }
}

void KjLoop::stop() {
  if (on_loop_thread()) throw std::logic_error("KjLoop::stop called on the loop's own thread");
  if (!thread_.joinable()) return;
  post([this] { quit_->fulfill(); });
  thread_.join();
}

void KjLoop::taskFailed(kj::Exception&& exception) {
  // A peer that went away is normal; whoever cares watches its connection.
  if (exception.getType() != kj::Exception::Type::DISCONNECTED) {
    report_error(exception.getDescription().cStr());
  }
}

void KjLoop::report_error(const std::string& what) noexcept {
  try {
    if (on_error_) on_error_(what);
  } catch (...) {
  }
}

}  // namespace regrow
