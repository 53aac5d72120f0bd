// Starts processes from a program with threads: nothing inherited by accident.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace regrow {

struct ChildUser {
  uint32_t uid = 0;
  uint32_t gid = 0;
  std::vector<uint32_t> groups;
};

struct ChildSpec {
  std::vector<std::string> arguments;    // [0] is an absolute path
  std::vector<std::string> environment;  // "NAME=value"; nothing of ours is added
  std::vector<std::pair<int, int>>
      descriptors;                // (ours, the child's); 0, 1, 2 are /dev/null if not here
  std::optional<ChildUser> user;  // none = as this process
};

// The child has a session of its own, an empty signal mask, default dispositions and no other
// descriptors. Returns its pid, or minus errno.
pid_t spawn_child(const ChildSpec& spec);

}  // namespace regrow
