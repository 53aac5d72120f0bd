// What every actor of a controller shares. Made by the controller before the first actor, outlives
// all.
#pragma once

#include <caf/actor.hpp>
#include <functional>
#include <memory>
#include <string>

#include "actors/controller/directory.h"
#include "actors/controller/engine_clock.h"
#include "actors/controller/fault_points.h"
#include "journal/journal.h"
#include "journal/projection.h"

namespace regrow {

class LiveBoard;

struct Context {
  Context(Time not_before, const std::string& fault_points, TimeSource time = system_time())
      : clock(not_before, std::move(time)), faults(fault_points) {}

  EngineClock clock;
  FaultPoints faults;
  Directory directory;
  Replies replies;
  Projection projection;  // the fold of what is durable; written by the journal actor only
  LiveBoard* board = nullptr;
  caf::actor journal;  // set before the first entity actor is made
  caf::actor effects;
  // The process cannot go on (the journal failed, a newer controller rules): says why and ends it.
  std::function<void(const std::string&)> fatal;
};

}  // namespace regrow
