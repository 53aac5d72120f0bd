// Mutual TLS for TCP connections: which files, and how a refusal reads.
//
// TLS 1.2 or newer, no system trust store: both ends prove a certificate of the same CA
// (`regrow certs init`, `regrow certs issue`). The client checks that the server is "controller".
#pragma once

#include <kj/compat/tls.h>

#include <memory>
#include <string>

#include "transport/result.h"

namespace regrow {

// PEM files as `regrow certs issue` writes them.
struct TlsFiles {
  std::string ca;           // DIR/ca.pem
  std::string certificate;  // DIR/NAME.pem
  std::string key;          // DIR/NAME.key

  static TlsFiles in(const std::string& directory, const std::string& name) {
    return {directory + "/ca.pem", directory + "/" + name + ".pem",
            directory + "/" + name + ".key"};
  }
  friend bool operator==(const TlsFiles&, const TlsFiles&) = default;
};

// Keys and certificates of one end, read once. Use and destroy on one KJ thread.
class TlsCredentials {
 public:
  // The files are read and checked here; an error names the file and what to do.
  static Result<std::unique_ptr<TlsCredentials>> load(const TlsFiles& files, kj::Timer& timer);

  kj::TlsContext& context() { return context_; }

 private:
  TlsCredentials(kj::TlsKeypair keypair, kj::TlsCertificate ca, kj::Timer& timer);
  kj::TlsKeypair keypair_;
  kj::TlsCertificate ca_;
  kj::TlsContext context_;
};

// The name that a controller's certificate carries.
inline constexpr const char* kControllerName = "controller";

// TCP_NODELAY, keepalive (2 s idle, 1 s apart, 3 probes), TCP_USER_TIMEOUT 5 s: a silent network
// drop is noticed in about four seconds. Set before TLS.
void set_tcp_options(kj::AsyncIoStream& stream);

// Says what to do about an error while connecting, if it is one of TLS (unknown CA, expired, ...);
// other texts come back as they are.
std::string explain_tls_error(const std::string& text);

}  // namespace regrow
