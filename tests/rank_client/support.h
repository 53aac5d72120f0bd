// What the tests of the rank library share: an agent's end made of plain sockets, and a rank's
// environment.
#pragma once

#include <stdlib.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <filesystem>
#include <map>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "actors/agent/files.h"
#include "transport/rank_client/client.h"
#include "transport/rank_client/frame.h"

namespace regrow::testing {

using rank_client::Client;
using rank_protocol::FrameReader;
using rank_protocol::FrameWriter;
using rank_protocol::Kind;

inline const std::string kToken = "0123456789abcdef0123456789abcdef";

class TemporaryDirectory {
 public:
  TemporaryDirectory() : path_("/tmp/regrow-test-XXXXXX") {
    if (mkdtemp(path_.data()) == nullptr) throw std::runtime_error("mkdtemp failed");
  }
  ~TemporaryDirectory() { std::filesystem::remove_all(path_); }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// Variables of this process for as long as it lives; those of a rank that are not named are unset.
using Variables = std::map<std::string, std::string>;
class Environment {
 public:
  explicit Environment(const Variables& variables) {
    for (const char* name :
         {"RANK", "WORLD_SIZE", "LOCAL_RANK", "REGROW_RANK", "REGROW_JOB", "REGROW_GENERATION",
          "REGROW_INCARNATION", "TORCHELASTIC_RESTART_COUNT", "REGROW_RESUME_STEP",
          "REGROW_RESUME_PATH", "REGROW_CHECKPOINT_DIR", "REGROW_SOCKET", "REGROW_TOKEN",
          "REGROW_JOIN", "MASTER_ADDR", "MASTER_PORT"}) {
      unsetenv(name);
    }
    for (const auto& [name, value] : variables) setenv(name.c_str(), value.c_str(), 1);
    for (const auto& [name, value] : variables) names_.push_back(name);
  }
  ~Environment() {
    for (const std::string& name : names_) unsetenv(name.c_str());
  }

 private:
  std::vector<std::string> names_;
};

inline Variables supervised(const std::string& socket) {
  return {{"REGROW_SOCKET", socket}, {"REGROW_TOKEN", kToken}, {"REGROW_GENERATION", "3"}};
}

// A packet as it came.
struct Packet {
  std::string bytes;
  FrameReader frame() const { return {bytes.data(), bytes.size()}; }
  Kind kind() const { return frame().kind(); }
  int64_t first_number() const { return frame().number(); }
};

// The listening end, with nothing of an agent behind it.
class Listener {
 public:
  explicit Listener(const std::string& path)
      : path_(path), fd_(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0)) {
    sockaddr_un address = {};
    address.sun_family = AF_UNIX;
    path.copy(address.sun_path, sizeof address.sun_path - 1);
    unlink(path.c_str());
    if (bind(fd_.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0 ||
        listen(fd_.get(), 16) != 0) {
      throw std::runtime_error("cannot listen at " + path);
    }
  }
  ~Listener() { unlink(path_.c_str()); }
  // Invalid if nobody waits.
  Fd accept() { return Fd(accept4(fd_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC)); }

 private:
  std::string path_;
  Fd fd_;
};

inline std::optional<Packet> receive(const Fd& fd) {
  char bytes[rank_protocol::kMaxFrameBytes];
  ssize_t n = recv(fd.get(), bytes, sizeof bytes, MSG_DONTWAIT);
  if (n <= 0) return std::nullopt;
  return Packet{{bytes, static_cast<size_t>(n)}};
}

inline std::vector<Packet> receive_all(const Fd& fd) {
  std::vector<Packet> all;
  while (auto packet = receive(fd)) all.push_back(*packet);
  return all;
}

inline bool send_frame(const Fd& fd, const FrameWriter& frame) {
  return send(fd.get(), frame.data(), frame.size(), MSG_NOSIGNAL) >= 0;
}

}  // namespace regrow::testing
