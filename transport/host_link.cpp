#include "transport/host_link.h"

#include <algorithm>

#include "journal/reflect_capnp.h"
#include "transport/connection.h"
#include "transport/host_link_impl.h"

namespace regrow {

namespace {

constexpr size_t kBatchCommands = 256;
constexpr size_t kBatchBytes = 4u << 20;
constexpr unsigned kBatchesUnderWay = 4;
constexpr uint32_t kMaxLogBytes = 1u << 20;
constexpr Duration kLogTimeout = Duration::seconds(5);

// Roughly what a command takes on the wire; only spawns vary much.
size_t approximate_size(const AgentCommand& command) {
  size_t size = 256;
  if (const auto* spawn = std::get_if<Spawn>(&command)) {
    size += 1024;
    for (const auto& variable : spawn->spec.environment) {
      size += variable.name.size() + variable.value.size() + variable.source.size();
    }
    for (const auto& word : spawn->spec.command) size += word.size();
  }
  return size;
}

template <class F>
void guarded(KjLoop& loop, const char* where, F f) {
  try {
    f();
  } catch (const std::exception& e) {
    loop.report_error(std::string(where) + ": " + e.what());
  } catch (const kj::Exception& e) {
    loop.report_error(std::string(where) + ": " + e.getDescription().cStr());
  }
}

// The capability that an accepted agent calls.
class SessionServer final : public rpc::HostSession::Server {
 public:
  SessionServer(std::shared_ptr<HostLinkServer::Impl> link, SessionId id)
      : link_(std::move(link)), id_(id) {}
  ~SessionServer() noexcept(false) { link_->end_session(id_, "the agent closed the connection"); }

  kj::Promise<void> heartbeat(HeartbeatContext context) override {
    check_open();
    auto params = context.getParams();
    link_->handler().heartbeat(id_, decode_all<ProgressReport>(params.getProgress()),
                               params.getSentUs());
    return kj::READY_NOW;
  }

  kj::Promise<void> report(ReportContext context) override {
    check_open();
    auto reports = decode<HostReports>(context.getParams().getReports());
    context.releaseParams();
    // Without this the call would outlive the connection until the ack comes.
    cancel_with_caller(context);
    auto durable = kj::newPromiseAndCrossThreadFulfiller<void>();
    // Shared: an Ack is copyable, the last copy takes the fulfiller with it.
    auto fulfiller =
        std::make_shared<kj::Own<kj::CrossThreadPromiseFulfiller<void>>>(kj::mv(durable.fulfiller));
    Ack ack(std::make_shared<std::function<void()>>([fulfiller] { (*fulfiller)->fulfill(); }));
    link_->handler().report(id_, std::move(reports), std::move(ack));
    return kj::mv(durable.promise);
  }

 private:
  void check_open() {
    if (!link_->has_session(id_))
      kj::throwFatalException(failure("this session is over; connect again"));
  }
  std::shared_ptr<HostLinkServer::Impl> link_;
  SessionId id_;
};

}  // namespace

struct HostLinkServer::Impl::Session {
  Session(SessionId id, std::string host, rpc::Agent::Client agent, Close close)
      : id(id), host(std::move(host)), agent(kj::mv(agent)), close(std::move(close)) {}
  SessionId id;
  std::string host;
  Epoch epoch;
  rpc::Agent::Client agent;
  Close close;
  std::string end_reason;
  std::deque<AgentCommand> queue;
  unsigned under_way = 0;
  bool attached = false;
  bool flush_scheduled = false;
};

HostLinkServer::Impl::Impl(KjLoop& loop, HostLinkHandler& handler, HostLinkServerOptions options,
                           uint64_t first_session)
    : loop_(loop), handler_(handler), options_(options), last_session_(first_session) {}

SessionId HostLinkServer::Impl::attach(const PeerIdentity& peer, rpc::AgentHello::Reader raw,
                                       rpc::Agent::Client agent, Close close,
                                       rpc::AttachResult::Builder out) {
  if (shut_) {
    out.setError("the controller is stopping; connect again");
    return {};
  }
  auto hello = decode<AgentHello>(raw);
  if (!peer.may_attach(hello.name.value)) {
    auto text = refusal(peer, Role::agent, "attach as host " + hello.name.value);
    if (peer.role == Role::agent) text += " A certificate is good for one host name only.";
    out.setError(text.c_str());
    return {};
  }
  SessionId id{++last_session_};
  sessions_.emplace(
      id.value, std::make_unique<Session>(id, hello.name.value, kj::mv(agent), std::move(close)));
  AttachAnswer answer;
  try {
    answer = handler_.agent_connected(id, peer, std::move(hello));
  } catch (...) {
    sessions_.erase(id.value);
    throw;
  }
  out.setClusterId(answer.cluster_id.c_str());
  if (!answer.error.empty()) {
    sessions_.erase(id.value);
    out.setError(answer.error.c_str());
    return {};
  }
  auto found = sessions_.find(id.value);
  if (found == sessions_.end()) {
    out.setError("the controller is stopping; connect again");
    return {};
  }
  Session& session = *found->second;
  session.epoch = answer.epoch;
  session.attached = true;
  out.setSession(kj::heap<SessionServer>(shared_from_this(), id));
  out.setSessionId(id.value);
  encode(answer.epoch, out.initEpoch());
  out.setHeartbeatMs(options_.heartbeat_ms);
  schedule_flush(session);
  return id;
}

void HostLinkServer::Impl::end_session(SessionId id, const std::string& why) {
  auto found = sessions_.find(id.value);
  if (found == sessions_.end()) return;
  auto session = std::move(found->second);
  sessions_.erase(found);
  guarded(loop_, "agent_disconnected", [&] {
    handler_.agent_disconnected(id, session->end_reason.empty() ? why : session->end_reason);
  });
  guarded(loop_, "closing a session", [&] { session->close(); });
}

void HostLinkServer::Impl::shut() {
  shut_ = true;
  while (!sessions_.empty()) end_session({sessions_.begin()->first}, "the controller is stopping");
}

void HostLinkServer::Impl::enqueue(SessionId id, std::vector<AgentCommand> commands) {
  auto found = sessions_.find(id.value);
  if (found == sessions_.end()) return;
  Session& session = *found->second;
  for (auto& command : commands) {
    if (command.index() != 0) session.queue.push_back(std::move(command));
  }
  if (session.queue.size() > options_.max_queued_commands) {
    drop(id, "the agent on " + session.host +
                 " takes no commands: " + std::to_string(session.queue.size()) + " are waiting");
    return;
  }
  schedule_flush(session);
}

void HostLinkServer::Impl::drop(SessionId id, const std::string& why) {
  auto found = sessions_.find(id.value);
  if (found == sessions_.end()) return;
  if (found->second->end_reason.empty()) found->second->end_reason = why;
  found->second->close();
}

// In a later turn, so that everything posted together travels together.
void HostLinkServer::Impl::schedule_flush(Session& session) {
  if (session.flush_scheduled || !session.attached || session.queue.empty()) return;
  session.flush_scheduled = true;
  loop_.detach(kj::evalLater([self = shared_from_this(), id = session.id] {
    auto found = self->sessions_.find(id.value);
    if (found == self->sessions_.end()) return;
    found->second->flush_scheduled = false;
    self->flush(*found->second);
  }));
}

void HostLinkServer::Impl::flush(Session& session) {
  while (!session.queue.empty() && session.under_way < kBatchesUnderWay) {
    size_t count = 0;
    size_t bytes = 0;
    while (count < session.queue.size() && count < kBatchCommands && bytes < kBatchBytes) {
      bytes += approximate_size(session.queue[count++]);
    }
    auto request = session.agent.executeRequest();
    encode(session.epoch, request.initEpoch());
    auto list = request.initCommands(static_cast<unsigned>(count));
    for (unsigned i = 0; i < count; ++i) {
      encode(session.queue.front(), list[i]);
      session.queue.pop_front();
    }
    ++session.under_way;
    auto id = session.id;
    auto self = shared_from_this();
    loop_.detach(request.send().ignoreResult().then(
        [self, id] { self->batch_done(id); },
        [self, id](kj::Exception&& e) {
          self->drop(id, "the agent did not take commands: " + text_of(e));
        }));
  }
}

void HostLinkServer::Impl::batch_done(SessionId id) {
  auto found = sessions_.find(id.value);
  if (found == sessions_.end()) return;
  --found->second->under_way;
  flush(*found->second);
}

kj::Promise<LogChunk> HostLinkServer::Impl::read_log(SessionId id, const LogQuery& query) {
  auto found = sessions_.find(id.value);
  if (found == sessions_.end()) return failure("the host's agent is not connected");
  auto request = found->second->agent.readLogRequest();
  LogQuery limited = query;
  limited.max_bytes = std::min(limited.max_bytes, kMaxLogBytes);
  encode(limited, request.initQuery());
  auto chunk =
      request.send().then([](auto&& response) { return decode<LogChunk>(response.getChunk()); });
  return within(loop_.timer(), kLogTimeout,
                "the agent on " + found->second->host + " did not answer within 5 s",
                kj::mv(chunk));
}

// ---- the public face

HostLinkServer::HostLinkServer(KjLoop& loop, HostLinkHandler& handler,
                               HostLinkServerOptions options, uint64_t first_session)
    : loop_(loop), impl_(std::make_shared<Impl>(loop, handler, options, first_session)) {}

HostLinkServer::~HostLinkServer() {
  loop_.post([impl = impl_] { impl->shut(); });
  try {
    loop_.run_sync([] {});
  } catch (const std::exception&) {  // the loop has been stopped: nothing is left to end
  }
}

void HostLinkServer::send(SessionId session, std::vector<AgentCommand> commands) {
  if (commands.empty()) return;
  loop_.post([impl = impl_, session, commands = std::move(commands)]() mutable {
    impl->enqueue(session, std::move(commands));
  });
}

void HostLinkServer::drop(SessionId session, std::string why) {
  loop_.post([impl = impl_, session, why = std::move(why)] { impl->drop(session, why); });
}

kj::Promise<LogChunk> HostLinkServer::read_log(SessionId session, const LogQuery& query) {
  return impl_->read_log(session, query);
}

void HostLinkServer::read_log(SessionId session, LogQuery query,
                              std::function<void(std::string, LogChunk)> done) {
  loop_.post(
      [impl = impl_, &loop = loop_, session, query = std::move(query), done = std::move(done)] {
        loop.detach(impl->read_log(session, query)
                        .then([done](LogChunk&& chunk) { done("", std::move(chunk)); },
                              [done](kj::Exception&& e) { done(text_of(e), {}); }));
      });
}

}  // namespace regrow
