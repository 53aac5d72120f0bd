// Whose ranks this agent starts. A job's spec names a user and an operator who comes over TCP may
// name any: only the host's own administrator says who runs here.
//
//   auto allowed = AllowedUsers::parse({"ann", "1007"});
//   std::string why_not = allowed->refusal({spec.uid, name}, geteuid(), host);
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "supervisors/types.h"
#include "transport/result.h"

namespace regrow {

struct UserName {
  uint32_t uid = 0;
  std::string name;  // of its account; empty = it has none
};

struct AllowedUsers {
  bool any = false;  // every user but root
  std::set<uint32_t> uids;

  // Names, numbers, or "any".
  static Result<AllowedUsers> parse(const std::vector<std::string>& texts);

  // Why an agent that runs as `self` starts no ranks of `user`; empty if it does. Who is not root
  // cannot become anybody else, so there only its own user counts.
  std::string refusal(const UserName& user, uint32_t self, const HostName& host) const;
};

}  // namespace regrow
