// The agent process: a host's side of the cluster. Runs ranks, watches devices, reports; decides
// nothing.
//
//   AgentOptions options;
//   options.controller = "unix:/run/regrow/regrow.sock";
//   options.state_dir = "/var/lib/regrow-agent";
//   return run_agent(options);
//
// Its end, whatever the way, touches no rank (F-2) unless `end_ranks` asks for it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "supervisors/types.h"

namespace regrow {

struct AgentOptions {
  std::string controller;        // "unix:/path", "tcp:host:port"
  std::string state_dir;         // identity, epoch, highest incarnations; survives a reboot
  std::string run_dir;           // ranks and their logs; empty = STATE_DIR/run
  std::string name;              // host name in the cluster; empty = the machine's
  std::string address;           // where ranks on other hosts reach this one; empty = 127.0.0.1
  std::string certs_dir;         // ca.pem, NAME.pem, NAME.key; for TCP
  std::string shim;              // absolute path of regrow-shim
  std::string rank_library;      // absolute path of libregrow_rank, told to ranks; empty = none
  std::string python_directory;  // of its Python module, for the end of PYTHONPATH; empty = none
  std::string sysroot;           // simulated devices: DIR/devices/NAME; empty = none
  std::string boot_id_file;      // empty = the kernel's
  std::string temporary_root = "/tmp";
  std::vector<std::string> allowed_users;  // names, numbers, "any"; for an agent that runs as root
  uint32_t first_port = 20000;
  uint32_t last_port = 29999;
  std::optional<Duration> end_ranks;  // on SIGTERM end all ranks, with this grace; else they go on
  std::string version;
  bool verbose = false;
};

// Runs until SIGTERM or SIGINT. Returns the exit code: 0 after a clean end, 2 for wrong options or
// a state directory in use.
int run_agent(const AgentOptions& options);

}  // namespace regrow
