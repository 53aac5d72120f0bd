// What the transport tests share: directories that go away, waiting with a deadline, a host link
// handler and an agent that record what happens, an admin handler with canned answers.
#pragma once

#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <filesystem>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "tests/catch.h"
#include "transport/admin.h"
#include "transport/certs.h"
#include "transport/host_link.h"
#include "transport/host_link_client.h"
#include "transport/kj_loop.h"
#include "transport/rpc_server.h"

namespace regrow::test {

class TempDir {
 public:
  TempDir() {
    char name[] = "/tmp/regrow-transport-XXXXXX";
    REQUIRE(mkdtemp(name) != nullptr);
    path_ = name;
  }
  ~TempDir() { std::filesystem::remove_all(path_); }
  const std::string& path() const { return path_; }
  Address socket(const std::string& name = "s") const {
    return *parse_address("unix:" + path_ + "/" + name);
  }

 private:
  std::string path_;
};

// True as soon as `condition` is; false after the deadline (generous: the machine may be loaded).
inline bool eventually(const std::function<bool()>& condition, int timeout_ms = 20000) {
  auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(timeout_ms);
  while (!condition()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return true;
}

inline RoleRules own_rules() { return {.own_uid = getuid()}; }

// A value that several threads look at.
template <class T>
class Shared {
 public:
  template <class F>
  auto with(F f) {
    std::lock_guard lock(mutex_);
    return f(value_);
  }

 private:
  std::mutex mutex_;
  T value_;
};

// Records; acknowledges at once unless told to hold.
class RecordingHandler : public HostLinkHandler {
 public:
  struct Seen {
    std::vector<std::string> log;  // "connect 1 h1", "report 1 3", "disconnect 1"
    std::vector<AgentHello> hellos;
    std::vector<PeerIdentity> peers;
    std::vector<SessionId> sessions;
    std::vector<HostReports> reports;
    std::vector<Ack> held;
    std::vector<std::string> reasons;  // of disconnects
    std::vector<ProgressReport> progress;
    size_t heartbeats = 0;
    size_t disconnects = 0;
  };
  Shared<Seen> seen;
  std::atomic<bool> hold = false;
  std::string refuse;  // set before use
  Epoch epoch{3, 77};
  std::string cluster_id = "cluster-1";  // set before use

  AttachAnswer agent_connected(SessionId session, const PeerIdentity& peer,
                               AgentHello hello) override {
    seen.with([&](Seen& s) {
      s.log.push_back("connect " + std::to_string(session.value) + " " + hello.name.value);
      s.hellos.push_back(std::move(hello));
      s.peers.push_back(peer);
      s.sessions.push_back(session);
    });
    return {refuse, epoch, cluster_id};
  }
  void agent_disconnected(SessionId session, const std::string& why) override {
    seen.with([&](Seen& s) {
      s.log.push_back("disconnect " + std::to_string(session.value));
      s.reasons.push_back(why);
      ++s.disconnects;
    });
  }
  void heartbeat(SessionId, std::vector<ProgressReport> progress, int64_t) override {
    seen.with([&](Seen& s) {
      ++s.heartbeats;
      s.progress.insert(s.progress.end(), progress.begin(), progress.end());
    });
  }
  void report(SessionId session, HostReports reports, Ack ack) override {
    seen.with([&](Seen& s) {
      s.log.push_back("report " + std::to_string(session.value) + " " +
                      std::to_string(reports.ranks.size()));
      s.reports.push_back(std::move(reports));
      if (hold)
        s.held.push_back(std::move(ack));
      else
        ack();
    });
  }

  size_t count(size_t Seen::*member) {
    return seen.with([&](Seen& s) { return s.*member; });
  }
  SessionId last_session() {
    return seen.with([](Seen& s) { return s.sessions.empty() ? SessionId{} : s.sessions.back(); });
  }
};

class RecordingAgent : public HostLinkAgent {
 public:
  struct Seen {
    std::vector<SessionId> connected;
    std::vector<Epoch> epochs;
    std::vector<std::string> disconnected, refused, failed;
    std::vector<AgentCommand> commands;
    size_t batches = 0;
  };
  Shared<Seen> seen;
  AgentHello hello;
  std::vector<ProgressReport> current_progress;
  std::atomic<bool> fail_commands = false;

  RecordingAgent() {
    hello.name = {"h1"};
    hello.uid = "uid-1";
  }
  AgentHello make_hello() override { return hello; }
  void on_connected(SessionId session, const std::string&, const Epoch& epoch) override {
    seen.with([&](Seen& s) {
      s.connected.push_back(session);
      s.epochs.push_back(epoch);
    });
  }
  void on_disconnected(const std::string& why) override {
    seen.with([&](Seen& s) { s.disconnected.push_back(why); });
  }
  void on_attempt_failed(const std::string& why) override {
    seen.with([&](Seen& s) { s.failed.push_back(why); });
  }
  void on_refused(const std::string& why) override {
    seen.with([&](Seen& s) { s.refused.push_back(why); });
  }
  void on_commands(const Epoch& epoch, std::vector<AgentCommand> commands) override {
    if (fail_commands) throw std::runtime_error("no room for commands");
    seen.with([&](Seen& s) {
      s.epochs.push_back(epoch);
      for (auto& c : commands) s.commands.push_back(std::move(c));
      ++s.batches;
    });
  }
  kj::Promise<LogChunk> read_log(const LogQuery& query) override {
    return LogChunk{
        "line of " + query.stream + std::string("\0\xff\n", 3), 42, {9}, true, "all of it"};
  }
  std::vector<ProgressReport> progress() override { return current_progress; }

  size_t connects() {
    return seen.with([](Seen& s) { return s.connected.size(); });
  }
};

inline RankReport rank_report(uint64_t job, uint32_t rank,
                              ProcessState state = ProcessState::running) {
  RankReport r;
  r.key = {{job}, {rank}, {1}};
  r.state = state;
  return r;
}

class CannedAdmin : public AdminHandler {
 public:
  struct Seen {
    std::vector<PeerIdentity> actors;
    std::vector<std::string> acts;
    std::vector<WatchRequest> watches;
    std::vector<WatchSink> sinks;
    std::vector<kj::Own<kj::CrossThreadPromiseFulfiller<std::string>>> stuck;
    size_t closed = 0;
  };
  Shared<Seen> seen;

  kj::Promise<std::string> query(const PeerIdentity&, std::string what, std::string args) override {
    if (what == "echo") return args;
    if (what == "big") return "\"" + std::string(8u << 20, 'x') + "\"";
    if (what == "throw") throw std::runtime_error("a bug");
    if (what == "stuck") {
      auto paf = kj::newPromiseAndCrossThreadFulfiller<std::string>();
      seen.with([&](Seen& s) { s.stuck.push_back(kj::mv(paf.fulfiller)); });
      return kj::mv(paf.promise);
    }
    return admin_error(kExitUsage, "there is no question \"" + what + "\":\ntry \"echo\"");
  }
  kj::Promise<std::string> act(const PeerIdentity& who, std::string what, std::string,
                               std::string reason) override {
    seen.with([&](Seen& s) {
      s.actors.push_back(who);
      s.acts.push_back(what + " because " + reason);
    });
    return std::string("{\"done\":true}");
  }
  kj::Promise<uint64_t> watch(const PeerIdentity&, WatchRequest request, WatchSink sink) override {
    if (request.entity == "job/404") return admin_error(kExitUsage, "there is no job 404");
    auto from = request.from_seq == kOnlyNew ? uint64_t{50} : request.from_seq;
    sink.on_closed([this] { seen.with([](Seen& s) { ++s.closed; }); });
    seen.with([&](Seen& s) {
      s.watches.push_back(request);
      s.sinks.push_back(sink);
    });
    return from;
  }
  kj::Promise<LogChunk> read_log(const PeerIdentity&, LogQuery query) override {
    return LogChunk{"log of rank " + std::to_string(query.rank.value), 7, {2}, false, ""};
  }
};

// A controller: loop, both services, listening.
struct TestController {
  explicit TestController(HostLinkServerOptions link_options = {},
                          AdminServerOptions admin_options = {})
      : loop("test-kj",
             [this](const std::string& e) { errors.with([&](auto& v) { v.push_back(e); }); }),
        link(loop, handler, link_options),
        admin(loop, canned, admin_options),
        rpc(loop, &link, &admin) {}

  Address listen(ListenOptions options) {
    auto bound = rpc.listen(std::move(options));
    if (!bound) FAIL(bound.error().message);
    return *bound;
  }
  Address listen_unix(const TempDir& dir) {
    return listen({.address = dir.socket(), .roles = own_rules()});
  }

  Shared<std::vector<std::string>> errors;
  RecordingHandler handler;
  CannedAdmin canned;
  KjLoop loop;
  HostLinkServer link;
  AdminServer admin;
  RpcServer rpc;
};

}  // namespace regrow::test
