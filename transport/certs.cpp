#include "transport/certs.h"

#include <fcntl.h>
#include <openssl/ec.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <openssl/x509v3.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <memory>

namespace regrow {

namespace {

template <auto Free>
struct Freer {
  template <class T>
  void operator()(T* p) const {
    Free(p);
  }
};
using Key = std::unique_ptr<EVP_PKEY, Freer<EVP_PKEY_free>>;
using Certificate = std::unique_ptr<X509, Freer<X509_free>>;
using File = std::unique_ptr<FILE, Freer<fclose>>;

Error failed(const std::string& what) {
  char text[256] = "unknown error";
  if (unsigned long code = ERR_get_error()) ERR_error_string_n(code, text, sizeof text);
  ERR_clear_error();
  return {kExitUsage, what + ": " + text};
}
Error failed_errno(const std::string& what) {
  return {kExitUsage, what + ": " + std::strerror(errno)};
}

bool add_extension(X509* certificate, X509* issuer, int nid, const char* value) {
  X509V3_CTX context;
  X509V3_set_ctx_nodb(&context);
  X509V3_set_ctx(&context, issuer, certificate, nullptr, nullptr, 0);
  X509_EXTENSION* extension = X509V3_EXT_conf_nid(nullptr, &context, nid, value);
  if (extension == nullptr) return false;
  bool ok = X509_add_ext(certificate, extension, -1) == 1;
  X509_EXTENSION_free(extension);
  return ok;
}

// An unsigned certificate with name, key, random serial number and period; begins five minutes ago
// so that hosts whose clocks are a little late accept it.
Certificate draft(const std::string& common_name, EVP_PKEY* key, int days) {
  Certificate certificate(X509_new());
  unsigned char serial[16];
  if (!certificate || RAND_bytes(serial, sizeof serial) != 1) return nullptr;
  serial[0] &= 0x7f;
  std::unique_ptr<BIGNUM, Freer<BN_free>> number(BN_bin2bn(serial, sizeof serial, nullptr));
  X509_NAME* name = X509_get_subject_name(certificate.get());
  bool ok = number && BN_to_ASN1_INTEGER(number.get(), X509_get_serialNumber(certificate.get())) &&
            X509_set_version(certificate.get(), X509_VERSION_3) == 1 &&
            X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_UTF8,
                                       reinterpret_cast<const unsigned char*>(common_name.c_str()),
                                       -1, -1, 0) == 1 &&
            X509_set_pubkey(certificate.get(), key) == 1 &&
            X509_gmtime_adj(X509_getm_notBefore(certificate.get()), -300) &&
            X509_time_adj_ex(X509_getm_notAfter(certificate.get()), days, 0, nullptr);
  return ok ? std::move(certificate) : nullptr;
}

bool sign(X509* certificate, X509* issuer, EVP_PKEY* issuer_key) {
  return X509_set_issuer_name(certificate, X509_get_subject_name(issuer)) == 1 &&
         X509_sign(certificate, issuer_key, EVP_sha256()) > 0;
}

// A new file of that mode; an error if it is there already. Removed again if it cannot be written.
template <class Write>
Status write_new(const std::string& path, mode_t mode, Write write) {
  int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
  if (fd < 0 && errno == EEXIST) {
    return Error{kExitUsage, path + " is there already and is not overwritten; move it away first"};
  }
  if (fd < 0) return failed_errno("cannot create " + path);
  fchmod(fd, mode);
  FILE* file = fdopen(fd, "w");
  bool ok = write(file) == 1 && std::fflush(file) == 0 && fsync(fd) == 0;
  ok = std::fclose(file) == 0 && ok;
  if (!ok) {
    auto error = failed_errno("cannot write " + path);
    unlink(path.c_str());
    return error;
  }
  return Nothing{};
}

Status write_pair(const std::string& base, X509* certificate, EVP_PKEY* key) {
  std::string pem = base + ".pem";
  if (access(pem.c_str(), F_OK) == 0) {
    return Error{kExitUsage, pem + " is there already and is not overwritten; move it away first"};
  }
  auto wrote = write_new(base + ".key", 0600, [&](FILE* file) {
    return PEM_write_PrivateKey(file, key, nullptr, nullptr, 0, nullptr, nullptr);
  });
  if (!wrote) return wrote;
  wrote = write_new(pem, 0644, [&](FILE* file) { return PEM_write_X509(file, certificate); });
  if (!wrote) unlink((base + ".key").c_str());
  return wrote;
}

Result<std::shared_ptr<X509>> read_certificate(const std::string& path) {
  File file(std::fopen(path.c_str(), "re"));
  if (!file) return failed_errno("cannot read " + path);
  X509* certificate = PEM_read_X509(file.get(), nullptr, nullptr, nullptr);
  if (certificate == nullptr) return failed(path + " holds no certificate");
  return std::shared_ptr<X509>(certificate, X509_free);
}

Result<std::shared_ptr<EVP_PKEY>> read_key(const std::string& path) {
  File file(std::fopen(path.c_str(), "re"));
  if (!file) return failed_errno("cannot read " + path);
  EVP_PKEY* key = PEM_read_PrivateKey(file.get(), nullptr, nullptr, nullptr);
  if (key == nullptr) return failed(path + " holds no key");
  return std::shared_ptr<EVP_PKEY>(key, EVP_PKEY_free);
}

Status check_issue(const IssueOptions& options) {
  if (options.role == "controller") {
    if (options.name.empty() || options.name == "controller") return Nothing{};
    return Error{kExitUsage, "a controller's certificate has no name of its own; leave --name out"};
  }
  if (options.role != "agent" && options.role != "operator" && options.role != "viewer") {
    return Error{kExitUsage, "role \"" + options.role +
                                 "\" is not known; it is controller, agent, operator or viewer"};
  }
  constexpr size_t kLongest = 50;  // role and name share the 64 bytes of a common name
  bool plain = !options.name.empty() && options.name.size() <= kLongest && options.name[0] != '.';
  for (char c : options.name)
    plain = plain && (std::isalnum(static_cast<unsigned char>(c)) || std::strchr("._-", c));
  if (!plain || options.name == "ca" || options.name == "controller") {
    return Error{kExitUsage,
                 "name \"" + options.name +
                     "\" cannot be used: 1 to 50 letters, digits, '.', '_', '-', and neither "
                     "\"ca\" nor \"controller\""};
  }
  return Nothing{};
}

}  // namespace

Status certs_init(const std::string& directory, int days) {
  if (days < 1) return Error{kExitUsage, "the number of days must be at least 1"};
  if (mkdir(directory.c_str(), 0700) != 0 && errno != EEXIST) {
    return failed_errno("cannot make the directory " + directory);
  }
  Key key(EVP_EC_gen("P-256"));
  if (!key) return failed("cannot make a key");
  auto certificate = draft("regrow CA", key.get(), days);
  bool ok =
      certificate &&
      add_extension(certificate.get(), certificate.get(), NID_basic_constraints,
                    "critical,CA:TRUE,pathlen:0") &&
      add_extension(certificate.get(), certificate.get(), NID_key_usage,
                    "critical,keyCertSign,cRLSign") &&
      add_extension(certificate.get(), certificate.get(), NID_subject_key_identifier, "hash") &&
      sign(certificate.get(), certificate.get(), key.get());
  if (!ok) return failed("cannot make the CA's certificate");
  return write_pair(directory + "/ca", certificate.get(), key.get());
}

Result<TlsFiles> certs_issue(const std::string& directory, const IssueOptions& options) {
  if (auto checked = check_issue(options); !checked) return checked.error();
  if (options.days < 1) return Error{kExitUsage, "the number of days must be at least 1"};
  auto ca = read_certificate(directory + "/ca.pem");
  if (!ca) {
    return Error{kExitUsage,
                 ca.error().message + "; `regrow certs init " + directory + "` makes a CA"};
  }
  auto ca_key = read_key(directory + "/ca.key");
  if (!ca_key) return ca_key.error();
  auto matched = check_key_pair(directory + "/ca.pem", directory + "/ca.key");
  if (!matched) return matched.error();

  bool controller = options.role == "controller";
  std::string name = controller ? kControllerName : options.name;
  Key key(EVP_EC_gen("P-256"));
  if (!key) return failed("cannot make a key");
  auto certificate = draft(controller ? name : options.role + "/" + name, key.get(), options.days);
  bool ok =
      certificate &&
      add_extension(certificate.get(), ca->get(), NID_basic_constraints, "critical,CA:FALSE") &&
      add_extension(certificate.get(), ca->get(), NID_key_usage, "critical,digitalSignature") &&
      // A stolen agent's certificate cannot play the controller.
      add_extension(certificate.get(), ca->get(), NID_ext_key_usage,
                    controller ? "serverAuth" : "clientAuth") &&
      (!controller ||
       add_extension(certificate.get(), ca->get(), NID_subject_alt_name, "DNS:controller")) &&
      add_extension(certificate.get(), ca->get(), NID_authority_key_identifier, "keyid") &&
      sign(certificate.get(), ca->get(), ca_key->get());
  if (!ok) return failed("cannot make the certificate");
  if (auto wrote = write_pair(directory + "/" + name, certificate.get(), key.get()); !wrote) {
    return wrote.error();
  }
  return TlsFiles::in(directory, name);
}

Status check_key_pair(const std::string& certificate_file, const std::string& key_file) {
  auto certificate = read_certificate(certificate_file);
  if (!certificate) return certificate.error();
  auto key = read_key(key_file);
  if (!key) return key.error();
  if (X509_check_private_key(certificate->get(), key->get()) != 1) {
    ERR_clear_error();
    return Error{kExitUsage, key_file + " is not the key of " + certificate_file +
                                 "; take both files from the same `regrow certs issue`"};
  }
  return Nothing{};
}

Result<long long> certificate_expiry(const std::string& pem_file) {
  auto certificate = read_certificate(pem_file);
  if (!certificate) return certificate.error();
  std::tm end{};
  if (ASN1_TIME_to_tm(X509_get0_notAfter(certificate->get()), &end) != 1) {
    return failed(pem_file + " has no valid end date");
  }
  return static_cast<long long>(timegm(&end));
}

}  // namespace regrow
