// What the agent does with what it is told: commands to the rank runner, reports to the link.
//
// Made and destroyed on the loop's thread, everything else there too. `start` begins talking.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "actors/agent/agent.h"
#include "actors/agent/host_state.h"
#include "actors/agent/rank_runner.h"
#include "actors/agent/rendezvous_stores.h"
#include "transport/host_link_client.h"
#include "transport/kj_loop.h"

namespace regrow {

class AgentSession : public HostLinkAgent, private kj::TaskSet::ErrorHandler {
 public:
  // `loop` and `state` outlive it.
  AgentSession(KjLoop& loop, HostIdentity& state, const AgentOptions& options);
  ~AgentSession() noexcept override;

  // `link` outlives it, or is taken away with stop().
  void start(HostLinkClient& link);
  void stop() { link_ = nullptr; }

  // Stops every rank, politely for `grace`; done when none is left, or soon after the grace.
  kj::Promise<void> end_ranks(Duration grace);

  AgentHello make_hello() override;
  std::string refuse(const std::string& cluster_id) override;
  void on_connected(SessionId session, const std::string& cluster_id, const Epoch& epoch) override;
  void on_disconnected(const std::string& why) override;
  void on_attempt_failed(const std::string& why) override;
  void on_refused(const std::string& why) override;
  void on_commands(const Epoch& epoch, std::vector<AgentCommand> commands) override;
  kj::Promise<LogChunk> read_log(const LogQuery& query) override;
  std::vector<ProgressReport> progress() override { return runner_.progress(); }

 private:
  void taskFailed(kj::Exception&& exception) override;
  void report(HostReports reports);
  void report_rank(const RankReport& rank);
  void report_join(const JoinReport& join);
  void obey(const std::monostate&) {}
  void obey(const CutLink&) {}  // the link's own
  void obey(const InventoryAnswer& answer);
  void obey(const Spawn& spawn);
  void obey(const StopCommand& command);
  void obey(const PrepareCommand& command);
  void obey(const SetDeviceFault& command);
  void obey(const SignalRank& command);
  void obey(const Acknowledge& command);
  void obey(const RegroupCommand& command);
  void obey(const GoCommand& command);
  void obey(const auto&) {}  // one that only a newer controller knows
  void look_at_devices();
  kj::Promise<void> watch_devices();
  kj::Promise<void> watch_progress();
  kj::Promise<void> watch_stores();
  kj::Promise<PrepareReport> prepare(const PrepareCommand& command);
  kj::Promise<void> wait_for_ranks(int64_t until_us);
  size_t ranks_alive() const;
  void say_once(const std::string& text);

  KjLoop& loop_;
  HostIdentity& state_;
  AgentOptions options_;
  HostLinkClient* link_ = nullptr;
  std::map<DeviceName, DeviceReport> devices_;
  std::string last_trouble_;  // said once, not at every attempt
  RankRunner runner_;
  RendezvousStores stores_;
  kj::TaskSet tasks_;  // last: its tasks use the rest
};

}  // namespace regrow
