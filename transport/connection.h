// Inside transport/: one Cap'n Proto connection, and how to dial one. KJ thread only.
#pragma once

#include <capnp/rpc-twoparty.h>
#include <kj/async-io.h>

#include <memory>
#include <optional>
#include <string>

#include "supervisors/types.h"
#include "transport/address.h"
#include "transport/tls.h"

namespace regrow {

class KjLoop;

// Owns the stream and the RPC system on it. Destroying it closes the connection and fails what is
// under way.
class RpcConnection {
 public:
  // The side that connected.
  explicit RpcConnection(kj::Own<kj::AsyncIoStream> stream);
  // The side that accepted; it offers `bootstrap`.
  RpcConnection(kj::Own<kj::AsyncIoStream> stream, capnp::Capability::Client bootstrap);

  capnp::Capability::Client bootstrap();
  // Resolves when the peer is gone.
  kj::Promise<void> on_disconnect() { return network_.onDisconnect(); }

 private:
  kj::Own<kj::AsyncIoStream> stream_;
  capnp::TwoPartyVatNetwork network_;
  capnp::RpcSystem<capnp::rpc::twoparty::VatId> rpc_;
};

// Connects; for TCP with mutual TLS. Missing or unfit certificates fail as admin_error(kExitUsage).
kj::Promise<kj::Own<RpcConnection>> dial(KjLoop& loop, const Address& address,
                                         const std::optional<TlsFiles>& tls);

// Fails with `message` when the promise takes longer.
template <class T>
kj::Promise<T> within(kj::Timer& timer, Duration limit, std::string message,
                      kj::Promise<T> promise) {
  return promise.exclusiveJoin(timer.afterDelay(limit.us * kj::MICROSECONDS)
                                   .then([message = std::move(message)]() -> kj::Promise<T> {
                                     return kj::Exception(kj::Exception::Type::OVERLOADED, __FILE__,
                                                          __LINE__, kj::str(message));
                                   }));
}

// Cancels a call when its caller goes. From Cap'n Proto 1.0 on that is no longer said at run time;
// a call then lives on until its promise ends, and its result goes nowhere.
template <class Context>
void cancel_with_caller(Context& context) {
  if constexpr (requires { context.allowCancellation(); }) context.allowCancellation();
}

inline kj::Exception failure(const std::string& message) {
  return kj::Exception(kj::Exception::Type::FAILED, __FILE__, __LINE__, kj::str(message));
}

// Description of an exception without what Cap'n Proto puts before one of the other end.
std::string text_of(const kj::Exception& exception);

}  // namespace regrow
