// Everything around the simulated controller: hosts, operators, faults, and the checks of what
// really happens against what the journal says.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tests/sim/agent.h"
#include "tests/sim/checkers.h"
#include "tests/sim/run.h"

namespace regrow::sim {

class World : public Outside, public AgentWorld {
 public:
  World(const Plan& plan, RunOptions options);

  void start();  // hosts boot, the controller starts, jobs are submitted on time
  void schedule_faults();
  void run_until(Time t);
  void no_more_crashes() { crash_at_ = 0; }
  // The journal keeps its first `keep` events, or some number that a kill -9 could leave.
  void crash_controller(Duration down, std::optional<uint64_t> keep);
  void heal_operators();   // uncordon, resume what is parked
  bool all_ended() const;  // ... or held, with a reason
  bool settled() const;    // nothing on its way, every agent's inventory acknowledged
  void check_end();

  SimController& controller() { return controller_; }
  const JobState* job_state(uint32_t index) const;
  SimAgent& agent(uint32_t i) { return *agents_[i]; }
  SimAgent* agent_of(const HostName& host);
  uint64_t starts() const { return started_.size(); }
  std::map<std::string, uint64_t>& marks() { return marks_; }

  Loop& loop() { return loop_; }

  // Called for each record when it is decided, and when it has become durable.
  std::function<void(const EventRecord&)> on_appended;
  std::function<void(const EventRecord&)> on_durable;

 private:
  struct Client {       // one job's submitter and operator
    RequestId request;  // of the submission
    JobId job;          // 0 = not known yet
    int resumes = 0;
  };
  struct Command {  // an operator's wish, repeated until it is answered
    Envelope envelope;
    uint32_t job_index = 0;
    bool answered = false;
  };

  // Outside
  void perform(const Effect& effect) override;
  void answer(const Reply& reply) override;
  void appended(const EventRecord& r) override;
  void durable(const EventRecord& r) override;
  void handled(const EntityHost& host, const Envelope& envelope, const Outbox& out) override;
  // AgentWorld
  bool controller_alive() const override { return controller_.open(); }
  void to_controller(const HostName& from, Envelope envelope) override;
  RequestId new_request() override { return {++requests_}; }
  SessionId new_session() override { return {++sessions_}; }
  void check_start(SimAgent& agent, const Process& p) override;
  void check_stop(SimAgent& agent, const IncarnationKey& key, const std::string& how) override;
  void check_epoch(SimAgent& agent, Epoch epoch, Epoch seen) override;
  void process_ended_itself(const Process& p) override;

  void start_controller();
  void inject(const Fault& fault);
  void hurt_rank(const Fault& fault);
  void submit(uint32_t index);
  void operate(Envelope envelope);
  void set_desired(uint32_t index, Desired desired, const std::string& reason);
  void check_effect(const Effect& effect);
  void check_go(const GoCommand& go, const std::function<void(bool, const std::string&)>& require);
  void check_incident(const EventRecord& r, const ev::IncidentOpened& e);
  void check_resume(const EventRecord& r, const ev::GenerationStarted& e);
  void check_budget();
  const Process* process(const IncarnationKey& key) const;  // null: no host knows of it
  bool lives(const IncarnationKey& key) const;
  void check_job_end(uint32_t index);
  bool host_disturbed(const HostName& host, Time since);
  void mark(const std::string& name) { ++marks_[name]; }

  Loop loop_;
  Random random_;
  Training training_;
  Plan plan_;
  RunOptions options_;
  SimController controller_;
  DurableIndex durable_;
  HistoryCheck history_;
  std::vector<std::unique_ptr<SimAgent>> agents_;
  std::vector<Client> clients_;
  std::map<uint64_t, std::unique_ptr<Command>> commands_;  // by request
  Epoch epoch_;
  uint64_t requests_ = 0;
  uint64_t sessions_ = 0;
  uint64_t operations_ = 0;
  Time restarted_at_, stalled_until_;
  uint64_t crash_at_ = 0;  // when the journal is this long; 0 = not
  Duration crash_down_;
  std::set<IncarnationKey> started_;  // ever, anywhere
  std::map<IncarnationKey, HostName> where_;
  std::set<IncarnationKey> ended_itself_;
  std::map<JobId, int64_t> complete_at_plan_;  // newest checkpoint when the recovery was planned
  std::map<std::string, uint64_t> marks_;
};

}  // namespace regrow::sim
