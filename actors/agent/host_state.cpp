#include "actors/agent/host_state.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <unistd.h>

#include <sstream>

namespace regrow {
namespace {

std::string random_hex() {
  unsigned char bytes[16];
  if (getrandom(bytes, sizeof bytes, 0) != sizeof bytes) return "";
  std::string text;
  for (unsigned char byte : bytes) {
    text += "0123456789abcdef"[byte >> 4];
    text += "0123456789abcdef"[byte & 15];
  }
  return text;
}

std::string trimmed(std::string text) {
  text.erase(text.find_last_not_of(" \t\r\n") + 1);
  return text;
}

std::string describe(const Epoch& epoch) {
  std::ostringstream text;
  text << epoch.number << " (" << std::hex << epoch.start_id << ")";
  return text.str();
}

}  // namespace

Result<HostIdentity> HostIdentity::open(const std::string& directory,
                                        const std::string& boot_id_file) {
  HostIdentity state;
  state.directory_ = directory;
  std::string problem = make_directories(directory);
  if (!problem.empty()) return Error{kExitUsage, problem};

  std::string lock = directory + "/agent.lock";
  state.lock_ = Fd(::open(lock.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (!state.lock_) return Error{kExitUsage, "cannot open " + lock + ": " + strerror(errno)};
  if (flock(state.lock_.get(), LOCK_EX | LOCK_NB) != 0) {
    return Error{kExitUsage, "an agent runs with state directory " + directory + " already, pid " +
                                 trimmed(read_file(lock).value_or("?")) +
                                 "; give each host one of its own (--state-dir)"};
  }
  std::string pid = std::to_string(getpid()) + "\n";
  if (ftruncate(state.lock_.get(), 0) != 0 ||
      write(state.lock_.get(), pid.data(), pid.size()) < 0) {
    return Error{kExitUsage, "cannot write " + lock + ": " + strerror(errno)};
  }

  std::string boot_file = boot_id_file.empty() ? "/proc/sys/kernel/random/boot_id" : boot_id_file;
  state.boot_id_ = trimmed(read_file(boot_file).value_or(""));
  if (state.boot_id_.empty()) return Error{kExitUsage, "cannot read the boot id from " + boot_file};

  state.uid_ = trimmed(read_file(directory + "/host-uid").value_or(""));
  if (state.uid_.empty()) {
    state.uid_ = random_hex();
    problem = replace_file(directory + "/host-uid", state.uid_ + "\n", 0644, true);
    if (!problem.empty()) return Error{kExitUsage, problem};
  }
  state.cluster_id_ = trimmed(read_file(state.cluster_file()).value_or(""));
  std::istringstream epoch(read_file(directory + "/epoch").value_or(""));
  epoch >> state.epoch_.number >> state.epoch_.start_id;
  return state;
}

std::string HostIdentity::obey(const Epoch& epoch) {
  if (epoch == epoch_) return "";
  if (epoch.number <= epoch_.number) {
    return "controller epoch " + describe(epoch) + " is refused: this host obeys epoch " +
           describe(epoch_) + (epoch.number == epoch_.number ? ", which came first" : "") +
           " (F-1)";
  }
  std::string problem = replace_file(
      directory_ + "/epoch",
      std::to_string(epoch.number) + " " + std::to_string(epoch.start_id) + "\n", 0644, true);
  if (!problem.empty()) return problem;
  epoch_ = epoch;
  return "";
}

std::string HostIdentity::obey(const std::string& cluster_id, const Epoch& epoch) {
  if (is_foreign(cluster_id))
    return "cluster " + cluster_id + " is refused: this host obeys cluster " + cluster_id_ +
           " (F-1)";
  if (cluster_id_.empty() && !cluster_id.empty()) {
    std::string problem = replace_file(cluster_file(), cluster_id + "\n", 0644, true);
    if (!problem.empty()) return problem;
    cluster_id_ = cluster_id;
  }
  return obey(epoch);
}

}  // namespace regrow
