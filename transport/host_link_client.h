// The agent's side of the host link: keeps one session with the controller, for ever.
//
// Connects, says hello, takes commands, sends heartbeats and reports. When the connection fails or
// the controller stops answering it reconnects with growing pauses and repeats every report that
// was not acknowledged. Owned by the agent; everything (calls and callbacks) on the loop's thread,
// but for the constructor and destructor, which may be called from any other thread.
//
//   struct MyAgent : HostLinkAgent { ... };
//   HostLinkClient link(loop, agent, {.address = address});
//   loop.post([&] { link.report({.ranks = {report}}); });
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <kj/async.h>

#include "transport/address.h"
#include "transport/host_link.h"
#include "transport/tls.h"

namespace regrow {

// What the link needs from the agent. Called on the loop's thread; must not block.
class HostLinkAgent {
 public:
  virtual ~HostLinkAgent() = default;
  // Full inventory, asked for at each connect.
  virtual AgentHello make_hello() = 0;
  // Why the controller of that cluster is none of ours; empty = it may be. Asked at each connect
  // before anything else is done with its answer; a reason ends the connection like a refusal.
  virtual std::string refuse(const std::string& cluster_id) {
    (void)cluster_id;
    return "";
  }
  // Accepted. Commands follow.
  virtual void on_connected(SessionId session, const std::string& cluster_id,
                            const Epoch& epoch) = 0;
  virtual void on_disconnected(const std::string& why) = 0;
  // No connection came about; the next attempt follows. Often the same text many times.
  virtual void on_attempt_failed(const std::string& why) { (void)why; }
  // The controller answered and said no (wrong epoch, role, version). The link keeps trying,
  // slowly.
  virtual void on_refused(const std::string& why) = 0;
  // In order. A thrown exception ends the connection. CutLink is not passed on.
  virtual void on_commands(const Epoch& epoch, std::vector<AgentCommand> commands) = 0;
  virtual kj::Promise<LogChunk> read_log(const LogQuery& query) = 0;
  // What every heartbeat carries.
  virtual std::vector<ProgressReport> progress() = 0;
};

struct HostLinkClientOptions {
  Address address = {};
  std::optional<TlsFiles> tls = {};                 // required for TCP
  Duration first_retry = Duration::ms(50);          // pauses double from here, each with jitter,
  Duration longest_retry = Duration::seconds(2);    // up to here
  Duration connect_timeout = Duration::seconds(5);  // connect, TLS and hello, each
  Duration silence_limit = Duration::seconds(3);    // no heartbeat answered: the connection is dead
};

class HostLinkClient {
 public:
  // `loop` and `agent` outlive it. Starts to connect at once.
  HostLinkClient(KjLoop& loop, HostLinkAgent& agent, HostLinkClientOptions options);
  ~HostLinkClient();  // disconnects; no callback afterwards

  // Queued, sent in order, repeated after a reconnect until acknowledged. While there is no
  // connection a newer report of the same incarnation, prepare or device replaces the older one.
  void report(HostReports reports);

  // Progress between heartbeats (at most ten times a second, the caller sees to it). Lost if there
  // is no connection.
  void send_progress(std::vector<ProgressReport> progress);

  // Fault injection: drop the connection and refuse to reconnect that long.
  void cut(Duration duration);

  bool connected() const;
  SessionId session() const;      // 0 if not connected
  size_t unacknowledged() const;  // reports not yet durable
  // Agent's monotonic clock, microseconds: when the newest answered heartbeat was sent. 0 = none
  // yet.
  int64_t last_answered_us() const;

 private:
  class Impl;
  KjLoop& loop_;
  std::shared_ptr<Impl> impl_;
};

}  // namespace regrow
