// Turns durable effects into commands on the host link. Decides nothing: it only knows which
// session a host has now, and that nothing goes to a session before its inventory was answered.
#pragma once

#include <caf/behavior.hpp>
#include <caf/stateful_actor.hpp>
#include <map>
#include <memory>
#include <vector>

#include "actors/controller/context.h"
#include "transport/host_link.h"

namespace regrow {

// Where commands go; HostLinkServer in the service, a recorder in tests. Any thread.
class CommandSink {
 public:
  virtual ~CommandSink() = default;
  virtual void send(SessionId session, std::vector<AgentCommand> commands) = 0;
  virtual void drop(SessionId session, std::string why) = 0;
};

struct EffectRunnerState {
  struct Link {
    SessionId session;                 // 0 = none
    bool answered = false;             // the inventory; from then on commands may go
    std::vector<AgentCommand> queued;  // until then
  };
  Context* context = nullptr;
  CommandSink* sink = nullptr;
  std::map<HostName, Link> links;
  std::map<JobId, JobSpec> specs;
  std::map<JobId, std::vector<fx::Spawn>> parked;  // spec not here yet
  std::map<std::pair<HostName, JobId>, PrepareCommand>
      prepares;  // newest of each, for a host's return
  const char* name = "effects";
};

caf::behavior effect_runner(caf::stateful_actor<EffectRunnerState>* self, Context* context,
                            CommandSink* sink);

}  // namespace regrow
