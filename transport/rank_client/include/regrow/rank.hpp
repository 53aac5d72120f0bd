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

}  // namespace regrow::rank
