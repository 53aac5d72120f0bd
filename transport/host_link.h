// The host link: what controller and agents say to each other, over one connection per agent.
//
// Controller side: HostLinkServer, owned by the process, sends commands and hands what agents say
// to a HostLinkHandler. Agent side: HostLinkClient (host_link_client.h). Connections come in
// through RpcServer (rpc_server.h).
//
//   struct Handler : HostLinkHandler { ... };          // forwards to actors
//   HostLinkServer link(loop, handler, {});
//   link.send(session, {StopCommand{...}, Acknowledge{...}});       // any thread
//
// Order is kept per session in both directions. Many small commands travel in one call.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include <kj/async.h>

#include "supervisors/host_protocol.h"
#include "transport/identity.h"

namespace regrow {

class KjLoop;

// First commands of a session: which incarnations of the agent's inventory go on and which must
// end.
struct InventoryAnswer {
  std::vector<IncarnationKey> keep;
  std::vector<IncarnationKey> kill;
  REGROW_FIELDS(InventoryAnswer, keep, kill)
};
struct Spawn {
  SpawnCommand command;
  JobSpec spec;
  REGROW_FIELDS(Spawn, command, spec)
};
// Simulated device: make it faulty; an empty `fault` heals it.
struct SetDeviceFault {
  DeviceName device;
  std::string fault;
  REGROW_FIELDS(SetDeviceFault, device, fault)
};
// Fault injection: drop the connection and stay away that long. HostLinkClient obeys it itself.
struct CutLink {
  Duration duration;
  REGROW_FIELDS(CutLink, duration)
};
// The final reports of these incarnations are durable: the agent may forget them.
struct Acknowledge {
  std::vector<IncarnationKey> keys;
  REGROW_FIELDS(Acknowledge, keys)
};
// Fault injection: send the leader a signal as a stranger would; its end is not "by us".
struct SignalRank {
  IncarnationKey key;
  int32_t signal = 9;
  REGROW_FIELDS(SignalRank, key, signal)
};
// An agent sees std::monostate for a command that a newer controller knows and it does not.
using AgentCommand =
    std::variant<std::monostate, InventoryAnswer, Spawn, StopCommand, PrepareCommand,
                 SetDeviceFault, CutLink, Acknowledge, SignalRank, RegroupCommand, GoCommand>;

struct HostReports {
  std::vector<RankReport> ranks = {};
  std::vector<PrepareReport> prepares = {};
  std::vector<DeviceReport> devices = {};
  std::vector<JoinReport> joins = {};
  bool empty() const {
    return ranks.empty() && prepares.empty() && devices.empty() && joins.empty();
  }
  REGROW_FIELDS(HostReports, ranks, prepares, devices, joins)
};

struct LogQuery {
  JobId job;
  RankIndex rank;
  Incarnation incarnation = {};  // 0 = the newest that the agent has
  std::string stream = "stdout";
  uint64_t offset = 0;
  uint32_t max_bytes = 65536;  // at most 1 MiB is sent
  uint32_t tail_lines = 0;     // if not 0: start so many lines before the end
  REGROW_FIELDS(LogQuery, job, rank, incarnation, stream, offset, max_bytes, tail_lines)
};
struct LogChunk {
  std::string data;
  uint64_t next_offset = 0;
  Incarnation incarnation;
  bool at_end = false;
  std::string note;
  REGROW_FIELDS(LogChunk, data, next_offset, incarnation, at_end, note)
};

// Says that a report is durable. Copyable; call it from any thread, once. When the last copy goes
// without a call, the report has failed: the agent reconnects and repeats it.
class Ack {
 public:
  Ack() = default;
  explicit Ack(std::shared_ptr<std::function<void()>> done) : done_(std::move(done)) {}
  void operator()() const {
    if (done_ && *done_) (*done_)();
  }

 private:
  std::shared_ptr<std::function<void()>> done_;
};

struct AttachAnswer {
  std::string error;  // empty = accepted; else why not and what to do
  Epoch epoch;        // the controller's, sent with every batch of commands
  std::string cluster_id = {};
};

// The controller's side of what agents say. Called on the KJ thread; must not block.
class HostLinkHandler {
 public:
  virtual ~HostLinkHandler() = default;
  // The peer is authorised for that host name. A second session of the same agent (same uid) means
  // that the first is dead: drop() it. Nothing is sent to the session before this returns.
  virtual AttachAnswer agent_connected(SessionId session, const PeerIdentity& peer,
                                       AgentHello hello) = 0;
  // Exactly once per accepted session, after everything else about it.
  virtual void agent_disconnected(SessionId session, const std::string& why) = 0;
  virtual void heartbeat(SessionId session, std::vector<ProgressReport> progress,
                         int64_t sent_us) = 0;
  virtual void report(SessionId session, HostReports reports, Ack ack) = 0;
};

struct HostLinkServerOptions {
  uint32_t heartbeat_ms = 1000;
  uint32_t max_queued_commands = 100000;  // per session; an agent that takes no more is dropped
};

class HostLinkServer {
 public:
  // `loop` and `handler` outlive it. First session id is `first_session` + 1: pass the highest id
  // ever used if ids must not repeat over restarts.
  HostLinkServer(KjLoop& loop, HostLinkHandler& handler, HostLinkServerOptions options = {},
                 uint64_t first_session = 0);
  ~HostLinkServer();  // not on the loop's thread; ends all sessions

  // Any thread. Commands for a session that is gone are dropped: whoever sends them learns that
  // through agent_disconnected and sends again what is still pending after the next connect.
  void send(SessionId session, std::vector<AgentCommand> commands);

  // Any thread. Ends the session's connection; agent_disconnected follows with `why`.
  void drop(SessionId session, std::string why);

  // KJ thread. Fails if the session is gone or the agent does not answer within 5 s.
  kj::Promise<LogChunk> read_log(SessionId session, const LogQuery& query);

  // Any thread: done is called once on the KJ thread, with an error text or the chunk.
  void read_log(SessionId session, LogQuery query,
                std::function<void(std::string error, LogChunk chunk)> done);

  class Impl;  // what RpcServer needs of it
  const std::shared_ptr<Impl>& impl() { return impl_; }

 private:
  KjLoop& loop_;
  std::shared_ptr<Impl> impl_;  // shared with tasks on the loop and with connections
};

}  // namespace regrow
