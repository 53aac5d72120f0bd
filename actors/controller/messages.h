// What the controller's actors send each other. Process-local.
#pragma once

#include <caf/actor.hpp>
#include <caf/allowed_unsafe_message_type.hpp>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "journal/projection.h"
#include "supervisors/engine.h"
#include "transport/admin.h"

namespace regrow::msg {

// An input for the entity `envelope->to`; an actor that is not it passes it on, making the child
// that leads there if the input may create it.
struct Deliver {
  std::shared_ptr<const Envelope> envelope;
};
// To an entity: its events up to n are on disk.
struct Durable {
  uint64_t n = 0;
};
// To an entity: start to act after boot; answered with true when its messages have been sent.
struct Resume {};
// To an entity, from itself. Only the one it asked for last counts.
struct Wake {
  Time at;
};
// To an entity: answered with true when it exists, and with it the actors of its children.
struct Ready {};

// To an entity: `done` is called when all that it has decided by now is durable and in the
// projection. Never, if its actor dies first: then it is only destroyed.
struct WhenVisible {
  std::function<void()> done;
};

// To the journal actor.
struct Append {
  std::shared_ptr<std::vector<EventRecord>> records;
  caf::actor owner;
};
struct Flush {};
// Answered with true when everything appended before is durable and folded into the projection.
struct Barrier {};
// Writes snapshots and closes; answered with true.
struct CloseJournal {};

// To the effect runner.
struct Perform {
  std::shared_ptr<const Effect> effect;
};
struct SessionUp {
  HostName host;
  SessionId session;
};
struct SessionDown {
  HostName host;
  SessionId session;
};
struct ForgetJob {
  JobId job;
};

// To the watch actor.
struct AddWatch {
  WatchRequest request;
  WatchSink sink;
};
struct Published {
  std::shared_ptr<const std::vector<EventRecord>> records;
};
struct PumpWatches {};

// To an entity, from the admin shell: how the actor itself sees things.
struct Inspection {
  AnyState state;
  uint64_t n = 0;
  size_t mailbox = 0;
  uint32_t restarts = 0;
  std::string quarantined;
  std::vector<PastDecision> decisions;
};
struct Inspect {
  std::function<void(std::shared_ptr<const Inspection>)> done;
};

}  // namespace regrow::msg

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(regrow::msg::Deliver)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(regrow::msg::Durable)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(regrow::msg::Resume)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(regrow::msg::Wake)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(regrow::msg::Ready)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(regrow::msg::WhenVisible)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(regrow::msg::Append)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(regrow::msg::Flush)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(regrow::msg::Barrier)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(regrow::msg::CloseJournal)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(regrow::msg::Perform)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(regrow::msg::SessionUp)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(regrow::msg::SessionDown)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(regrow::msg::ForgetJob)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(regrow::msg::AddWatch)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(regrow::msg::Published)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(regrow::msg::PumpWatches)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(regrow::msg::Inspect)
