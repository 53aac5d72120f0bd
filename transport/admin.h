// The admin service, controller side: questions, actions, event streams, logs.
//
// AdminServer checks the caller's role, then asks an AdminHandler, which the actors implement. What
// the questions and actions are is the handler's business: names and JSON pass through here.
//
//   kj::Promise<std::string> query(const PeerIdentity&, std::string what, std::string args) {
//     if (what != "jobs") return admin_error(kExitUsage, "there is no question \"" + what + "\"");
//     ...
//   }
#pragma once

#include <kj/async.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "transport/host_link.h"
#include "transport/identity.h"
#include "transport/result.h"

namespace regrow {

// An exception that reaches the client as Error{exit_code, message}. Converts to any promise.
struct AdminFailure {
  Error error;
  template <class T>
  operator kj::Promise<T>() const {
    return kj::Promise<T>(to_exception());
  }
  kj::Exception to_exception() const;
};
inline AdminFailure admin_error(int exit_code, std::string message) {
  return {{exit_code, std::move(message)}};
}
// The Error in an exception's text; one that was not made by admin_error becomes kExitUnreachable
// with the whole text.
Error parse_admin_error(const std::string& description);

// Where a watch's events go. Copyable, any thread; a copy keeps nothing alive but itself.
class WatchSink {
 public:
  class State;
  explicit WatchSink(std::shared_ptr<State> state) : state_(std::move(state)) {}

  // JSON lines, one event each; lines of events hold "seq". Queued and sent in order. Returns false
  // if the watch is over (client gone, or so slow that more than max_queued_bytes wait: the client
  // then reconnects from where it was): stop sending.
  bool send(std::vector<std::string> lines) const;
  bool closed() const;
  // Ends the watch; the client sees `reason` and watches again from its next sequence.
  void end(std::string reason) const;
  // Called once on the KJ thread when the watch is over; at once, here, if it is already.
  void on_closed(std::function<void()> callback) const;

 private:
  std::shared_ptr<State> state_;
};

struct WatchRequest {
  uint64_t from_seq = 0;    // first event wanted; kOnlyNew = none of the past
  std::string entity = {};  // "job/7": it and what is below it; empty = all
};
inline constexpr uint64_t kOnlyNew = UINT64_MAX;

// Called on the KJ thread; must not block. Return a promise from a cross-thread fulfiller and let
// an actor fulfil it; a dropped fulfiller is an error for the client. Roles are checked before.
class AdminHandler {
 public:
  virtual ~AdminHandler() = default;
  virtual kj::Promise<std::string> query(const PeerIdentity& who, std::string what,
                                         std::string args_json) = 0;
  virtual kj::Promise<std::string> act(const PeerIdentity& who, std::string what,
                                       std::string args_json, std::string reason) = 0;
  // Resolves to the sequence of the first event that will be sent (past the present for kOnlyNew).
  // Lines may be sent to `sink` before that.
  virtual kj::Promise<uint64_t> watch(const PeerIdentity& who, WatchRequest request,
                                      WatchSink sink) = 0;
  virtual kj::Promise<LogChunk> read_log(const PeerIdentity& who, LogQuery query) = 0;
};

struct AdminServerOptions {
  std::string cluster_id = {};
  std::string version = {};
  uint64_t epoch = 0;
  Duration watch_heartbeat = Duration::seconds(2);
  size_t max_queued_bytes = 16u << 20;  // per watch
};

class AdminServer {
 public:
  // `loop` and `handler` outlive it.
  AdminServer(KjLoop& loop, AdminHandler& handler, AdminServerOptions options);
  ~AdminServer();  // not on the loop's thread

  class Impl;  // what RpcServer needs of it
  const std::shared_ptr<Impl>& impl() { return impl_; }

 private:
  KjLoop& loop_;
  std::shared_ptr<Impl> impl_;
};

}  // namespace regrow
