// Inside transport/: the host link's server as RpcServer sees it. KJ thread only.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <string>

#include "transport/host_link.h"
#include "transport/kj_loop.h"
#include "transport/schema/host_link.capnp.h"

namespace regrow {

class HostLinkServer::Impl : public std::enable_shared_from_this<HostLinkServer::Impl> {
 public:
  // What a session needs of its connection: a way to close it (in a later turn).
  using Close = std::function<void()>;

  Impl(KjLoop& loop, HostLinkHandler& handler, HostLinkServerOptions options,
       uint64_t first_session);

  // Fills `out` with acceptance or refusal; returns the session's id, 0 if refused.
  SessionId attach(const PeerIdentity& peer, rpc::AgentHello::Reader hello,
                   rpc::Agent::Client agent, Close close, rpc::AttachResult::Builder out);
  // Ends all sessions and refuses new ones.
  void shut();
  // Idempotent; tells the handler. `why` counts only if no drop() gave a reason before.
  void end_session(SessionId id, const std::string& why);

  void enqueue(SessionId id, std::vector<AgentCommand> commands);
  void drop(SessionId id, const std::string& why);
  kj::Promise<LogChunk> read_log(SessionId id, const LogQuery& query);

  HostLinkHandler& handler() { return handler_; }
  bool has_session(SessionId id) const { return sessions_.contains(id.value); }

 private:
  struct Session;

  void schedule_flush(Session& session);
  void flush(Session& session);
  void batch_done(SessionId id);

  KjLoop& loop_;
  HostLinkHandler& handler_;
  HostLinkServerOptions options_;
  uint64_t last_session_;
  bool shut_ = false;
  std::map<uint64_t, std::unique_ptr<Session>> sessions_;
};

}  // namespace regrow
