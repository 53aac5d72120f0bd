// regrow/rank.h for C++. Link libregrow_rank.
//
//   auto info = regrow::rank::init();
//   for (auto n = info.resume_step + 1; n < steps; ++n) regrow::rank::step(n, train(n));
//   regrow::rank::finish();
#pragma once

#include <regrow/rank.h>

#include <limits>

namespace regrow::rank {

using Info = regrow_info;

inline Info init() {
  Info info = REGROW_INFO_INIT;
  regrow_init(&info);
  return info;
}

// False for a negative step, which is not reported.
inline bool step(int64_t n, double loss = std::numeric_limits<double>::quiet_NaN()) {
  return regrow_step(n, loss) == 0;
}

inline uint64_t generation() { return regrow_generation(); }

// True if an agent has taken it.
inline bool finish(int timeout_ms = 5000) { return regrow_finish(timeout_ms) == 1; }

using Membership = regrow_membership;

// As regrow_on_regroup().
inline int on_regroup(regrow_regroup_fn call, void* argument = nullptr) {
  return regrow_on_regroup(call, argument);
}

// Waits until every rank has joined; `member.generation` is then the new one. False: not in time.
inline bool rejoin(int64_t step, bool intact, Membership& member, int timeout_ms = -1) {
  member = REGROW_MEMBERSHIP_INIT;
  return regrow_rejoin(step, intact ? 1 : 0, &member, timeout_ms) == 1;
}

inline bool checkpoint_saved(int64_t step, const char* path) {
  return regrow_checkpoint_saved(step, path) == 0;
}

}  // namespace regrow::rank
