#include "actors/agent/port_leases.h"

#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>

namespace regrow {
namespace {

// Held for as long as the port is leased; invalid if another agent of this machine has it.
Fd claim_on_machine(uint32_t port) {
  Fd fd(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  std::string name = "regrow-port-" + std::to_string(port);
  memcpy(address.sun_path + 1, name.data(), name.size());  // abstract: gone with its holder
  auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  if (!fd || bind(fd.get(), reinterpret_cast<sockaddr*>(&address), size) != 0) return Fd();
  return fd;
}

// Without SO_REUSEADDR: a port with connections in TIME_WAIT counts as taken.
bool can_bind(uint32_t port) {
  Fd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  return fd && bind(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) == 0;
}

}  // namespace

PortLeases::PortLeases(std::string host, uint32_t first, uint32_t last)
    : host_(std::move(host)), first_(first), last_(std::max(first, last)) {}

uint32_t PortLeases::lease(JobId job, Generation generation, uint32_t attempt,
                           const std::vector<uint32_t>& avoid, std::string& error) {
  error.clear();
  auto avoided = [&avoid](uint32_t port) {
    return std::find(avoid.begin(), avoid.end(), port) != avoid.end();
  };
  auto mine = leases_.find(job);
  if (mine != leases_.end()) {
    const Lease& old = mine->second;
    bool same = old.generation == generation && old.attempt == attempt;
    if (same && !avoided(old.port)) return old.port;
  }
  uint32_t size = last_ - first_ + 1;
  std::string seed = host_ + "/" + std::to_string(job.value) + "/" +
                     std::to_string(generation.value) + "/" + std::to_string(attempt);
  auto start = static_cast<uint32_t>(stable_hash(seed) % size);
  for (uint32_t i = 0; i < size; ++i) {
    uint32_t port = first_ + (start + i) % size;
    if (avoided(port) || held(port)) continue;
    Fd claim = claim_on_machine(port);
    if (!claim || !can_bind(port)) continue;
    leases_[job] = {generation, attempt, port, std::move(claim)};
    return port;
  }
  error = "no free port between " + std::to_string(first_) + " and " + std::to_string(last_) +
          "; widen the agent's port range";
  return 0;
}

void PortLeases::adopt(JobId job, Generation generation, uint32_t port) {
  if (port < first_ || port > last_ || held(port)) return;
  leases_[job] = {generation, 0, port, claim_on_machine(port)};
}

void PortLeases::release(JobId job, uint32_t port) {
  auto found = leases_.find(job);
  if (found != leases_.end() && found->second.port == port) leases_.erase(found);
}

bool PortLeases::held(uint32_t port) const {
  return std::any_of(leases_.begin(), leases_.end(),
                     [port](const auto& lease) { return lease.second.port == port; });
}

}  // namespace regrow
