// What makes a host the same host after its agent has been away: identity, obeyed epoch, boot id.
//
// Files in the state directory: agent.lock (held for life: one agent per directory), host-uid,
// epoch
// ("NUMBER START_ID"). Owned by the agent; its loop's thread.
#pragma once

#include <string>

#include "actors/agent/files.h"
#include "supervisors/host_protocol.h"
#include "transport/result.h"

namespace regrow {

class HostIdentity {
 public:
  // Makes what is missing. An error if another agent holds the directory or it cannot be used.
  static Result<HostIdentity> open(const std::string& directory, const std::string& boot_id_file);

  const std::string& uid() const { return uid_; }  // random, made once: the host's identity
  const std::string& boot_id() const { return boot_id_; }
  const Epoch& seen_epoch() const { return epoch_; }

  // May a controller of this epoch command us (F-1)? Of several with one number the first wins. An
  // accepted newer one is on disk before this returns. Else the reason why not.
  std::string obey(const Epoch& epoch);

 private:
  std::string directory_;
  Fd lock_;
  std::string uid_;
  std::string boot_id_;
  Epoch epoch_;
};

}  // namespace regrow
