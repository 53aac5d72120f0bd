#include "tools/regrow/dev_layout.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>

namespace regrow::cli {

namespace fs = std::filesystem;

namespace {

constexpr uintmax_t kLargestLog = 16u << 20;

std::string random_boot_id() {
  std::random_device random;
  char out[40];
  std::snprintf(out, sizeof out, "%08x-%04x-4%03x-%04x-%08x%04x", random(), random() & 0xffff,
                random() & 0xfff, 0x8000u | (random() & 0x3fff), random(), random() & 0xffff);
  return out;
}

Status write_file(const std::string& path, const std::string& text) {
  std::string draft = path + ".new";
  std::ofstream file(draft);
  file << text;
  file.close();
  if (!file || std::rename(draft.c_str(), path.c_str()) != 0) {
    return Error{kExitUsage, "cannot write " + path + ": " + std::strerror(errno)};
  }
  return Nothing{};
}

// A log that has grown large becomes NAME.1.
void rotate_log(const std::string& path) {
  std::error_code error;
  if (fs::file_size(path, error) > kLargestLog && !error) fs::rename(path, path + ".1", error);
}

// Devices keep their uid over restarts: it is what they are known by.
Status make_device(const std::string& path, const std::string& uid, uint64_t memory) {
  if (fs::exists(path)) return Nothing{};
  return write_file(path,
                    "kind=sim\nuid=" + uid + "\nmemory_bytes=" + std::to_string(memory) + "\n");
}

Status make_host(const DevHost& host, const DevOptions& options) {
  std::error_code error;
  std::string devices = host.directory + "/sysroot/devices";
  for (const auto& directory : {devices, host.directory + "/state", host.directory + "/run"}) {
    fs::create_directories(directory, error);
    if (error) return Error{kExitUsage, "cannot make " + directory + ": " + error.message()};
  }
  rotate_log(host.directory + "/agent.log");
  if (auto wrote = write_file(host.directory + "/boot_id", random_boot_id() + "\n"); !wrote)
    return wrote;
  for (uint32_t i = 0; i < options.devices_per_host; ++i) {
    std::string name = "sim" + std::to_string(i);
    auto made = make_device(devices + "/" + name, "SIM-" + random_boot_id(), options.device_memory);
    if (!made) return made;
  }
  // Fewer than last time: the others are gone.
  for (uint32_t i = options.devices_per_host;
       fs::remove(devices + "/sim" + std::to_string(i), error); ++i) {
  }
  return Nothing{};
}

}  // namespace

int server_of_socket(const std::string& path) {
  sockaddr_un address{};
  if (path.size() >= sizeof address.sun_path) return 0;
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return 0;
  ucred peer{};
  socklen_t size = sizeof peer;
  bool serves = connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0 &&
                getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0;
  close(fd);
  return serves ? peer.pid : 0;
}

std::string find_shim() {
  std::error_code error;
  fs::path self = fs::read_symlink("/proc/self/exe", error);
  if (error) return "";
  fs::path directory = self.parent_path();
  for (const auto& path :
       {directory / "regrow-shim", directory.parent_path() / "libexec/regrow/regrow-shim"}) {
    if (access(path.c_str(), X_OK) == 0) return path.string();
  }
  return "";
}

namespace {

// Empty if this program came without it.
std::string below_prefix(const fs::path& what) {
  std::error_code error;
  fs::path self = fs::read_symlink("/proc/self/exe", error);
  if (error) return "";
  fs::path path = self.parent_path().parent_path() / what;
  return access(path.c_str(), R_OK) == 0 ? path.string() : "";
}

}  // namespace

std::string find_rank_library() {
  return below_prefix(fs::path(REGROW_LIBDIR) / "libregrow_rank.so.1");
}

std::string find_python_directory() {
  std::string module = below_prefix("lib/python3/dist-packages/regrow");
  // There is all of the system's Python; a virtual environment must not get to see that.
  if (module.empty() || module.starts_with("/usr/lib/")) return "";
  return fs::path(module).parent_path().string();
}

Status DevLayout::take_lock() {
  std::string path = directory_ + "/dev.lock";
  lock_ = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (lock_ < 0) return Error{kExitUsage, "cannot open " + path + ": " + std::strerror(errno)};
  if (flock(lock_, LOCK_EX | LOCK_NB) != 0) {
    std::string holder;
    std::ifstream(path) >> holder;
    return Error{kExitUsage, "a `regrow dev` runs in " + directory_ + " already, pid " + holder +
                                 "; for another cluster beside it: regrow dev --state-dir DIR"};
  }
  std::string pid = std::to_string(getpid()) + "\n";
  if (ftruncate(lock_, 0) != 0 || pwrite(lock_, pid.data(), pid.size(), 0) < 0) {
    return Error{kExitUsage, "cannot write " + path + ": " + std::strerror(errno)};
  }
  return Nothing{};
}

Status DevLayout::make_directories(const DevOptions& options) {
  if (auto told = announce_socket(directory_, "unix:" + socket_); !told) return told;
  if (int server = server_of_socket(socket_); server != 0) {
    return Error{kExitUsage, "process " + std::to_string(server) + " serves a cluster on " +
                                 socket_ +
                                 " already; for another one beside it: regrow dev --state-dir DIR"};
  }
  rotate_log(directory_ + "/controller.log");
  unlink((directory_ + "/controller.pid").c_str());
  for (uint32_t i = 1; i <= options.hosts; ++i) {
    std::string name = "h" + std::to_string(i);
    hosts_.push_back({name, directory_ + "/hosts/" + name});
    if (auto made = make_host(hosts_.back(), options); !made) return made;
  }
  return Nothing{};
}

Result<DevLayout> DevLayout::make(const DevOptions& options, const ClusterHints& hints) {
  DevLayout layout;
  layout.is_default_ = options.state_dir.empty();
  std::string directory = options.state_dir;
  if (layout.is_default_) {
    auto chosen = default_state_directory("dev");
    if (!chosen) return chosen.error();
    directory = *chosen;
  }
  layout.directory_ = absolute_path(directory);
  layout.socket_ = layout.is_default_ ? user_directory(hints) + "/regrow.sock"
                                      : socket_of_state_directory(layout.directory_, hints);
  std::error_code error;
  if (fs::create_directories(layout.directory_, error)) {
    chmod(layout.directory_.c_str(), 0711);  // ranks of other users pass through it
  }
  if (error) return Error{kExitUsage, "cannot make " + layout.directory_ + ": " + error.message()};
  if (auto locked = layout.take_lock(); !locked) return locked.error();
  if (auto made = layout.make_directories(options); !made) return made.error();
  return layout;
}

DevLayout::DevLayout(DevLayout&& other) noexcept
    : directory_(std::move(other.directory_)),
      socket_(std::move(other.socket_)),
      hosts_(std::move(other.hosts_)),
      is_default_(other.is_default_),
      lock_(std::exchange(other.lock_, -1)) {}

DevLayout::~DevLayout() {
  if (lock_ >= 0) close(lock_);
}

}  // namespace regrow::cli
