#include "tools/regrow/cluster_rule.h"

#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>

namespace regrow::cli {

namespace fs = std::filesystem;

namespace {

constexpr char kSocketName[] = "/regrow.sock";
constexpr char kPointerName[] = "/cluster";

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

bool is_directory(const std::string& path) {
  std::error_code error;
  return fs::is_directory(path, error);
}

std::string trimmed(std::string line) {
  auto first = line.find_first_not_of(" \t\r");
  if (first == std::string::npos) return "";
  return line.substr(first, line.find_last_not_of(" \t\r") - first + 1);
}

// First line that is neither empty nor a comment, and the value of a line "certs PATH".
struct ClusterFile {
  std::string value;
  std::string certs;
};
std::optional<ClusterFile> read_cluster_file(const std::string& path) {
  std::ifstream file(path);
  if (!file) return std::nullopt;
  ClusterFile found;
  std::string line;
  for (int lines = 0; lines < 100 && std::getline(file, line); ++lines) {
    line = trimmed(line);
    if (line.empty() || line[0] == '#') continue;
    if (line.starts_with("certs ")) {
      found.certs = trimmed(line.substr(6));
    } else if (found.value.empty()) {
      found.value = line;
    }
  }
  return found;
}

Result<TlsFiles> files_of_certificate(const std::string& pem) {
  std::string base = pem.substr(0, pem.size() - 4);
  TlsFiles files{fs::path(pem).parent_path().string() + "/ca.pem", pem, base + ".key"};
  for (const auto* path : {&files.certificate, &files.key, &files.ca}) {
    if (access(path->c_str(), R_OK) != 0) {
      return Error{kExitUsage, "certificate " + pem + ": cannot read " + *path + ": " +
                                   std::strerror(errno) +
                                   "; NAME.pem, NAME.key and ca.pem belong into one directory"};
    }
  }
  return files;
}

// --certs PATH as three files.
Result<TlsFiles> choose_certificate(const std::string& given) {
  std::string path = absolute_path(given);
  if (path.ends_with(".pem") && !is_directory(path)) return files_of_certificate(path);
  std::error_code error;
  std::string found;
  std::string others;
  for (fs::directory_iterator at(path, error), end; !error && at != end; at.increment(error)) {
    std::string pem = at->path().string();
    std::string name = at->path().filename().string();
    if (!name.ends_with(".pem") || name == "ca.pem") continue;
    if (!fs::exists(pem.substr(0, pem.size() - 4) + ".key")) continue;
    if (!found.empty())
      others += " " + pem;
    else
      found = pem;
  }
  if (error) {
    return Error{kExitUsage, "cannot read the certificates in " + path + ": " + error.message() +
                                 "; name a directory made by `regrow certs issue`"};
  }
  if (found.empty()) {
    return Error{kExitUsage,
                 path +
                     " holds no certificate with its key; ask whoever keeps the cluster's "
                     "certificates for one made by `regrow certs issue`"};
  }
  if (!others.empty()) {
    return Error{kExitUsage,
                 path + " holds several certificates; name one of them: " + found + others};
  }
  return files_of_certificate(found);
}

bool fits_a_socket(const std::string& path) { return path.size() < sizeof(sockaddr_un::sun_path); }

uint64_t fnv(std::string_view text) {
  uint64_t hash = 0xcbf29ce484222325ull;
  for (unsigned char c : text) hash = (hash ^ c) * 0x100000001b3ull;
  return hash;
}

}  // namespace

std::string absolute_path(const std::string& path) {
  std::error_code error;
  fs::path full = fs::absolute(path, error);
  std::string text = (error ? fs::path(path) : full).lexically_normal().string();
  while (text.size() > 1 && text.back() == '/') text.pop_back();
  return text;
}

ClusterHints hints_of_this_process(std::string flag, std::string certs_flag) {
  ClusterHints hints;
  hints.flag = std::move(flag);
  hints.certs_flag = std::move(certs_flag);
  hints.environment = variable("REGROW_CLUSTER");
  hints.certs_environment = variable("REGROW_CERTS");
  std::string config = variable("XDG_CONFIG_HOME");
  if (config.empty() && !variable("HOME").empty()) config = variable("HOME") + "/.config";
  if (!config.empty()) hints.file = config + "/regrow/cluster";
  hints.runtime_directory = variable("XDG_RUNTIME_DIR");
  hints.uid = geteuid();
  return hints;
}

Result<Address> address_of_value(const std::string& value) {
  bool has_scheme = value.starts_with("unix:") || value.starts_with("tcp:");
  bool is_path = value.find('/') != std::string::npos || is_directory(value);
  if (has_scheme || !is_path) return parse_address(value);
  std::string path = absolute_path(value);
  if (is_directory(path)) {
    auto pointer = read_cluster_file(path + kPointerName);
    if (pointer && !pointer->value.empty()) return parse_address(pointer->value);
    path += kSocketName;
  }
  return parse_address("unix:" + path);
}

Result<ClusterChoice> choose_cluster(const ClusterHints& hints) {
  ClusterFile file;
  if (!hints.file.empty()) file = read_cluster_file(hints.file).value_or(ClusterFile{});
  std::string value = hints.flag;
  ClusterChoice choice;
  choice.source = "--cluster";
  if (value.empty()) {
    value = hints.environment;
    choice.source = "REGROW_CLUSTER";
  }
  if (value.empty()) {
    value = file.value;
    choice.source = hints.file;
  }
  if (value.empty()) {
    std::string directory = user_directory(hints);
    if (auto safe = check_user_directory(directory, hints.uid); !safe) return safe.error();
    value = "unix:" + directory + kSocketName;
    choice.source = "default";
  }
  auto address = address_of_value(value);
  if (!address)
    return Error{address.error().exit_code, choice.source + ": " + address.error().message};
  choice.address = *address;
  if (choice.address.is_tcp()) {
    std::string certs = hints.certs_flag;
    if (certs.empty()) certs = hints.certs_environment;
    if (certs.empty()) certs = file.certs;
    if (certs.empty()) {
      return Error{
          kExitUsage,
          choice.source + ": " + to_string(choice.address) +
              " is reached by TCP, which works only with certificates and none is set. Ask whoever "
              "keeps the cluster's certificates for files made by `regrow certs issue`, then name "
              "them with --certs DIR or REGROW_CERTS"};
    }
    auto files = choose_certificate(certs);
    if (!files) return files.error();
    choice.tls = *files;
  }
  return choice;
}

Status announce_socket(const std::string& directory, const std::string& address) {
  std::error_code error;
  // Ranks of other users pass through it.
  if (fs::create_directories(directory, error)) chmod(directory.c_str(), 0711);
  if (error) return Error{kExitUsage, "cannot make " + directory + ": " + error.message()};
  std::string pointer = directory + kPointerName;
  if (address == "unix:" + directory + kSocketName) {
    unlink(pointer.c_str());
    return Nothing{};
  }
  std::string own = user_directory(hints_of_this_process("", "")) + "/";
  if (address.starts_with("unix:" + own)) {
    if (auto made = make_user_directory(own.substr(0, own.size() - 1), geteuid()); !made)
      return made;
  }
  std::string draft = pointer + ".new";
  std::ofstream file(draft);
  file << address << "\n";
  file.close();
  if (!file || std::rename(draft.c_str(), pointer.c_str()) != 0) {
    return Error{kExitUsage, "cannot write " + pointer + ": " + std::strerror(errno)};
  }
  return Nothing{};
}

Result<std::string> default_state_directory(const std::string& name) {
  std::string state = variable("XDG_STATE_HOME");
  if (state.starts_with("/")) return state + "/regrow/" + name;
  std::string home = variable("HOME");
  if (home.starts_with("/")) return home + "/.local/state/regrow/" + name;
  return Error{kExitUsage,
               "neither HOME nor XDG_STATE_HOME is set, so there is no place of your own for what "
               "must survive a restart; name a directory with --state-dir"};
}

std::string user_directory(const ClusterHints& hints) {
  if (!hints.runtime_directory.empty() && is_directory(hints.runtime_directory)) {
    return hints.runtime_directory + "/regrow";
  }
  return "/tmp/regrow-" + std::to_string(hints.uid);
}

Status check_user_directory(const std::string& directory, uint32_t uid) {
  struct stat info {};
  if (lstat(directory.c_str(), &info) != 0) {
    if (errno == ENOENT) return Nothing{};
    return Error{kExitUsage, "cannot look at " + directory + ": " + std::strerror(errno)};
  }
  bool safe = S_ISDIR(info.st_mode) && info.st_uid == uid && (info.st_mode & 022) == 0;
  if (safe) return Nothing{};
  return Error{kExitUsage,
               directory +
                   " is not a directory that only you can write to, so the socket in it is not "
                   "trusted. Remove it, or name a cluster with --cluster"};
}

Status make_user_directory(const std::string& directory, uint32_t uid) {
  if (mkdir(directory.c_str(), 0700) != 0 && errno != EEXIST) {
    return Error{kExitUsage, "cannot make " + directory + ": " + std::strerror(errno)};
  }
  return check_user_directory(directory, uid);
}

std::string socket_of_state_directory(const std::string& directory, const ClusterHints& hints) {
  std::string path = absolute_path(directory) + kSocketName;
  if (fits_a_socket(path)) return path;
  char name[32];
  std::snprintf(name, sizeof name, "/%016" PRIx64 ".sock", fnv(absolute_path(directory)));
  std::string shorter = user_directory(hints) + name;
  return fits_a_socket(shorter) ? shorter : "/tmp/regrow-" + std::to_string(hints.uid) + name;
}

}  // namespace regrow::cli
