#include "actors/agent/allowed_users.h"

#include <pwd.h>

#include <charconv>

namespace regrow {
namespace {

std::string text_of(const UserName& user) {
  if (user.uid == 0) return "root";
  std::string text = "uid " + std::to_string(user.uid);
  return user.name.empty() ? text : text + " (" + user.name + ")";
}

std::string option_for(const UserName& user) {
  return "--allow-user " + (user.name.empty() ? std::to_string(user.uid) : user.name);
}

}  // namespace

Result<AllowedUsers> AllowedUsers::parse(const std::vector<std::string>& texts) {
  AllowedUsers allowed;
  for (const std::string& text : texts) {
    uint32_t uid = 0;
    auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), uid);
    if (text == "any") {
      allowed.any = true;
    } else if (!text.empty() && error == std::errc() && end == text.data() + text.size()) {
      allowed.uids.insert(uid);
    } else {
      passwd entry;
      passwd* found = nullptr;
      char buffer[16384];
      if (getpwnam_r(text.c_str(), &entry, buffer, sizeof buffer, &found) != 0 || found == nullptr)
        return Error{kExitUsage, "--allow-user: there is no user \"" + text +
                                     "\" on this host; write a name, a number, or any"};
      allowed.uids.insert(found->pw_uid);
    }
  }
  return allowed;
}

std::string AllowedUsers::refusal(const UserName& user, uint32_t self, const HostName& host) const {
  if (self != 0) {
    if (user.uid == self) return "";
    return "the agent of host " + host.value + " runs as uid " + std::to_string(self) +
           " and cannot start ranks as " + text_of(user) +
           "; submit as its user, or run it as root with " + option_for(user);
  }
  if (uids.contains(user.uid) || (any && user.uid != 0)) return "";
  return "host " + host.value + " starts no ranks as " + text_of(user) +
         "; submit as a user that it allows, or start its agent with " + option_for(user);
}

}  // namespace regrow
