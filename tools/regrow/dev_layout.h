// The directories of `regrow dev`: one for the cluster, one per host.
//
//   D/                      state directory
//     regrow.sock           where the controller listens (or, path too long, D/cluster names the
//     socket) journal/ controller.pid controller.log dev.lock              held by the running
//     `regrow dev`; holds its pid hosts/h1/
//       agent.pid agent.log
//       boot_id             new with each start of `regrow dev`: its hosts have rebooted
//       state/ run/         the agent's own
//       sysroot/devices/    one file per simulated device: kind=sim, uid=..., memory_bytes=...
//
// Main's thread; blocking file work.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tools/regrow/cluster_rule.h"

namespace regrow::cli {

struct DevOptions {
  uint32_t hosts = 4;
  uint32_t devices_per_host = 2;
  std::string state_dir;  // empty = the user's one cluster, on the default socket
  uint64_t device_memory = 16ull << 30;
  std::string fault_points;  // of the first controller only
  std::string shim;
  bool verbose = false;
};

struct DevHost {
  std::string name;       // h1
  std::string directory;  // D/hosts/h1
};

class DevLayout {
 public:
  // Takes the lock, makes everything. An error if another `regrow dev` or controller is there.
  static Result<DevLayout> make(const DevOptions& options, const ClusterHints& hints);
  DevLayout(DevLayout&& other) noexcept;
  DevLayout& operator=(DevLayout&&) = delete;
  ~DevLayout();  // lets go of the lock

  const std::string& directory() const { return directory_; }
  const std::string& socket() const { return socket_; }
  const std::vector<DevHost>& hosts() const { return hosts_; }
  // Is it the cluster that commands find without being told?
  bool is_default() const { return is_default_; }

 private:
  DevLayout() = default;
  Status make_directories(const DevOptions& options);
  Status take_lock();

  std::string directory_;
  std::string socket_;
  std::vector<DevHost> hosts_;
  bool is_default_ = false;
  int lock_ = -1;
};

// Pid of the process that serves a Unix socket; 0 if none does.
int server_of_socket(const std::string& path);

// regrow-shim beside this program or in ../libexec/regrow; empty if neither is there.
std::string find_shim();
// libregrow_rank as it is installed or built with this program; empty if it is not there.
std::string find_rank_library();
// Where the Python module lies that came with this program; empty if it did not, or lies where
// Debian's Python looks by itself.
std::string find_python_directory();

}  // namespace regrow::cli
