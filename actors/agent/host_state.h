// What makes a host the same host after its agent has been away: identity, obeyed epoch, boot id.
//
// Files in the state directory: agent.lock (held for life: one agent per directory), host-uid,
// cluster (the id of the only cluster that is obeyed), epoch ("NUMBER START_ID"). Owned by the
// agent; its loop's thread.
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

  // Epochs, job numbers and incarnations mean something in one cluster only: the first one that is
  // obeyed. Empty = none yet.
  const std::string& cluster_id() const { return cluster_id_; }
  std::string cluster_file() const { return directory_ + "/cluster"; }
  bool is_foreign(const std::string& cluster_id) const {
    return !cluster_id_.empty() && !cluster_id.empty() && cluster_id != cluster_id_;
  }

  // May a controller of this epoch command us (F-1)? Of several with one number the first wins. An
  // accepted newer one is on disk before this returns. Else the reason why not.
  std::string obey(const Epoch& epoch);
  // The same, and from the first time on only controllers of this cluster may (an empty id is that
  // of a controller that does not tell it).
  std::string obey(const std::string& cluster_id, const Epoch& epoch);

 private:
  std::string directory_;
  Fd lock_;
  std::string uid_;
  std::string boot_id_;
  std::string cluster_id_;
  Epoch epoch_;
};

}  // namespace regrow
