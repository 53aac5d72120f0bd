// `regrow certs init|issue`: a small certificate authority in a directory, so that TCP needs
// nothing but regrow itself. Blocking file work; any thread.
//
//   certs_init("certs");                                     // ca.pem, ca.key
//   certs_issue("certs", {.role = "controller"});            // controller.pem, controller.key
//   certs_issue("certs", {.role = "agent", .name = "h1"});   // h1.pem, h1.key; name "agent/h1"
//
// Keys are ECDSA P-256, files of keys have mode 0600. Nothing that exists is overwritten. Whoever
// can read ca.key can become anyone: keep it away from the hosts.
#pragma once

#include <string>

#include "transport/result.h"
#include "transport/tls.h"

namespace regrow {

struct IssueOptions {
  std::string role;       // controller, agent, operator, viewer
  std::string name = {};  // host or person; none for a controller
  int days = 365;
};

// Makes the directory (0700) if it is not there, and the CA. Ten years.
Status certs_init(const std::string& directory, int days = 3650);

// Returns the files for the one who gets them: ca.pem, NAME.pem, NAME.key. The certificate's common
// name is "ROLE/NAME", or "controller".
Result<TlsFiles> certs_issue(const std::string& directory, const IssueOptions& options);

// An error unless the key is the one of the certificate.
Status check_key_pair(const std::string& certificate_file, const std::string& key_file);

// When the certificate in a PEM file ends, as Unix seconds.
Result<long long> certificate_expiry(const std::string& pem_file);

}  // namespace regrow
