// The controller's listening sockets: accepts connections, finds out who is there, and offers the
// host link and the admin service on each.
//
//   RpcServer rpc(loop, &host_link, &admin);
//   auto bound = rpc.listen({.address = *parse_address("unix:/run/regrow/controller.sock")});
//   if (!bound) die(bound.error());
//
// Owned by the process; destroy it before the servers that it offers.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "transport/address.h"
#include "transport/identity.h"
#include "transport/result.h"
#include "transport/tls.h"

namespace regrow {

class AdminServer;
class HostLinkServer;
class KjLoop;

struct ListenOptions {
  Address address;                   // TCP port 0 = any free one
  std::optional<TlsFiles> tls = {};  // required for TCP: there is no TCP without mutual TLS
  uint32_t socket_mode = 0600;       // of a Unix socket; 0666 lets other users of the machine view
  RoleRules roles = {};              // who is who on a Unix socket
};

class RpcServer {
 public:
  // Either service may be null. `loop` and the services outlive it.
  RpcServer(KjLoop& loop, HostLinkServer* host_link, AdminServer* admin);
  ~RpcServer();  // closes all connections; not on the loop's thread

  // Not on the loop's thread. Returns the address really bound. A Unix socket left by a dead
  // controller is replaced, one of a living controller is an error. May be called several times.
  Result<Address> listen(ListenOptions options);

 private:
  class Impl;
  KjLoop& loop_;
  std::shared_ptr<Impl> impl_;
};

}  // namespace regrow
