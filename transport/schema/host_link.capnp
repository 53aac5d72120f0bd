# The host link: one connection per agent, calls in both directions. See transport/host_link.h.
@0xc0b6e1d1a3d2f76e;

using Cxx = import "/capnp/c++.capnp";
using P = import "/transport/schema/protocol.capnp";
$Cxx.namespace("regrow::rpc");

# What the agent offers to the controller.
interface Agent {
  # Commands in order; a batch is answered as soon as the agent has taken it, not when it is done.
  execute @0 (epoch :P.Epoch, commands :List(P.AgentCommand)) -> ();

  readLog @1 (query :P.LogQuery) -> (chunk :P.LogChunk);
}

# What the controller offers to an agent that it accepted. Dropping it ends the session.
interface HostSession {
  # Returns only when everything that follows from the reports is durable. An agent repeats, after a
  # reconnect, what was not returned.
  report @0 (reports :P.HostReports) -> ();

  # Liveness. sentUs is the agent's clock, for its own use.
  heartbeat @1 (sentUs :Int64, progress :List(P.ProgressReport)) -> ();
}

struct AttachResult {
  session @0 :HostSession;  # null if refused
  sessionId @1 :UInt64;
  epoch @2 :P.Epoch;
  heartbeatMs @3 :UInt32;
  error @4 :Text;           # empty = accepted; else why not and what to do
  clusterId @5 :Text;       # the controller's, also in a refusal; empty = an older controller
}
