#include "transport/host_link_client.h"

#include <algorithm>
#include <chrono>
#include <deque>
#include <random>

#include "journal/reflect_capnp.h"
#include "transport/admin.h"
#include "transport/connection.h"
#include "transport/kj_loop.h"
#include "transport/report_queue.h"
#include "transport/schema/bootstrap.capnp.h"

namespace regrow {

namespace {

constexpr unsigned kReportsUnderWay = 8;
constexpr unsigned kHeartbeatsUnderWay = 64;
constexpr Duration kLateTick = Duration::seconds(1);
constexpr Duration kRefusedPause = Duration::seconds(1);

int64_t monotonic_us() {
  auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::microseconds>(now).count();
}

}  // namespace

// One run loop of promises: wait, connect, say hello, stay until something ends it, again.
class HostLinkClient::Impl : public std::enable_shared_from_this<HostLinkClient::Impl>,
                             public kj::TaskSet::ErrorHandler {
 public:
  Impl(KjLoop& loop, HostLinkAgent& agent, HostLinkClientOptions options)
      : loop_(loop), agent_(agent), options_(std::move(options)), pause_(options_.first_retry) {}

  void start() {
    running_ = run().eagerlyEvaluate([this](kj::Exception&& e) { loop_.report_error(text_of(e)); });
  }
  void stop() {
    stopped_ = true;
    running_ = nullptr;
    link_ = nullptr;
  }

  void report(HostReports reports) {
    reports_.add(std::move(reports), connected());
    schedule_flush();
  }
  void send_progress(std::vector<ProgressReport> progress) {
    if (connected()) send_heartbeat(std::move(progress));
  }
  void cut(Duration duration) {
    cut_until_us_ = monotonic_us() + duration.us;
    close("the link was cut on request for " + std::to_string(duration.us / 1000) + " ms");
  }

  bool connected() const { return link_ && link_->id.value != 0; }
  SessionId session() const { return link_ ? link_->id : SessionId{}; }
  size_t unacknowledged() const { return reports_.unacknowledged(); }
  int64_t last_answered_us() const { return last_answered_us_; }

 private:
  class AgentServer;
  struct Link {
    explicit Link(kj::TaskSet::ErrorHandler& errors) : tasks(errors) {}
    kj::Own<RpcConnection> connection;
    rpc::HostSession::Client session = nullptr;
    SessionId id;
    uint32_t heartbeat_ms = 1000;
    int64_t last_answer_us = 0;  // when an answer came
    unsigned heartbeats = 0;     // under way
    bool flush_scheduled = false;
    std::vector<std::pair<Epoch, std::vector<AgentCommand>>>
        early;  // before the hello was answered
    kj::Own<kj::PromiseFulfiller<void>> end;
    std::string why;
    kj::TaskSet tasks;  // last: cancelled first
  };

  kj::Promise<void> run();
  kj::Promise<void> wait_for_turn();
  kj::Promise<void> one_connection();
  kj::Promise<void> attach();
  void attached(rpc::AttachResult::Reader answer);
  void teardown(const std::string& why);
  void close(const std::string& why);

  kj::Promise<void> heartbeat_loop();
  kj::Promise<void> watch_loop();
  void send_heartbeat(std::vector<ProgressReport> progress);
  void schedule_flush();
  void flush();
  void deliver(const Epoch& epoch, std::vector<AgentCommand> commands);
  void execute(const Epoch& epoch, std::vector<AgentCommand> commands);
  void taskFailed(kj::Exception&& e) override { close(text_of(e)); }

  KjLoop& loop_;
  HostLinkAgent& agent_;
  HostLinkClientOptions options_;
  Duration pause_;
  bool first_ = true;
  bool refused_ = false;
  bool stopped_ = false;
  int64_t cut_until_us_ = 0;
  int64_t last_answered_us_ = 0;
  ReportQueue reports_;
  std::minstd_rand random_{std::random_device{}()};
  std::unique_ptr<Link> link_;
  kj::Promise<void> running_ = nullptr;
};

// What the controller calls. Holds the link weakly: a late call after the end finds nothing.
class HostLinkClient::Impl::AgentServer final : public rpc::Agent::Server {
 public:
  explicit AgentServer(std::weak_ptr<Impl> impl) : impl_(std::move(impl)) {}

  kj::Promise<void> execute(ExecuteContext context) override {
    auto params = context.getParams();
    open()->execute(decode<Epoch>(params.getEpoch()),
                    decode_all<AgentCommand>(params.getCommands()));
    return kj::READY_NOW;
  }
  kj::Promise<void> readLog(ReadLogContext context) override {
    auto query = decode<LogQuery>(context.getParams().getQuery());
    return open()->agent_.read_log(query).then(
        [context](LogChunk&& chunk) mutable { encode(chunk, context.getResults().initChunk()); });
  }

 private:
  std::shared_ptr<Impl> open() {
    auto impl = impl_.lock();
    if (!impl || impl->stopped_) kj::throwFatalException(failure("the agent is stopping"));
    return impl;
  }
  std::weak_ptr<Impl> impl_;
};

kj::Promise<void> HostLinkClient::Impl::run() {
  return wait_for_turn()
      .then([this] { return one_connection(); })
      .then([] { return std::string("the controller closed the connection"); },
            [this](kj::Exception&& e) {
              auto text = parse_admin_error(text_of(e)).message;
              return connected() ? text : explain_tls_error(text);
            })
      .then([this](std::string why) {
        teardown(why);
        return run();
      });
}

kj::Promise<void> HostLinkClient::Impl::wait_for_turn() {
  int64_t wait_us = 0;
  if (!first_) {
    // Half to all of the pause, so that the agents of a restarted controller do not come all at
    // once.
    Duration pause = refused_ ? std::max(pause_, kRefusedPause) : pause_;
    wait_us = std::uniform_int_distribution<int64_t>(pause.us / 2, pause.us)(random_);
    pause_ = std::min(Duration{pause_.us * 2}, options_.longest_retry);
  }
  first_ = false;
  wait_us = std::max(wait_us, cut_until_us_ - monotonic_us());
  return loop_.timer().afterDelay(wait_us * kj::MICROSECONDS).then([this]() -> kj::Promise<void> {
    if (cut_until_us_ > monotonic_us()) return wait_for_turn();
    return kj::READY_NOW;
  });
}

kj::Promise<void> HostLinkClient::Impl::one_connection() {
  refused_ = false;
  auto& timer = loop_.timer();
  return within(timer, options_.connect_timeout, "no connection within the time-out",
                dial(loop_, options_.address, options_.tls))
      .then([this, &timer](kj::Own<RpcConnection> connection) {
        link_ = std::make_unique<Link>(*this);
        link_->connection = kj::mv(connection);
        auto end = kj::newPromiseAndFulfiller<void>();
        link_->end = kj::mv(end.fulfiller);
        auto ended = link_->connection->on_disconnect().exclusiveJoin(kj::mv(end.promise));
        return within(timer, options_.connect_timeout, "the controller did not answer the hello",
                      attach())
            .then([this] { return kj::Promise<void>(kj::NEVER_DONE); })
            .exclusiveJoin(kj::mv(ended));
      });
}

kj::Promise<void> HostLinkClient::Impl::attach() {
  auto request = link_->connection->bootstrap().castAs<rpc::Controller>().attachRequest();
  encode(agent_.make_hello(), request.initHello());
  request.setAgent(kj::heap<AgentServer>(weak_from_this()));
  return request.send().then([this](auto&& response) { attached(response); });
}

void HostLinkClient::Impl::attached(rpc::AttachResult::Reader answer) {
  std::string cluster_id(answer.getClusterId().cStr());
  std::string why = agent_.refuse(cluster_id);
  if (why.empty()) why = answer.getError().cStr();
  if (!why.empty()) {
    refused_ = true;
    agent_.on_refused(why);
    kj::throwFatalException(failure("refused: " + why));
  }
  link_->session = answer.getSession();
  link_->id = {answer.getSessionId()};
  link_->heartbeat_ms = std::max(answer.getHeartbeatMs(), 10u);
  link_->last_answer_us = monotonic_us();
  agent_.on_connected(link_->id, cluster_id, decode<Epoch>(answer.getEpoch()));
  auto early = std::move(link_->early);
  for (auto& [epoch, commands] : early) deliver(epoch, std::move(commands));
  link_->tasks.add(heartbeat_loop());
  link_->tasks.add(watch_loop());
  schedule_flush();
}

void HostLinkClient::Impl::teardown(const std::string& reason) {
  bool was_connected = connected();
  std::string why = link_ && !link_->why.empty() ? link_->why : reason;
  link_ = nullptr;
  reports_.connection_lost();
  if (was_connected) {
    agent_.on_disconnected(why);
  } else if (!refused_) {  // a refusal has been told already
    agent_.on_attempt_failed(why);
  }
}

void HostLinkClient::Impl::close(const std::string& why) {
  if (!link_ || !link_->end) return;
  if (link_->why.empty()) link_->why = why;
  link_->end->fulfill();
}

// ---- liveness

kj::Promise<void> HostLinkClient::Impl::heartbeat_loop() {
  send_heartbeat(agent_.progress());
  return loop_.timer().afterDelay(link_->heartbeat_ms * kj::MILLISECONDS).then([this] {
    return heartbeat_loop();
  });
}

void HostLinkClient::Impl::send_heartbeat(std::vector<ProgressReport> progress) {
  if (link_->heartbeats >= kHeartbeatsUnderWay) return;
  auto request = link_->session.heartbeatRequest();
  int64_t sent_us = monotonic_us();
  request.setSentUs(sent_us);
  encode_all(progress, [&](unsigned n) { return request.initProgress(n); });
  ++link_->heartbeats;
  link_->tasks.add(request.send().then([this, sent_us](auto&&) {
    --link_->heartbeats;
    link_->last_answer_us = monotonic_us();
    last_answered_us_ = std::max(last_answered_us_, sent_us);
    pause_ = options_.first_retry;  // a connection that works: the next failure is a new one
  }));
}

kj::Promise<void> HostLinkClient::Impl::watch_loop() {
  int64_t planned_us = options_.silence_limit.us / 8;
  int64_t set_us = monotonic_us();
  return loop_.timer().afterDelay(planned_us * kj::MICROSECONDS).then([this, planned_us, set_us] {
    int64_t now_us = monotonic_us();
    // If we ourselves were stopped, the answers may be waiting in the socket: start afresh.
    if (now_us - set_us > planned_us + kLateTick.us) link_->last_answer_us = now_us;
    if (now_us - link_->last_answer_us > options_.silence_limit.us) {
      close("the controller answered no heartbeat for " +
            std::to_string((now_us - link_->last_answer_us) / 1000) + " ms");
      return kj::Promise<void>(kj::READY_NOW);
    }
    return watch_loop();
  });
}

// ---- reports

void HostLinkClient::Impl::schedule_flush() {
  if (!connected() || link_->flush_scheduled) return;
  link_->flush_scheduled = true;
  // In a later turn, so that what is reported together travels together.
  link_->tasks.add(kj::evalLater([this] {
    link_->flush_scheduled = false;
    flush();
  }));
}

void HostLinkClient::Impl::flush() {
  while (reports_.has_unsent() && reports_.under_way() < kReportsUnderWay) {
    auto batch = reports_.take_batch();
    auto request = link_->session.reportRequest();
    encode(*batch.reports, request.initReports());
    link_->tasks.add(request.send().then(
        [this, id = batch.id](auto&&) {
          reports_.acknowledged(id);
          flush();
        },
        [this](kj::Exception&& e) { close("a report was not taken: " + text_of(e)); }));
  }
}

// ---- commands

void HostLinkClient::Impl::execute(const Epoch& epoch, std::vector<AgentCommand> commands) {
  if (!link_) return;
  if (connected()) {
    deliver(epoch, std::move(commands));
  } else {
    link_->early.emplace_back(epoch, std::move(commands));
  }
}

void HostLinkClient::Impl::deliver(const Epoch& epoch, std::vector<AgentCommand> commands) {
  Duration cut_for;
  std::erase_if(commands, [&](const AgentCommand& command) {
    const auto* cut = std::get_if<CutLink>(&command);
    if (cut != nullptr) cut_for = std::max(cut_for, cut->duration);
    return cut != nullptr;
  });
  if (!commands.empty()) {
    try {
      agent_.on_commands(epoch, std::move(commands));
    } catch (const std::exception& e) {
      close(std::string("the agent failed to take commands: ") + e.what());
      throw;
    }
  }
  if (cut_for.us > 0) cut(cut_for);
}

// ---- the public face

HostLinkClient::HostLinkClient(KjLoop& loop, HostLinkAgent& agent, HostLinkClientOptions options)
    : loop_(loop), impl_(std::make_shared<Impl>(loop, agent, std::move(options))) {
  loop_.post([impl = impl_] { impl->start(); });
}

HostLinkClient::~HostLinkClient() {
  try {
    loop_.run_sync([impl = std::move(impl_)] { impl->stop(); });
  } catch (const std::exception&) {  // the loop has been stopped, and with it the link
  }
}

void HostLinkClient::report(HostReports reports) { impl_->report(std::move(reports)); }
void HostLinkClient::send_progress(std::vector<ProgressReport> progress) {
  impl_->send_progress(std::move(progress));
}
void HostLinkClient::cut(Duration duration) { impl_->cut(duration); }
bool HostLinkClient::connected() const { return impl_->connected(); }
SessionId HostLinkClient::session() const { return impl_->session(); }
size_t HostLinkClient::unacknowledged() const { return impl_->unacknowledged(); }
int64_t HostLinkClient::last_answered_us() const { return impl_->last_answered_us(); }

}  // namespace regrow
