// Inside transport/: the admin server as RpcServer sees it. KJ thread only, but for
// WatchSink::State.
#pragma once

#include <deque>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "transport/admin.h"
#include "transport/kj_loop.h"
#include "transport/schema/admin.capnp.h"

namespace regrow {

class WatchPump;

// Between the threads that send lines and the KJ thread that pumps them to the client.
class WatchSink::State : public std::enable_shared_from_this<WatchSink::State> {
 public:
  State(KjLoop& loop, size_t max_queued_bytes) : loop_(loop), max_queued_bytes_(max_queued_bytes) {}

  // Any thread.
  bool send(std::vector<std::string> lines);
  bool closed();
  void end(std::string reason);
  void on_closed(std::function<void()> callback);

  // KJ thread.
  struct Work {
    std::vector<std::string> lines;
    bool over = false;       // nothing more will come
    std::string end_reason;  // for the client
  };
  Work take(size_t max_lines, size_t max_bytes);
  void close();
  WatchPump* pump = nullptr;  // unset when the watch is gone

 private:
  void schedule_locked();

  KjLoop& loop_;
  const size_t max_queued_bytes_;
  std::mutex mutex_;
  std::deque<std::string> lines_;
  size_t bytes_ = 0;
  bool scheduled_ = false;
  bool ending_ = false;
  bool closed_ = false;
  std::string end_reason_;
  std::vector<std::function<void()>> on_closed_;
};

class AdminServer::Impl : public std::enable_shared_from_this<AdminServer::Impl> {
 public:
  Impl(KjLoop& loop, AdminHandler& handler, AdminServerOptions options)
      : loop(loop), handler(handler), options(std::move(options)) {}

  rpc::Admin::Client connect(const PeerIdentity& peer);
  // Ends all watches; calls fail from now on.
  void shut();

  KjLoop& loop;
  AdminHandler& handler;
  AdminServerOptions options;
  bool is_shut = false;
  std::set<WatchPump*> pumps;
};

}  // namespace regrow
