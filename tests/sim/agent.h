// A simulated host and its agent: what it keeps through its own death, what a reboot takes, and
// what it says to the controller over a link that can break, stall and heal.
//
// Spawn is at most once per incarnation; a stop or kill of an incarnation it never heard of burns
// it; a report is said again until it is acknowledged; the end of a rank is kept until
// fx::Acknowledge.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "tests/sim/training.h"

namespace regrow::sim {

struct AgentWorld;

class SimAgent {
 public:
  SimAgent(AgentWorld& world, HostName name, uint32_t devices);

  const HostName& name() const { return name_; }
  SessionId session() const { return session_; }
  const std::map<IncarnationKey, Process>& processes() const { return processes_; }
  bool healthy() const { return powered_ && agent_up_ && link_up_ && !stalled_; }
  Time disturbed_at() const {
    return disturbed_at_;
  }  // link, agent or machine were last not in order
  bool device_faulty_lately(const DeviceName& device, Time since) const;

  void boot();                                      // power on, agent up, link up
  void command(const Effect& effect, Epoch epoch);  // from the controller, onto the link
  void on_reply(RequestId request, bool ok);
  void controller_gone();
  void hung_up();

  // What can happen to it.
  void reset_link(Duration lasts);
  void go_deaf(Duration lasts);
  void stall_link(Duration lasts);
  void restart_agent(Duration lasts);
  void reboot(Duration lasts);
  void break_device(uint32_t index, Duration lasts);
  Process* live_process(JobId job, RankIndex rank);
  // The leader ends; the rest of its group a moment later.
  void end(Process& p, int32_t exit_code, int32_t signal, const std::string& error_line);
  // It has joined: the controller is told, now and with each connection until it answers.
  void say_join(const Process& p);

 private:
  void connect();
  void disconnect(const std::string& why, bool tell);
  void try_connect();
  void heartbeat();
  void send_up(Envelope envelope);
  void report(Process& p);
  void changed(Process& p);
  Process& remember(const IncarnationKey& key);
  void transmit(const Effect& effect, Epoch epoch);
  void obey(const Effect& effect, Epoch epoch);
  void spawn(const fx::Spawn& e);
  void execute(Process& p);
  void stop(const StopCommand& c);
  void kill(const IncarnationKey& key);
  void answer(const fx::AnswerInventory& e);
  void prepare(const fx::Prepare& e);
  void regroup(const RegroupCommand& c);
  void go(const GoCommand& c);
  void set_final(Process& p, ProcessState state);
  void disturbed() { disturbed_until(Duration{}); }
  void disturbed_until(Duration d);

  AgentWorld& world_;
  HostName name_;
  std::string boot_id_;
  uint32_t boots_ = 0;
  std::vector<DeviceReport> devices_;
  std::map<DeviceName, Time> device_fault_at_;
  bool powered_ = false, agent_up_ = false, link_up_ = true, stalled_ = false;
  uint64_t agent_life_ = 0;  // of the agent process
  uint64_t power_life_ = 0;  // of the machine
  SessionId session_;
  bool answered_ = false;       // the controller has answered this session's inventory
  std::vector<Effect> queued_;  // commands that wait for that
  Epoch seen_epoch_;
  std::deque<std::function<void()>> backlog_;  // of a stalled link, both directions
  Time last_up_, last_down_;
  std::map<IncarnationKey, Process> processes_;
  std::set<IncarnationKey> forgotten_;  // acknowledged; never to be started again
  std::map<std::pair<JobId, RankIndex>, Incarnation> highest_;
  std::map<RequestId, RankReport> asked_;
  std::map<std::tuple<JobId, Generation, uint32_t>, PrepareReport> prepared_;
  Time disturbed_at_;
  Time deaf_until_;
};

// What an agent needs of the world around it.
struct AgentWorld {
  Loop& loop;
  Random& random;
  Training& training;
  const Plan& plan;
  virtual ~AgentWorld() = default;
  virtual bool controller_alive() const = 0;
  virtual void to_controller(const HostName& from, Envelope envelope) = 0;
  virtual RequestId new_request() = 0;
  virtual SessionId new_session() = 0;
  // Checks of every process that comes to life and of every order to end one.
  virtual void check_start(SimAgent& agent, const Process& p) = 0;
  virtual void check_stop(SimAgent& agent, const IncarnationKey& key, const std::string& how) = 0;
  virtual void check_epoch(SimAgent& agent, Epoch epoch, Epoch seen) = 0;
  virtual void process_ended_itself(const Process& p) = 0;

 protected:
  AgentWorld(Loop& l, Random& r, Training& t, const Plan& p)
      : loop(l), random(r), training(t), plan(p) {}
};

}  // namespace regrow::sim
