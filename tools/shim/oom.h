// Was it the kernel's out-of-memory killer? Asked only after a rank was ended by KILL that we did
// not send.
#pragma once

#include <stdint.h>
#include <sys/types.h>

namespace regrow::shim {

// Remembers where this process's memory cgroup counts OOM kills and what the counter says; v2, v1
// or hybrid. Finds nothing, silently, where there is none.
class OomWatch {
 public:
  void begin();
  // True if the counter rose since begin(), or the kernel log says that `pid` was killed since
  // then.
  bool killed(pid_t pid) const;

 private:
  char path_[512] = {};
  int64_t count_ = -1;  // -1 = no counter
  int64_t began_us_ = 0;
};

}  // namespace regrow::shim
