// The controller process: journal, supervision tree, host link and admin service.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace regrow {

struct ControllerOptions {
  std::string state_dir;  // made if missing; holds journal/, regrow.sock, controller.pid
  std::vector<std::string>
      listen;             // "unix:/path", "tcp:host:port"; empty = unix:STATE_DIR/regrow.sock
  std::string certs_dir;  // ca.pem, controller.pem, controller.key; for TCP
  std::vector<uint32_t> operator_uids;  // besides root and the controller's own
  std::vector<uint32_t> agent_uids;
  bool socket_for_all = false;  // other users of this machine may look
  std::string fault_points;     // tests: see fault_points.h
  bool recover_epoch = false;   // an old copy of the journal is the newest there is: go on with it
  std::string version;
  bool verbose = false;
};

// Runs until SIGTERM or SIGINT. Returns the process's exit code: 0 after a clean end, 2 for wrong
// options or a state directory in use, 75 when it had to stop and a restart may help.
int run_controller(const ControllerOptions& options);

}  // namespace regrow
