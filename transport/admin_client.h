// The admin service, client side: what the CLI, the shell and tests use. Blocking, any thread.
//
//   AdminClient client({.address = address});
//   auto hello = client.connect();
//   if (!hello) return fail(hello.error());                       // exit code 3, says what to do
//   Result<nlohmann::json> jobs = client.query("jobs", {{"all", true}});
//   auto watch = client.watch({.from_seq = 5, .entity = "job/7"}, {.on_lines = print});
//
// Owns a KJ loop thread of its own. A call never hangs: an error comes back when the controller
// answers nothing for `silence_limit` (questions that take long are fine while it answers pings).
// After a lost connection the next call connects again.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "transport/address.h"
#include "transport/admin.h"
#include "transport/tls.h"

namespace regrow {

struct AdminClientOptions {
  Address address;
  std::optional<TlsFiles> tls = {};  // required for TCP
  std::string version = {};          // of this program
  Duration connect_timeout = Duration::seconds(5);
  Duration silence_limit = Duration::seconds(5);
  Duration call_timeout = Duration::seconds(60);  // in all, however alive the controller is
};

struct ControllerInfo {
  std::string who;  // how the controller sees us
  std::string role;
  std::string cluster_id;
  std::string version;
  uint64_t epoch = 0;
};

struct WatchCallbacks {
  // Event lines (JSON) in order, none twice, over reconnects too. On the client's loop thread: do
  // not make blocking calls of this client from it.
  std::function<void(const std::vector<std::string>& lines)> on_lines = {};
  // Connected (empty text) or lost and being reconnected, with the reason. Same thread.
  std::function<void(const std::string& trouble)> on_state = {};
  // The watch cannot go on (not allowed, no such entity). Same thread. No reconnect follows.
  std::function<void(const Error& error)> on_failed = {};
};

// A running watch. Its destructor ends it; no callback afterwards.
class AdminWatch {
 public:
  virtual ~AdminWatch() = default;
  virtual uint64_t next_seq() const = 0;  // where it would go on
};

class AdminClient {
 public:
  explicit AdminClient(AdminClientOptions options);
  ~AdminClient();

  // Optional: calls connect by themselves.
  Result<ControllerInfo> connect();

  Result<nlohmann::json> query(const std::string& what, const nlohmann::json& args);
  Result<nlohmann::json> act(const std::string& what, const nlohmann::json& args,
                             const std::string& reason);
  Result<LogChunk> read_log(const LogQuery& query);

  // Returns at once; connects, and reconnects from the next sequence, until destroyed or failed.
  std::unique_ptr<AdminWatch> watch(WatchRequest request, WatchCallbacks callbacks);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace regrow
