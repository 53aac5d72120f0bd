#include "transport/admin.h"

#include <kj/debug.h>

#include "journal/reflect_capnp.h"
#include "transport/admin_impl.h"
#include "transport/connection.h"

namespace regrow {

namespace {

constexpr char kErrorPrefix[] = "regrow:";
constexpr size_t kBatchLines = 1000;
constexpr size_t kBatchBytes = 256u << 10;
constexpr char kHeartbeatLine[] = "{\"heartbeat\":true}";

}  // namespace

// ---- errors

kj::Exception AdminFailure::to_exception() const {
  return failure(kErrorPrefix + std::to_string(error.exit_code) + ":" + error.message);
}

Error parse_admin_error(const std::string& description) {
  auto start = description.find(kErrorPrefix);
  if (start != std::string::npos) {
    auto code_at = start + sizeof kErrorPrefix - 1;
    auto colon = description.find(':', code_at);
    auto digits = description.find_first_not_of("0123456789", code_at);
    if (colon != std::string::npos && colon == digits && colon > code_at && colon - code_at <= 3) {
      return {std::stoi(description.substr(code_at, colon - code_at)),
              description.substr(colon + 1)};
    }
  }
  return {kExitUnreachable, description};
}

// ---- WatchSink

bool WatchSink::send(std::vector<std::string> lines) const {
  return state_->send(std::move(lines));
}
bool WatchSink::closed() const { return state_->closed(); }
void WatchSink::end(std::string reason) const { state_->end(std::move(reason)); }
void WatchSink::on_closed(std::function<void()> callback) const {
  state_->on_closed(std::move(callback));
}

// Sends what is queued to one subscriber, one batch under way at a time, and heartbeats between.
class WatchPump {
 public:
  WatchPump(std::shared_ptr<AdminServer::Impl> server, rpc::Subscriber::Client subscriber)
      : server_(std::move(server)),
        subscriber_(kj::mv(subscriber)),
        state_(
            std::make_shared<WatchSink::State>(server_->loop, server_->options.max_queued_bytes)) {
    state_->pump = this;
    server_->pumps.insert(this);
    heartbeats_ = heartbeat().eagerlyEvaluate([](kj::Exception&&) {});
  }
  ~WatchPump() noexcept(false) {
    server_->pumps.erase(this);
    state_->pump = nullptr;
    state_->close();
  }
  KJ_DISALLOW_COPY(WatchPump);

  WatchSink sink() { return WatchSink(state_); }
  const std::shared_ptr<WatchSink::State>& state() { return state_; }

  void kick() {
    if (sending_ || over_) return;
    auto work = state_->take(kBatchLines, kBatchBytes);
    if (!work.lines.empty()) {
      send(work.lines);
    } else if (work.over) {
      end(work.end_reason);
    }
  }

 private:
  void send(const std::vector<std::string>& lines) {
    auto request = subscriber_.linesRequest();
    auto list = request.initBatch(static_cast<unsigned>(lines.size()));
    for (unsigned i = 0; i < list.size(); ++i) {
      list.set(i, capnp::Text::Reader(lines[i].c_str(), lines[i].size()));
    }
    sending_ = true;
    sent_ = request.send()
                .then(
                    [this] {
                      sending_ = false;
                      // Not from here: kick() replaces the promise that runs this.
                      server_->loop.post([state = state_] {
                        if (state->pump != nullptr) state->pump->kick();
                      });
                    },
                    [this](kj::Exception&&) {
                      over_ = true;
                      state_->close();
                    })
                .eagerlyEvaluate(nullptr);
  }

  void end(const std::string& reason) {
    over_ = true;
    auto request = subscriber_.endRequest();
    request.setReason(reason.c_str());
    sent_ = request.send().ignoreResult().eagerlyEvaluate([](kj::Exception&&) {});
    state_->close();
  }

  kj::Promise<void> heartbeat() {
    auto pause = server_->options.watch_heartbeat.us * kj::MICROSECONDS;
    return server_->loop.timer().afterDelay(pause).then([this] {
      if (!sending_ && !over_) send({kHeartbeatLine});
      return heartbeat();
    });
  }

  std::shared_ptr<AdminServer::Impl> server_;
  rpc::Subscriber::Client subscriber_;
  std::shared_ptr<WatchSink::State> state_;
  bool sending_ = false;
  bool over_ = false;
  kj::Promise<void> sent_ = nullptr;
  kj::Promise<void> heartbeats_ = nullptr;
};

bool WatchSink::State::send(std::vector<std::string> lines) {
  std::lock_guard lock(mutex_);
  if (closed_ || ending_) return false;
  for (auto& line : lines) {
    bytes_ += line.size();
    lines_.push_back(std::move(line));
  }
  if (bytes_ > max_queued_bytes_) {
    // Forget the queue: the client asks again from the sequence that it has seen.
    lines_.clear();
    bytes_ = 0;
    ending_ = true;
    end_reason_ = "you read too slowly; watch again from the next sequence";
  }
  schedule_locked();
  return !ending_;
}

bool WatchSink::State::closed() {
  std::lock_guard lock(mutex_);
  return closed_ || ending_;
}

void WatchSink::State::end(std::string reason) {
  std::lock_guard lock(mutex_);
  if (closed_ || ending_) return;
  ending_ = true;
  end_reason_ = std::move(reason);
  schedule_locked();
}

void WatchSink::State::on_closed(std::function<void()> callback) {
  {
    std::lock_guard lock(mutex_);
    if (!closed_) {
      on_closed_.push_back(std::move(callback));
      return;
    }
  }
  callback();
}

void WatchSink::State::schedule_locked() {
  if (scheduled_) return;
  scheduled_ = true;
  loop_.post([self = shared_from_this()] {
    {
      std::lock_guard lock(self->mutex_);
      self->scheduled_ = false;
    }
    if (self->pump != nullptr) self->pump->kick();
  });
}

WatchSink::State::Work WatchSink::State::take(size_t max_lines, size_t max_bytes) {
  Work work;
  std::lock_guard lock(mutex_);
  size_t bytes = 0;
  while (!lines_.empty() && work.lines.size() < max_lines && bytes < max_bytes) {
    bytes += lines_.front().size();
    work.lines.push_back(std::move(lines_.front()));
    lines_.pop_front();
  }
  bytes_ -= bytes;
  work.over = ending_ && lines_.empty();
  work.end_reason = end_reason_;
  return work;
}

void WatchSink::State::close() {
  std::vector<std::function<void()>> callbacks;
  {
    std::lock_guard lock(mutex_);
    if (closed_) return;
    closed_ = true;
    lines_.clear();
    bytes_ = 0;
    callbacks.swap(on_closed_);
  }
  for (auto& callback : callbacks) {
    try {
      callback();
    } catch (const std::exception& e) {
      loop_.report_error(std::string("on_closed: ") + e.what());
    }
  }
}

// ---- the capability

namespace {

class HandleServer final : public rpc::WatchHandle::Server {
 public:
  explicit HandleServer(kj::Own<WatchPump> pump) : pump_(kj::mv(pump)) {}

 private:
  kj::Own<WatchPump> pump_;
};

class AdminCapability final : public rpc::Admin::Server {
 public:
  AdminCapability(std::shared_ptr<AdminServer::Impl> server, PeerIdentity peer)
      : server_(std::move(server)), peer_(std::move(peer)) {}

  kj::Promise<void> hello(HelloContext context) override {
    auto results = context.getResults();
    results.setWho(peer_.who.c_str());
    results.setRole(to_string(peer_.role));
    results.setClusterId(server_->options.cluster_id.c_str());
    results.setVersion(server_->options.version.c_str());
    results.setEpoch(server_->options.epoch);
    return kj::READY_NOW;
  }

  kj::Promise<void> ping(PingContext) override { return kj::READY_NOW; }

  kj::Promise<void> query(QueryContext context) override {
    auto params = context.getParams();
    std::string what(params.getWhat().cStr());
    require(peer_.may_view(), Role::viewer, "ask for " + what);
    cancel_with_caller(context);
    return server_->handler.query(peer_, std::move(what), params.getArgsJson().cStr())
        .then([context](std::string&& json) mutable {
          context.getResults().setJson(capnp::Text::Reader(json.c_str(), json.size()));
        });
  }

  kj::Promise<void> act(ActContext context) override {
    auto params = context.getParams();
    std::string what(params.getWhat().cStr());
    require(peer_.may_operate(), Role::operator_role, what);
    // Not cancelled when the client goes: what was asked for is done.
    return server_->handler
        .act(peer_, std::move(what), params.getArgsJson().cStr(), params.getReason().cStr())
        .then([context](std::string&& json) mutable {
          context.getResults().setJson(capnp::Text::Reader(json.c_str(), json.size()));
        });
  }

  kj::Promise<void> watch(WatchContext context) override {
    require(peer_.may_view(), Role::viewer, "watch events");
    cancel_with_caller(context);
    auto params = context.getParams();
    WatchRequest request{params.getFromSeq(), params.getEntity().cStr()};
    auto pump = kj::heap<WatchPump>(server_, params.getSub());
    auto sink = pump->sink();
    return server_->handler.watch(peer_, std::move(request), std::move(sink))
        .then([context, pump = kj::mv(pump)](uint64_t first_seq) mutable {
          auto results = context.getResults();
          results.setFirstSeq(first_seq);
          results.setHandle(kj::heap<HandleServer>(kj::mv(pump)));
        });
  }

  kj::Promise<void> readLog(ReadLogContext context) override {
    require(peer_.may_view(), Role::viewer, "read logs");
    cancel_with_caller(context);
    return server_->handler.read_log(peer_, decode<LogQuery>(context.getParams().getQuery()))
        .then([context](LogChunk&& chunk) mutable {
          encode(chunk, context.getResults().initChunk());
        });
  }

 private:
  void require(bool allowed, Role needed, const std::string& action) {
    if (server_->is_shut) {
      kj::throwFatalException(
          admin_error(kExitUnreachable, "the controller is stopping").to_exception());
    }
    if (!allowed) {
      kj::throwFatalException(
          admin_error(kExitNotAllowed, refusal(peer_, needed, action)).to_exception());
    }
  }

  std::shared_ptr<AdminServer::Impl> server_;
  PeerIdentity peer_;
};

}  // namespace

rpc::Admin::Client AdminServer::Impl::connect(const PeerIdentity& peer) {
  return kj::heap<AdminCapability>(shared_from_this(), peer);
}

void AdminServer::Impl::shut() {
  is_shut = true;
  for (auto* pump : std::set<WatchPump*>(pumps)) {
    pump->state()->end("the controller is stopping");
    pump->kick();
    pump->state()->close();
  }
}

AdminServer::AdminServer(KjLoop& loop, AdminHandler& handler, AdminServerOptions options)
    : loop_(loop), impl_(std::make_shared<Impl>(loop, handler, std::move(options))) {}

AdminServer::~AdminServer() {
  try {
    loop_.run_sync([impl = impl_] { impl->shut(); });
  } catch (const std::exception&) {  // the loop has been stopped, and with it every watch
  }
}

}  // namespace regrow
