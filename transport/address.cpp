#include "transport/address.h"

#include <sys/un.h>

#include <charconv>

namespace regrow {

namespace {

Error bad(std::string_view text, const std::string& why) {
  return {kExitUsage, "address \"" + std::string(text) + "\": " + why +
                          "; write unix:/path/to/socket, or tcp:HOST:PORT"};
}

Result<Address> parse_unix(std::string_view text, std::string_view path) {
  if (path.empty() || path[0] != '/') return bad(text, "the path of a socket must begin with /");
  if (path.size() >= sizeof(sockaddr_un::sun_path)) {
    return Error{kExitUsage, "address \"" + std::string(text) + "\": the path has " +
                                 std::to_string(path.size()) + " bytes, a socket's may have " +
                                 std::to_string(sizeof(sockaddr_un::sun_path) - 1) +
                                 "; choose a shorter directory"};
  }
  return Address{Address::Kind::unix_socket, std::string(path), {}, 0};
}

Result<Address> parse_tcp(std::string_view text, std::string_view rest) {
  auto colon = rest.rfind(':');
  if (colon == std::string_view::npos) return bad(text, "the port is missing");
  std::string_view host = rest.substr(0, colon);
  std::string_view port = rest.substr(colon + 1);
  if (host.size() >= 2 && host.front() == '[' && host.back() == ']') {
    host = host.substr(1, host.size() - 2);
  } else if (host.find(':') != std::string_view::npos) {
    return bad(text, "an IPv6 address needs brackets, [::1]:PORT");
  }
  if (host.empty()) return bad(text, "the host is missing (\"*\" listens on every interface)");
  unsigned number = 0;
  auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), number);
  if (port.empty() || error != std::errc{} || end != port.data() + port.size() || number > 65535) {
    return bad(text, "\"" + std::string(port) + "\" is not a port from 0 to 65535");
  }
  return Address{Address::Kind::tcp, {}, std::string(host), static_cast<uint16_t>(number)};
}

}  // namespace

Result<Address> parse_address(std::string_view text) {
  if (text.starts_with("unix:")) return parse_unix(text, text.substr(5));
  if (text.starts_with("/")) return parse_unix(text, text);
  if (text.starts_with("tcp:")) return parse_tcp(text, text.substr(4));
  return parse_tcp(text, text);
}

std::string to_string(const Address& address) {
  if (!address.is_tcp()) return "unix:" + address.path;
  bool v6 = address.host.find(':') != std::string::npos;
  return "tcp:" + (v6 ? "[" + address.host + "]" : address.host) + ":" +
         std::to_string(address.port);
}

}  // namespace regrow
