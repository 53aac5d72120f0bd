#include "transport/connection.h"

#include <unistd.h>

#include <cstring>

#include "transport/admin.h"
#include "transport/kj_loop.h"

namespace regrow {

RpcConnection::RpcConnection(kj::Own<kj::AsyncIoStream> stream)
    : stream_(kj::mv(stream)),
      network_(*stream_, capnp::rpc::twoparty::Side::CLIENT),
      rpc_(capnp::makeRpcClient(network_)) {}

RpcConnection::RpcConnection(kj::Own<kj::AsyncIoStream> stream, capnp::Capability::Client bootstrap)
    : stream_(kj::mv(stream)),
      network_(*stream_, capnp::rpc::twoparty::Side::SERVER),
      rpc_(capnp::makeRpcServer(network_, kj::mv(bootstrap))) {}

capnp::Capability::Client RpcConnection::bootstrap() {
  capnp::MallocMessageBuilder message(8);
  auto vat = message.initRoot<capnp::rpc::twoparty::VatId>();
  vat.setSide(capnp::rpc::twoparty::Side::SERVER);
  return rpc_.bootstrap(vat);
}

namespace {

kj::Promise<kj::Own<RpcConnection>> dial_unix(KjLoop& loop, const std::string& path) {
  return loop.network()
      .parseAddress(kj::str("unix:", path))
      .then([](kj::Own<kj::NetworkAddress> address) {
        auto connecting = address->connect();
        return connecting.attach(kj::mv(address));
      })
      .then([](kj::Own<kj::AsyncIoStream> stream) {
        return kj::heap<RpcConnection>(kj::mv(stream));
      });
}

kj::Promise<kj::Own<RpcConnection>> dial_tls(KjLoop& loop, const Address& address,
                                             const TlsFiles& files) {
  auto loaded = TlsCredentials::load(files, loop.timer());
  if (!loaded) return AdminFailure{loaded.error()}.to_exception();
  auto credentials = kj::heap<std::unique_ptr<TlsCredentials>>(kj::mv(*loaded));
  auto& context = (*credentials)->context();
  bool v6 = address.host.find(':') != std::string::npos;
  auto host = v6 ? kj::str("[", address.host, "]:", address.port)
                 : kj::str(address.host, ":", address.port);
  return loop.network()
      .parseAddress(host)
      .then([](kj::Own<kj::NetworkAddress> parsed) {
        auto connecting = parsed->connectAuthenticated();
        return connecting.attach(kj::mv(parsed));
      })
      .then([&context](kj::AuthenticatedStream raw) {
        set_tcp_options(*raw.stream);
        return context.wrapClient(kj::mv(raw), kControllerName);
      })
      .then([credentials = kj::mv(credentials)](kj::AuthenticatedStream secure) mutable {
        // SSL_CTX is counted by its connections, but keep ours while one lives all the same.
        return kj::heap<RpcConnection>(secure.stream.attach(kj::mv(credentials)));
      });
}

}  // namespace

kj::Promise<kj::Own<RpcConnection>> dial(KjLoop& loop, const Address& address,
                                         const std::optional<TlsFiles>& tls) {
  if (!address.is_tcp()) return dial_unix(loop, address.path);
  if (!tls) {
    return admin_error(
               kExitUsage,
               to_string(address) +
                   ": TCP works only with mutual TLS and no certificate is set. Ask whoever keeps "
                   "the cluster's certificates for files made by `regrow certs issue DIR --role "
                   "ROLE --name NAME`, and name them")
        .to_exception();
  }
  return dial_tls(loop, address, *tls);
}

std::string text_of(const kj::Exception& exception) {
  std::string text = exception.getDescription().cStr();
  constexpr char kRemote[] = "remote exception: ";
  while (text.starts_with(kRemote)) text.erase(0, sizeof kRemote - 1);
  return text;
}

}  // namespace regrow
