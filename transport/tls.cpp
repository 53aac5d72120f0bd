#include "transport/tls.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <ctime>
#include <fstream>
#include <sstream>

#include "transport/certs.h"

namespace regrow {

namespace {

Result<std::string> read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  if (file) text << file.rdbuf();
  if (!file || text.str().empty()) {
    return Error{kExitUsage, "cannot read " + path + ": " +
                                 std::strerror(errno != 0 ? errno : EIO) +
                                 "; `regrow certs issue` makes such files"};
  }
  return text.str();
}

kj::TlsContext make_context(const kj::TlsKeypair& keypair, kj::TlsCertificate& ca,
                            kj::Timer& timer) {
  kj::TlsContext::Options options;
  options.useSystemTrustStore = false;
  options.verifyClients = true;
  options.trustedCertificates = kj::arrayPtr(&ca, 1);
  options.defaultKeypair = keypair;
  options.minVersion = kj::TlsVersion::TLS_1_2;
  options.timer = timer;
  options.acceptTimeout = 5 * kj::SECONDS;
  return kj::TlsContext(kj::mv(options));
}

Error check_expiry(const std::string& path) {
  auto expiry = certificate_expiry(path);
  if (!expiry) return expiry.error();
  if (*expiry > std::time(nullptr)) return {0, ""};
  std::time_t end = *expiry;
  std::tm date{};
  char text[32];
  gmtime_r(&end, &date);
  std::strftime(text, sizeof text, "%Y-%m-%d %H:%M UTC", &date);
  return {kExitUsage, path + " expired on " + text + "; make a new one with `regrow certs issue`"};
}

}  // namespace

TlsCredentials::TlsCredentials(kj::TlsKeypair keypair, kj::TlsCertificate ca, kj::Timer& timer)
    : keypair_(kj::mv(keypair)), ca_(kj::mv(ca)), context_(make_context(keypair_, ca_, timer)) {}

Result<std::unique_ptr<TlsCredentials>> TlsCredentials::load(const TlsFiles& files,
                                                             kj::Timer& timer) {
  auto ca = read_file(files.ca);
  if (!ca) return ca.error();
  auto certificate = read_file(files.certificate);
  if (!certificate) return certificate.error();
  auto key = read_file(files.key);
  if (!key) return key.error();
  for (const auto& path : {files.ca, files.certificate}) {
    if (auto problem = check_expiry(path); problem.exit_code != 0) return problem;
  }
  if (auto pair = check_key_pair(files.certificate, files.key); !pair) return pair.error();
  std::unique_ptr<TlsCredentials> made;
  auto exception = kj::runCatchingExceptions([&] {
    made.reset(
        new TlsCredentials(kj::TlsKeypair{kj::TlsPrivateKey(kj::StringPtr(key->c_str())),
                                          kj::TlsCertificate(kj::StringPtr(certificate->c_str()))},
                           kj::TlsCertificate(kj::StringPtr(ca->c_str())), timer));
  });
  KJ_IF_MAYBE (e, exception) {
    return Error{kExitUsage, files.certificate + ", " + files.key + " and " + files.ca +
                                 " do not make a valid set: " + e->getDescription().cStr()};
  }
  return made;
}

void set_tcp_options(kj::AsyncIoStream& stream) {
  auto set = [&](int level, int option, int value) {
    stream.setsockopt(level, option, &value, sizeof value);
  };
  set(IPPROTO_TCP, TCP_NODELAY, 1);
  set(SOL_SOCKET, SO_KEEPALIVE, 1);
  set(IPPROTO_TCP, TCP_KEEPIDLE, 2);
  set(IPPROTO_TCP, TCP_KEEPINTVL, 1);
  set(IPPROTO_TCP, TCP_KEEPCNT, 3);
  set(IPPROTO_TCP, TCP_USER_TIMEOUT, 5000);
}

std::string explain_tls_error(const std::string& text) {
  auto has = [&](const char* part) { return text.find(part) != std::string::npos; };
  const char* advice = nullptr;
  if (has("certificate required") || has("did not return a certificate") ||
      has("handshake failure")) {
    advice = "the other end wants a certificate of its CA";
  } else if (has("certificate has expired") || has("certificate expired")) {
    advice = "a certificate has expired";
  } else if (has("unknown ca") || has("unknown CA") || has("decrypt error")) {
    advice = "the two ends have certificates of different CAs";
  } else if (has("certificate verify failed") || has("ostname mismatch") ||
             has("unsupported certificate")) {
    // OpenSSL keeps the closer reason to itself.
    advice = "the other end's certificate is of another CA, not for that role, or out of date";
  } else if (has("ssl connection ended") || has("SSL connection ended")) {
    advice =
        "the other end did not accept this certificate (another CA, or out of date); its log says "
        "why";
  } else if (has("wrong version number") || has("http request") || has("packet length too long") ||
             has("bad record type") || has("unknown protocol")) {
    advice = "the other end does not speak TLS; TCP works only with mutual TLS";
  } else if (has("alert") || has("OpenSSL error")) {
    advice = "TLS refused the connection";
  }
  if (advice == nullptr) return text;
  return std::string(advice) +
         "; make matching files with `regrow certs issue DIR --role ROLE --name NAME` (" + text +
         ")";
}

}  // namespace regrow
