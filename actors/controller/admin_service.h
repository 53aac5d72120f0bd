// The admin service's questions and actions, answered from the views or by the tree's own actors.
// Callbacks come on the KJ thread.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "actors/controller/context.h"
#include "actors/controller/effect_runner.h"
#include "actors/controller/views.h"
#include "transport/admin.h"

namespace regrow {

class KjLoop;

struct ServiceFacts {
  std::string cluster_id;
  Epoch epoch;
  std::string version;
  std::string state_dir;
  Time started;
};

class AdminService final : public AdminHandler {
 public:
  AdminService(Context& context, Views views, CommandSink& commands, LiveBoard& board,
               caf::actor watches, ServiceFacts facts)
      : context_(context),
        views_(views),
        commands_(commands),
        board_(board),
        watches_(std::move(watches)),
        facts_(std::move(facts)) {}

  // Before the first connection.
  void set_link(HostLinkServer* link) { link_ = link; }

  kj::Promise<std::string> query(const PeerIdentity& who, std::string what,
                                 std::string args) override;
  kj::Promise<std::string> act(const PeerIdentity& who, std::string what, std::string args,
                               std::string reason) override;
  kj::Promise<uint64_t> watch(const PeerIdentity& who, WatchRequest request,
                              WatchSink sink) override;
  kj::Promise<LogChunk> read_log(const PeerIdentity& who, LogQuery query) override;

 private:
  kj::Promise<std::string> show(const nlohmann::json& args);
  kj::Promise<std::string> ask_entity(const PeerIdentity& who, EntityId to, Input input);
  kj::Promise<std::string> submit(const PeerIdentity& who, const nlohmann::json& args);
  kj::Promise<std::string> fault(const PeerIdentity& who, const std::string& what,
                                 const nlohmann::json& args);
  std::string status() const;

  Context& context_;
  Views views_;
  CommandSink& commands_;
  LiveBoard& board_;
  caf::actor watches_;
  ServiceFacts facts_;
  HostLinkServer* link_ = nullptr;
};

}  // namespace regrow
