// Who is at the other end of a connection and what they may do. Plain values; any thread.
//
// On a Unix socket the kernel says which uid connected; on TCP the peer's certificate says its
// name: "agent/h1", "operator/ann", "viewer/board", "controller". Nothing the peer itself claims
// counts.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

namespace regrow {

enum class Role : uint8_t {
  none,           // may do nothing: a certificate whose name has no known role
  viewer,         // may ask
  operator_role,  // may ask and act
  agent,          // may attach as a host
  owner,          // the controller's own user or root on its own machine: operator and agent
};

// "none", "viewer", "operator", "agent"; an owner is shown as "operator".
const char* to_string(Role role);

struct PeerIdentity {
  std::string who;        // "uid:1000" or the certificate's name, "operator/ann"
  std::string transport;  // "unix" or "tls"
  int64_t uid = -1;       // of a Unix peer
  Role role = Role::none;

  bool may_view() const;
  bool may_operate() const;
  // As the host of that name: a certificate is for one host.
  bool may_attach(const std::string& host_name) const;
};

// Further uids on the Unix socket. Everyone else who can open it is a viewer.
struct RoleRules {
  uid_t own_uid = 0;  // the controller's; root is always an owner as well
  std::vector<uid_t> operator_uids = {};
  std::vector<uid_t> agent_uids = {};
};

PeerIdentity identify_uid(uid_t uid, const RoleRules& rules);
PeerIdentity identify_certificate(const std::string& common_name);

// Sentences for a peer that may not do `action` ("cancel job 7"): what it is, what to do.
std::string refusal(const PeerIdentity& peer, Role needed, const std::string& action);

}  // namespace regrow
