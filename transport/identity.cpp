#include "transport/identity.h"

#include <algorithm>

namespace regrow {

namespace {

bool contains(const std::vector<uid_t>& uids, uid_t uid) {
  return std::find(uids.begin(), uids.end(), uid) != uids.end();
}

constexpr char kAgentPrefix[] = "agent/";

}  // namespace

const char* to_string(Role role) {
  switch (role) {
    case Role::none:
      return "none";
    case Role::viewer:
      return "viewer";
    case Role::operator_role:
      return "operator";
    case Role::agent:
      return "agent";
    case Role::owner:
      return "operator";
  }
  return "?";
}

bool PeerIdentity::may_view() const {
  return role == Role::viewer || role == Role::operator_role || role == Role::owner;
}
bool PeerIdentity::may_operate() const {
  return role == Role::operator_role || role == Role::owner;
}
bool PeerIdentity::may_attach(const std::string& host_name) const {
  if (role == Role::owner) return true;
  if (role != Role::agent) return false;
  return transport == "unix" || who == kAgentPrefix + host_name;
}

PeerIdentity identify_uid(uid_t uid, const RoleRules& rules) {
  PeerIdentity peer{"uid:" + std::to_string(uid), "unix", static_cast<int64_t>(uid), Role::viewer};
  bool operates = contains(rules.operator_uids, uid);
  bool attaches = contains(rules.agent_uids, uid);
  if (uid == 0 || uid == rules.own_uid || (operates && attaches)) {
    peer.role = Role::owner;
  } else if (operates) {
    peer.role = Role::operator_role;
  } else if (attaches) {
    peer.role = Role::agent;
  }
  return peer;
}

PeerIdentity identify_certificate(const std::string& common_name) {
  PeerIdentity peer{common_name, "tls", -1, Role::none};
  auto named = [&](const char* prefix) {
    std::string p(prefix);
    return common_name.size() > p.size() && common_name.starts_with(p);
  };
  if (named(kAgentPrefix)) peer.role = Role::agent;
  if (named("operator/")) peer.role = Role::operator_role;
  if (named("viewer/")) peer.role = Role::viewer;
  return peer;
}

std::string refusal(const PeerIdentity& peer, Role needed, const std::string& action) {
  std::string text = "you are " + peer.who + " with role " + to_string(peer.role) +
                     " and may not " + action + ": that needs role " + to_string(needed) + ". ";
  if (peer.transport == "tls") {
    text += std::string(
                "Ask whoever keeps the cluster's certificates for one made by `regrow certs "
                "issue DIR --role ") +
            to_string(needed) + " --name NAME`.";
  } else {
    text += std::string(
                "Run it as the controller's user or root, or start the controller with this "
                "uid among its ") +
            to_string(needed) + " uids.";
  }
  return text;
}

}  // namespace regrow
