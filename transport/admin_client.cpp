#include "transport/admin_client.h"

#include <algorithm>
#include <chrono>
#include <future>
#include <nlohmann/json.hpp>
#include <random>

#include "journal/reflect_capnp.h"
#include "transport/connection.h"
#include "transport/kj_loop.h"
#include "transport/schema/bootstrap.capnp.h"

namespace regrow {

namespace {

constexpr Duration kFirstRetry = Duration::ms(50);
constexpr Duration kLongestRetry = Duration::seconds(1);
constexpr Duration kLateTick = Duration::seconds(1);

int64_t monotonic_us() {
  auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::microseconds>(now).count();
}

std::string seconds_text(Duration d) {
  int64_t ms = d.us / 1000;
  return ms % 1000 == 0 ? std::to_string(ms / 1000) + " s" : std::to_string(ms) + " ms";
}

// Why no connection came about, and what to do.
Error unreachable(const Address& address, const std::string& text) {
  auto has = [&](const char* part) { return text.find(part) != std::string::npos; };
  std::string why = explain_tls_error(text);
  if (has("No such file or directory")) {
    why =
        "there is no such socket. Start one with `regrow dev` or `regrow controller`, or name "
        "another";
  } else if (has("Connection refused")) {
    why = "nothing listens there. Is `regrow dev` or `regrow controller` running?";
  } else if (has("Permission denied")) {
    why = "you may not open that socket; it belongs to another user";
  }
  return {kExitUnreachable, "cannot reach the controller at " + to_string(address) + ": " + why};
}

Error error_of(const kj::Exception& exception, const Address& address) {
  auto text = text_of(exception);
  if (text.find("regrow:") != std::string::npos) return parse_admin_error(text);
  if (exception.getType() == kj::Exception::Type::DISCONNECTED) {
    return {kExitUnreachable, "the connection to the controller at " + to_string(address) +
                                  " was lost before the answer came: what was asked for may have "
                                  "been done (`regrow jobs` shows it)"};
  }
  return {kExitUnreachable, "the controller at " + to_string(address) + " failed: " + text};
}

// Pings while something else is waited for; fails when no answer comes for `limit`.
struct Pulse {
  rpc::Admin::Client admin;
  int64_t last_us = monotonic_us();
  bool waiting = false;
  kj::Promise<void> ping = nullptr;
};
kj::Promise<void> watch_silence(KjLoop& loop, const Address& address, Duration limit,
                                std::shared_ptr<Pulse> pulse) {
  int64_t planned_us = std::max<int64_t>(limit.us / 5, 1000);
  int64_t set_us = monotonic_us();
  return loop.timer()
      .afterDelay(planned_us * kj::MICROSECONDS)
      .then([&loop, &address, limit, pulse, planned_us, set_us]() -> kj::Promise<void> {
        int64_t now_us = monotonic_us();
        // If we ourselves were stopped, silence proves nothing.
        if (now_us - set_us > planned_us + kLateTick.us) pulse->last_us = now_us;
        if (now_us - pulse->last_us > limit.us) {
          return admin_error(kExitUnreachable,
                             "the controller at " + to_string(address) + " has not answered for " +
                                 seconds_text(limit) +
                                 ". It may be stopped or overloaded; look at its log")
              .to_exception();
        }
        if (!pulse->waiting) {
          pulse->waiting = true;
          pulse->ping = pulse->admin.pingRequest()
                            .send()
                            .then([raw = pulse.get()](auto&&) {
                              raw->last_us = monotonic_us();
                              raw->waiting = false;
                            })
                            // A lost connection fails what is waited for as well.
                            .eagerlyEvaluate([](kj::Exception&&) {});
        }
        return watch_silence(loop, address, limit, pulse);
      });
}

template <class T>
kj::Promise<T> never_after(kj::Promise<void> failing) {
  return failing.then([]() -> kj::Promise<T> { return kj::NEVER_DONE; });
}

// Connects and asks who we are; the capability comes with its connection.
struct Connected {
  kj::Own<RpcConnection> connection;
  rpc::Admin::Client admin = nullptr;
  ControllerInfo info;
};
kj::Promise<std::shared_ptr<Connected>> connect_admin(KjLoop& loop,
                                                      const AdminClientOptions& options) {
  auto made = dial(loop, options.address, options.tls)
                  .then([version = options.version](kj::Own<RpcConnection> connection) {
                    auto state = std::make_shared<Connected>();
                    state->connection = kj::mv(connection);
                    auto bootstrap = state->connection->bootstrap().castAs<rpc::Controller>();
                    state->admin = bootstrap.adminRequest().send().getAdmin();
                    auto request = state->admin.helloRequest();
                    request.setClientVersion(version.c_str());
                    return request.send().then([state](auto&& hello) {
                      state->info = {hello.getWho().cStr(), hello.getRole().cStr(),
                                     hello.getClusterId().cStr(), hello.getVersion().cStr(),
                                     hello.getEpoch()};
                      return state;
                    });
                  });
  return within(loop.timer(), options.connect_timeout,
                "no answer within " + seconds_text(options.connect_timeout), kj::mv(made))
      .catch_([&options](kj::Exception&& e) -> kj::Promise<std::shared_ptr<Connected>> {
        if (text_of(e).find("regrow:") != std::string::npos) return kj::mv(e);
        auto error = unreachable(options.address, text_of(e));
        return AdminFailure{error}.to_exception();
      });
}

// ---- a watch: its own connection, over and over

class WatchRun final : public std::enable_shared_from_this<WatchRun>,
                       public kj::TaskSet::ErrorHandler {
 public:
  WatchRun(KjLoop& loop, const AdminClientOptions& options, WatchRequest request,
           WatchCallbacks callbacks)
      : loop_(loop),
        options_(options),
        request_(std::move(request)),
        callbacks_(std::move(callbacks)),
        next_seq_(request_.from_seq) {}

  void start() {
    running_ = run().eagerlyEvaluate([this](kj::Exception&& e) { loop_.report_error(text_of(e)); });
  }
  // No callback from now on. The rest goes in a turn of its own: this may be called from a
  // callback.
  void silence() { silenced_ = true; }
  void stop() {
    silenced_ = true;
    running_ = nullptr;
    session_ = nullptr;
  }
  uint64_t next_seq() const { return next_seq_; }

 private:
  class SubscriberServer;
  struct Session {
    std::shared_ptr<Connected> connected;
    rpc::WatchHandle::Client handle = nullptr;
    kj::Own<kj::PromiseFulfiller<void>> end;
    std::string why;
  };

  kj::Promise<void> run();
  kj::Promise<void> one_session();
  kj::Promise<void> watch_lines(int64_t set_us);
  void take(capnp::List<capnp::Text>::Reader batch);
  void end(const std::string& why) {
    if (!session_) return;
    session_->why = why;
    session_->end->fulfill();
  }
  void taskFailed(kj::Exception&& e) override { loop_.report_error(text_of(e)); }

  KjLoop& loop_;
  const AdminClientOptions& options_;
  WatchRequest request_;
  WatchCallbacks callbacks_;
  std::atomic<uint64_t> next_seq_;
  std::atomic<bool> silenced_ = false;
  int64_t last_lines_us_ = 0;
  Duration pause_ = kFirstRetry;
  std::minstd_rand random_{std::random_device{}()};
  std::unique_ptr<Session> session_;
  kj::Promise<void> running_ = nullptr;
};

class WatchRun::SubscriberServer final : public rpc::Subscriber::Server {
 public:
  explicit SubscriberServer(std::weak_ptr<WatchRun> run) : run_(std::move(run)) {}
  kj::Promise<void> lines(LinesContext context) override {
    if (auto run = run_.lock()) run->take(context.getParams().getBatch());
    return kj::READY_NOW;
  }
  kj::Promise<void> end(EndContext context) override {
    if (auto run = run_.lock()) run->end(context.getParams().getReason().cStr());
    return kj::READY_NOW;
  }

 private:
  std::weak_ptr<WatchRun> run_;
};

kj::Promise<void> WatchRun::run() {
  return one_session()
      .then(
          [] {
            return Error{kExitUnreachable, "the controller closed the connection"};
          },
          [this](kj::Exception&& e) { return error_of(e, options_.address); })
      .then([this](Error error) -> kj::Promise<void> {
        if (session_ && !session_->why.empty()) error = {kExitUnreachable, session_->why};
        session_ = nullptr;
        if (silenced_) return kj::READY_NOW;
        if (error.exit_code != kExitUnreachable) {
          if (callbacks_.on_failed) callbacks_.on_failed(error);
          return kj::READY_NOW;
        }
        if (callbacks_.on_state) callbacks_.on_state(error.message);
        auto wait_us = std::uniform_int_distribution<int64_t>(pause_.us / 2, pause_.us)(random_);
        pause_ = std::min(Duration{pause_.us * 2}, kLongestRetry);
        return loop_.timer().afterDelay(wait_us * kj::MICROSECONDS).then([this] { return run(); });
      });
}

kj::Promise<void> WatchRun::one_session() {
  return connect_admin(loop_, options_).then([this](std::shared_ptr<Connected> connected) {
    session_ = std::make_unique<Session>();
    session_->connected = std::move(connected);
    auto end = kj::newPromiseAndFulfiller<void>();
    session_->end = kj::mv(end.fulfiller);
    last_lines_us_ = monotonic_us();
    auto request = session_->connected->admin.watchRequest();
    request.setFromSeq(next_seq_);
    request.setEntity(request_.entity.c_str());
    request.setSub(kj::heap<SubscriberServer>(weak_from_this()));
    return request.send()
        .then([this](auto&& response) {
          session_->handle = response.getHandle();
          // Now "only what is new" has a number, and a reconnect misses nothing.
          if (next_seq_ == kOnlyNew) next_seq_ = response.getFirstSeq();
          pause_ = kFirstRetry;
          if (callbacks_.on_state && !silenced_) callbacks_.on_state("");
          return kj::Promise<void>(kj::NEVER_DONE);
        })
        .exclusiveJoin(session_->connected->connection->on_disconnect())
        .exclusiveJoin(kj::mv(end.promise))
        .exclusiveJoin(watch_lines(monotonic_us()));
  });
}

kj::Promise<void> WatchRun::watch_lines(int64_t set_us) {
  int64_t planned_us = std::max<int64_t>(options_.silence_limit.us / 5, 1000);
  return loop_.timer()
      .afterDelay(planned_us * kj::MICROSECONDS)
      .then([this, set_us, planned_us]() -> kj::Promise<void> {
        int64_t now_us = monotonic_us();
        if (now_us - set_us > planned_us + kLateTick.us) last_lines_us_ = now_us;
        if (now_us - last_lines_us_ > options_.silence_limit.us) {
          return failure("the controller has sent nothing for " +
                         seconds_text(options_.silence_limit));
        }
        return watch_lines(now_us);
      });
}

void WatchRun::take(capnp::List<capnp::Text>::Reader batch) {
  std::vector<std::string> fresh;
  for (auto text : batch) {
    std::string line(text.begin(), text.size());
    auto parsed = nlohmann::json::parse(line, nullptr, false);
    if (parsed.is_object()) {
      if (parsed.contains("heartbeat")) continue;
      auto seq = parsed.find("seq");
      if (seq != parsed.end() && seq->is_number_unsigned()) {
        auto number = seq->get<uint64_t>();
        if (next_seq_ != kOnlyNew && number < next_seq_) continue;  // had it before the reconnect
        next_seq_ = number + 1;
      }
    }
    fresh.push_back(std::move(line));
  }
  if (!fresh.empty() && callbacks_.on_lines && !silenced_) callbacks_.on_lines(fresh);
  // After the callback: time that it took is ours, not the controller's.
  last_lines_us_ = monotonic_us();
}

class WatchHandleImpl final : public AdminWatch {
 public:
  WatchHandleImpl(KjLoop& loop, std::shared_ptr<WatchRun> run)
      : loop_(loop), run_(std::move(run)) {}
  ~WatchHandleImpl() override {
    run_->silence();
    auto stop = [run = std::move(run_)] { run->stop(); };
    if (loop_.on_loop_thread()) {
      loop_.post(std::move(stop));
    } else {
      try {
        loop_.run_sync(std::move(stop));
      } catch (const std::exception&) {  // the client went first
      }
    }
  }
  uint64_t next_seq() const override { return run_->next_seq(); }

 private:
  KjLoop& loop_;
  std::shared_ptr<WatchRun> run_;
};

}  // namespace

// ---- the client

class AdminClient::Impl {
 public:
  explicit Impl(AdminClientOptions options)
      : options_(std::move(options)), loop_("regrow-client") {}
  ~Impl() {
    loop_.run_sync([this] { drop(); });
    loop_.stop();
  }

  const AdminClientOptions& options() const { return options_; }
  KjLoop& loop() { return loop_; }

  // Any thread but the loop's. `ask` runs on the loop.
  template <class T>
  Result<T> call(std::function<kj::Promise<T>(Connected&)> ask) {
    if (loop_.on_loop_thread())
      throw std::logic_error("a blocking call from a callback of the same client");
    auto done = std::make_shared<std::promise<Result<T>>>();
    auto answer = done->get_future();
    loop_.post([this, done, ask = std::move(ask)]() mutable {
      auto asking =
          connected().then([this, ask = std::move(ask)](std::shared_ptr<Connected> c) mutable {
            auto pulse = std::make_shared<Pulse>(Pulse{c->admin});
            return ask(*c)
                .exclusiveJoin(never_after<T>(
                    watch_silence(loop_, options_.address, options_.silence_limit, pulse)))
                .attach(kj::mv(c));
          });
      auto late = admin_error(kExitUnreachable, "no answer from the controller at " +
                                                    to_string(options_.address) + " within " +
                                                    seconds_text(options_.call_timeout) +
                                                    ", although it is alive; look at its log");
      loop_.detach(within(loop_.timer(), options_.call_timeout,
                          late.to_exception().getDescription().cStr(), kj::mv(asking))
                       .then([done](T&& value) { done->set_value(std::move(value)); },
                             [this, done](kj::Exception&& e) {
                               done->set_value(error_of(e, options_.address));
                             }));
    });
    return answer.get();
  }

 private:
  kj::Promise<std::shared_ptr<Connected>> connected() {
    if (current_) return current_;
    if (!connecting_) {
      auto generation = ++generation_;
      connecting_ = std::make_unique<kj::ForkedPromise<std::shared_ptr<Connected>>>(
          connect_admin(loop_, options_)
              .then(
                  [this, generation](std::shared_ptr<Connected> made) {
                    current_ = made;
                    connecting_done(generation);
                    loop_.detach(made->connection->on_disconnect().then([this, generation] {
                      if (generation == generation_) current_ = nullptr;
                    }));
                    return made;
                  },
                  [this, generation](kj::Exception&& e) -> std::shared_ptr<Connected> {
                    connecting_done(generation);
                    kj::throwFatalException(kj::mv(e));
                  })
              .fork());
    }
    return connecting_->addBranch();
  }
  // Not from inside the promise that it forgets.
  void connecting_done(uint64_t generation) {
    loop_.detach(kj::evalLater([this, generation] {
      if (generation == generation_) connecting_ = nullptr;
    }));
  }
  void drop() {
    ++generation_;
    connecting_ = nullptr;
    current_ = nullptr;
  }

  AdminClientOptions options_;
  KjLoop loop_;
  // On the loop's thread.
  std::shared_ptr<Connected> current_;
  std::unique_ptr<kj::ForkedPromise<std::shared_ptr<Connected>>> connecting_;
  uint64_t generation_ = 0;
};

namespace {

Result<nlohmann::json> parsed(const Result<std::string>& text) {
  if (!text) return text.error();
  auto json = nlohmann::json::parse(*text, nullptr, false);
  if (json.is_discarded())
    return Error{kExitUnreachable, "the controller's answer is not JSON: " + *text};
  return json;
}

std::string dumped(const nlohmann::json& json) {
  return json.is_null() ? "{}"
                        : json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace

AdminClient::AdminClient(AdminClientOptions options)
    : impl_(std::make_unique<Impl>(std::move(options))) {}
AdminClient::~AdminClient() = default;

Result<ControllerInfo> AdminClient::connect() {
  return impl_->call<ControllerInfo>([](Connected& c) {
    return c.admin.pingRequest().send().then([info = c.info](auto&&) { return info; });
  });
}

Result<nlohmann::json> AdminClient::query(const std::string& what, const nlohmann::json& args) {
  return parsed(impl_->call<std::string>([what, args = dumped(args)](Connected& c) {
    auto request = c.admin.queryRequest();
    request.setWhat(what.c_str());
    request.setArgsJson(args.c_str());
    return request.send().then(
        [](auto&& r) { return std::string(r.getJson().begin(), r.getJson().size()); });
  }));
}

Result<nlohmann::json> AdminClient::act(const std::string& what, const nlohmann::json& args,
                                        const std::string& reason) {
  return parsed(impl_->call<std::string>([what, args = dumped(args), reason](Connected& c) {
    auto request = c.admin.actRequest();
    request.setWhat(what.c_str());
    request.setArgsJson(args.c_str());
    request.setReason(reason.c_str());
    return request.send().then(
        [](auto&& r) { return std::string(r.getJson().begin(), r.getJson().size()); });
  }));
}

Result<LogChunk> AdminClient::read_log(const LogQuery& query) {
  return impl_->call<LogChunk>([query](Connected& c) {
    auto request = c.admin.readLogRequest();
    encode(query, request.initQuery());
    return request.send().then([](auto&& r) { return decode<LogChunk>(r.getChunk()); });
  });
}

std::unique_ptr<AdminWatch> AdminClient::watch(WatchRequest request, WatchCallbacks callbacks) {
  auto run = std::make_shared<WatchRun>(impl_->loop(), impl_->options(), std::move(request),
                                        std::move(callbacks));
  impl_->loop().post([run] { run->start(); });
  return std::make_unique<WatchHandleImpl>(impl_->loop(), run);
}

}  // namespace regrow
