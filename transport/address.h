// Where a controller listens: a Unix socket or a TCP port. Plain values; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "transport/result.h"

namespace regrow {

struct Address {
  enum class Kind : uint8_t { unix_socket, tcp };
  Kind kind = Kind::unix_socket;
  std::string path;  // of a Unix socket, absolute
  std::string host;  // of TCP: name, IPv4, or IPv6 without brackets; "*" = every interface
  uint16_t port = 0;

  bool is_tcp() const { return kind == Kind::tcp; }
  friend bool operator==(const Address&, const Address&) = default;
};

// "unix:/run/regrow/controller.sock", "/run/…", "tcp:host:7070", "host:7070", "[::1]:7070".
Result<Address> parse_address(std::string_view text);
// The form that parse_address reads back: "unix:/path", "tcp:host:port".
std::string to_string(const Address& address);

}  // namespace regrow
