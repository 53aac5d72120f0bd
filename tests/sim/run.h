// One simulated run: a plan carried out, every rule checked at every step.
//
//   RunResult r = run_seed(17, {});
//   REQUIRE(r.violation == "");
#pragma once

#include <map>
#include <string>

#include "tests/sim/plan.h"

namespace regrow::sim {

struct RunOptions {
  bool trace = false;  // print every input that led to an event
};

struct RunResult {
  std::string violation;  // empty = none
  std::string plan;
  std::string tail;                       // the last records, if something was wrong
  std::map<std::string, uint64_t> marks;  // rare things that happened
  uint64_t events = 0;
  uint64_t history = 0;  // hash of the journal: equal runs are equal
};

RunResult run_plan(const Plan& plan, const RunOptions& options);
inline RunResult run_seed(uint64_t seed, const RunOptions& options) {
  return run_plan(make_plan(seed), options);
}

}  // namespace regrow::sim
