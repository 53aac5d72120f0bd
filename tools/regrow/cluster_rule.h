// Which controller a command talks to. One rule for all commands:
//
//   1. --cluster VALUE
//   2. else the environment variable REGROW_CLUSTER
//   3. else the first line of $XDG_CONFIG_HOME/regrow/cluster (~/.config/regrow/cluster)
//   4. else this user's default socket: $XDG_RUNTIME_DIR/regrow/regrow.sock, or without such a
//   directory
//      /tmp/regrow-UID/regrow.sock
//
// A VALUE is an address (unix:/path, tcp:HOST:PORT, HOST:PORT), the path of a socket, or the state
// directory of a `regrow dev` or `regrow controller`: its socket is DIR/regrow.sock, or, where that
// path would be too long for a socket, the one named in the file DIR/cluster.
//
// Certificates (TCP only): --certs, else REGROW_CERTS, else a line "certs PATH" in the same file.
// PATH is a certificate NAME.pem beside NAME.key and ca.pem, or a directory with exactly one such
// certificate.
#pragma once

#include <optional>
#include <string>

#include "transport/address.h"
#include "transport/tls.h"

namespace regrow::cli {

// What the rule looks at. Taken from the process by hints_of_this_process(); tests make their own.
struct ClusterHints {
  std::string flag;               // --cluster; empty = not given
  std::string certs_flag;         // --certs
  std::string environment;        // REGROW_CLUSTER
  std::string certs_environment;  // REGROW_CERTS
  std::string file;               // path of the configuration file; need not exist
  std::string runtime_directory;  // XDG_RUNTIME_DIR; empty = none
  uint32_t uid = 0;
};

struct ClusterChoice {
  Address address;
  std::optional<TlsFiles> tls;
  std::string
      source;  // for messages: "--cluster", "REGROW_CLUSTER", "/home/ann/.config/…", "default"
};

ClusterHints hints_of_this_process(std::string flag, std::string certs_flag);

// Reads the files that the rule names and connects to nothing. An error says which step it came
// from.
Result<ClusterChoice> choose_cluster(const ClusterHints& hints);

// A VALUE of the rule as an address.
Result<Address> address_of_value(const std::string& value);

// Where the socket of a state directory lies: DIR/regrow.sock, or a short path under the user's
// directory if that is too long. Pure but for making the path absolute.
std::string socket_of_state_directory(const std::string& directory, const ClusterHints& hints);

// Makes a state directory stand for the address that its controller listens on: a file DIR/cluster
// where that is not DIR/regrow.sock. Makes both directories if need be.
Status announce_socket(const std::string& directory, const std::string& address);

// Where this user's controller, agent or dev cluster lives if nobody says: NAME below
// $XDG_STATE_HOME/regrow (~/.local/state/regrow). Not yet made. An error without both variables.
Result<std::string> default_state_directory(const std::string& name);

// Directory of the default socket (step 4), not yet made.
std::string user_directory(const ClusterHints& hints);

// Makes it (0700) if need be. Refuses one that another user owns or can write to: whoever controls
// it could pretend to be the controller.
Status make_user_directory(const std::string& directory, uint32_t uid);
// The same check without making anything; nothing there is fine.
Status check_user_directory(const std::string& directory, uint32_t uid);

// An absolute path without "." and ".."; the process's working directory is where it starts.
std::string absolute_path(const std::string& path);

}  // namespace regrow::cli
