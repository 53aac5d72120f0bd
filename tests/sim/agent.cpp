#include "tests/sim/agent.h"

#include <algorithm>

namespace regrow::sim {
namespace {

constexpr Duration kShimGivesUpAfter = Duration::seconds(30);

bool is_final(ProcessState s) {
  return s == ProcessState::exited || s == ProcessState::never_started || s == ProcessState::gone;
}

}  // namespace

SimAgent::SimAgent(AgentWorld& world, HostName name, uint32_t devices)
    : world_(world), name_(std::move(name)) {
  for (uint32_t i = 0; i < devices; ++i) {
    DeviceReport d;
    d.name = {"sim" + std::to_string(i)};
    d.kind = "sim";
    d.uid = name_.value + "-sim" + std::to_string(i);
    d.memory_bytes = 16ull << 30;
    devices_.push_back(d);
  }
}

void SimAgent::disturbed_until(Duration d) {
  disturbed_at_ = std::max(disturbed_at_, world_.loop.now() + d);
}

bool SimAgent::device_faulty_lately(const DeviceName& device, Time since) const {
  auto it = device_fault_at_.find(device);
  return it != device_fault_at_.end() && it->second >= since;
}

void SimAgent::boot() {
  powered_ = agent_up_ = true;
  boot_id_ = name_.value + "-boot" + std::to_string(++boots_);
  ++agent_life_;
  ++power_life_;
  try_connect();
  heartbeat();
}

void SimAgent::try_connect() {
  world_.loop.after(world_.random.ms(20, 900), [this, life = agent_life_] {
    if (life != agent_life_ || !agent_up_ || session_.value != 0) return;
    if (link_up_ && !stalled_ && world_.controller_alive()) return connect();
    try_connect();
  });
}

void SimAgent::connect() {
  session_ = world_.new_session();
  answered_ = false;
  queued_.clear();
  backlog_.clear();
  asked_.clear();
  AgentHello hello;
  hello.name = name_;
  hello.uid = "uid-" + name_.value;
  hello.boot_id = boot_id_;
  hello.address = "10.0.0." + name_.value.substr(1);
  hello.seen_epoch = seen_epoch_;
  hello.devices = devices_;
  for (auto& [key, p] : processes_) hello.ranks.push_back(p.report);
  send_up({EntityId::host(name_), {}, {}, {}, in::AgentConnected{session_, hello}});
  for (auto& [key, p] : processes_) say_join(p);
}

void SimAgent::say_join(const Process& p) {
  if (!p.join || !p.alive || p.dying || !agent_up_ || session_.value == 0) return;
  send_up({EntityId::job(p.key().job), {}, {}, {}, in::Joined{name_, *p.join}});
}

void SimAgent::regroup(const RegroupCommand& c) {
  for (const IncarnationKey& key : c.keys) {
    auto it = processes_.find(key);
    if (it == processes_.end() || !it->second.alive || it->second.dying) continue;
    Process& p = it->second;
    if (p.join && p.join->generation == c.generation) {
      say_join(p);
    } else {
      world_.training.regroup(p, c.generation);
    }
  }
}

void SimAgent::go(const GoCommand& c) {
  for (const IncarnationKey& key : c.keys) {
    auto it = processes_.find(key);
    if (it != processes_.end() && it->second.alive && !it->second.dying)
      world_.training.go(it->second, c);
  }
}

void SimAgent::disconnect(const std::string& why, bool tell) {
  if (session_.value == 0) return;
  SessionId old = session_;
  session_ = {};
  backlog_.clear();
  asked_.clear();
  if (tell && world_.controller_alive())
    world_.to_controller(name_, {EntityId::host(name_), {}, {}, {}, in::AgentGone{old, why}});
}

void SimAgent::controller_gone() {
  disconnect("the controller is gone", false);
  if (agent_up_) try_connect();
}

void SimAgent::hung_up() {
  disconnect("hung up by the controller", true);
  if (agent_up_) try_connect();
}

void SimAgent::send_up(Envelope envelope) {
  Time at = std::max(world_.loop.now() + world_.random.ms(0, world_.plan.slowest_link.us / 1000),
                     last_up_);
  last_up_ = at;
  world_.loop.at(at, [this, s = session_, envelope = std::move(envelope)] {
    if (s != session_ || s.value == 0) return;
    auto deliver = [this, s, envelope] {
      if (s == session_) world_.to_controller(name_, envelope);
    };
    if (stalled_) return backlog_.push_back(deliver);
    deliver();
  });
}

void SimAgent::command(const Effect& effect, Epoch epoch) {
  bool answer = std::holds_alternative<fx::AnswerInventory>(effect);
  if (answer && std::get<fx::AnswerInventory>(effect).session != session_) return;
  if (!answer && !answered_) {
    if (world_.plan.queue_commands) queued_.push_back(effect);
    return;
  }
  transmit(effect, epoch);
  if (!answer || answered_) return;
  answered_ = true;
  for (const Effect& waiting : queued_) transmit(waiting, epoch);
  queued_.clear();
}

void SimAgent::transmit(const Effect& effect, Epoch epoch) {
  Time at = std::max(world_.loop.now() + world_.random.ms(0, world_.plan.slowest_link.us / 1000),
                     last_down_);
  last_down_ = at;
  world_.loop.at(at, [this, s = session_, effect, epoch] {
    if (s != session_ || s.value == 0) return;
    auto deliver = [this, s, effect, epoch] {
      if (s == session_) obey(effect, epoch);
    };
    if (stalled_) return backlog_.push_back(deliver);
    deliver();
  });
}

void SimAgent::heartbeat() {
  world_.loop.after(Duration::seconds(1), [this, life = agent_life_] {
    if (life != agent_life_ || !agent_up_) return;
    heartbeat();
    if (session_.value == 0) return;
    send_up({EntityId::host(name_), {}, {}, {}, in::AgentHeartbeat{session_}});
    for (auto& [key, p] : processes_) {
      if (p.alive && !p.dying) {
        ProgressReport r;
        r.key = key;
        r.step = world_.training.plan(key.job).spec.progress_pattern.empty() ? -1 : p.step;
        r.loss = 1.0 / static_cast<double>(p.step + 2);
        r.step_seconds = 0.5;
        r.output_us = r.step_us = p.step_at.us;
        r.stopped = p.stopped;
        send_up({EntityId::job(key.job), {}, {}, {}, in::Progress{r}});
      }
      // An end is said again until the controller lets go of it.
      bool final = is_final(p.report.state);
      Duration again = Duration::seconds(p.told ? 10 : 2);
      bool open = final || (!p.told && p.report.state == ProcessState::running);
      if (open && world_.loop.now() - p.told_at > again) report(p);
    }
  });
}

void SimAgent::report(Process& p) {
  if (session_.value == 0) return;
  RequestId request = world_.new_request();
  asked_[request] = p.report;
  p.told_at = world_.loop.now();
  send_up({EntityId::rank(p.key().job, p.key().rank),
           {},
           request,
           {},
           in::AgentReport{name_, p.report, session_}});
}

void SimAgent::on_reply(RequestId request, bool ok) {
  auto it = asked_.find(request);
  if (it == asked_.end()) return;
  RankReport told = it->second;
  asked_.erase(it);
  auto p = processes_.find(told.key);
  if (p == processes_.end()) return;
  const RankReport& now = p->second.report;
  if (ok && now.state == told.state && now.group_gone_us == told.group_gone_us)
    p->second.told = true;
}

void SimAgent::changed(Process& p) {
  p.told = false;
  if (agent_up_) report(p);
}

Process& SimAgent::remember(const IncarnationKey& key) {
  Process& p = processes_[key];
  p.command.key = p.report.key = key;
  p.host = name_;
  Incarnation& high = highest_[{key.job, key.rank}];
  high = std::max(high, key.incarnation);
  return p;
}

void SimAgent::obey(const Effect& effect, Epoch epoch) {
  if (world_.loop.now() < deaf_until_) return;
  world_.check_epoch(*this, epoch, seen_epoch_);
  seen_epoch_ = epoch;
  std::visit(
      Overloaded{[&](const fx::Spawn& e) { spawn(e); }, [&](const fx::Stop& e) { stop(e.command); },
                 [&](const fx::AnswerInventory& e) { answer(e); },
                 [&](const fx::Prepare& e) { prepare(e); },
                 [&](const fx::Regroup& e) { regroup(e.command); },
                 [&](const fx::Go& e) { go(e.command); },
                 [&](const fx::Acknowledge& e) {
                   auto it = processes_.find(e.key);
                   if (it == processes_.end() || !is_final(it->second.report.state)) return;
                   if (it->second.alive) return;  // its end is to be told once more
                   world_.training.forget(it->second);
                   processes_.erase(it);
                   forgotten_.insert(e.key);
                 },
                 [&](const auto&) {}},
      effect);
}

void SimAgent::spawn(const fx::Spawn& e) {
  const IncarnationKey& key = e.command.key;
  if (auto it = processes_.find(key); it != processes_.end()) return changed(it->second);
  bool old = forgotten_.count(key) != 0 || key.incarnation <= highest_[{key.job, key.rank}];
  Process& p = remember(key);
  p.command = e.command;
  p.report.state = ProcessState::starting;
  if (old) {
    p.report.message = "this incarnation or a newer one was here already";
    return set_final(p, ProcessState::gone);
  }
  world_.loop.after(world_.random.ms(1, 60), [this, key, life = power_life_] {
    auto it = processes_.find(key);
    if (life == power_life_ && it != processes_.end() &&
        it->second.report.state == ProcessState::starting)
      execute(it->second);
  });
}

void SimAgent::execute(Process& p) {
  if (!agent_up_ && world_.plan.profile != "control" && world_.random.chance(0.5)) {
    // The shim had not yet its lock when the agent died: the next agent burns the incarnation.
    p.report.message = "the agent died before the start";
    return set_final(p, ProcessState::gone);
  }
  if (world_.training.plan(p.key().job).missing_program) {
    p.report.message = "train.py: no such file";
    return set_final(p, ProcessState::never_started);
  }
  world_.check_start(*this, p);
  p.alive = true;
  p.report.state = ProcessState::running;
  p.report.pid = 1000 + p.key().incarnation.value;
  p.report.started_us = world_.loop.now().us;
  world_.training.started(p);
  changed(p);
}

void SimAgent::set_final(Process& p, ProcessState state) {
  p.alive = false;
  p.dying = true;
  p.report.state = state;
  p.report.group_gone_us = world_.loop.now().us;
  changed(p);
}

void SimAgent::end(Process& p, int32_t exit_code, int32_t signal, const std::string& error_line) {
  if (!p.alive || p.dying) return;
  p.dying = true;
  p.report.exit_code = exit_code;
  p.report.signal = signal;
  p.report.error_line = p.report.last_words = error_line;
  p.report.last_step =
      world_.training.plan(p.key().job).spec.progress_pattern.empty() ? -1 : p.step;
  p.report.ended_by_us = p.stop_requested;
  p.report.leader_ended_us = world_.loop.now().us;
  if (!p.stop_requested) world_.process_ended_itself(p);
  world_.training.ended(p);
  Time gone = std::max(world_.loop.now() + world_.random.ms(0, 80), p.unkillable_until);
  world_.loop.at(gone, [this, key = p.key(), life = power_life_] {
    auto it = processes_.find(key);
    if (life == power_life_ && it != processes_.end() && it->second.alive)
      set_final(it->second, ProcessState::exited);
  });
  Time give_up = world_.loop.now() + kShimGivesUpAfter;
  if (gone <= give_up) return;
  world_.loop.at(give_up, [this, key = p.key(), life = power_life_] {
    auto it = processes_.find(key);
    if (life != power_life_ || it == processes_.end() || !it->second.alive) return;
    it->second.report.state = ProcessState::exited;  // and something of it is left
    changed(it->second);
  });
}

void SimAgent::stop(const StopCommand& c) {
  auto it = processes_.find(c.key);
  if (it == processes_.end()) {
    if (forgotten_.count(c.key) != 0) return;
    Process& p = remember(c.key);
    p.report.ended_by_us = true;
    p.report.message = "stopped before it was started";
    return set_final(p, ProcessState::never_started);
  }
  Process& p = it->second;
  if (p.report.state == ProcessState::starting) {
    p.report.ended_by_us = true;
    p.report.message = "stopped before it was started";
    return set_final(p, ProcessState::never_started);
  }
  if (!p.alive) return changed(p);
  world_.check_stop(*this, c.key, "stop");
  if (p.dying) return;
  bool first = !p.stop_requested;
  p.stop_requested = true;
  if (c.force) return end(p, 0, 9, "");
  if (!first) return;
  bool deaf = p.stopped || world_.training.plan(c.key.job).ignores_term;
  Duration wait =
      deaf ? c.grace : Duration{std::min<int64_t>(c.grace.us, world_.random.ms(0, 1500).us)};
  world_.loop.after(wait, [this, key = c.key, deaf, life = power_life_] {
    auto found = processes_.find(key);
    if (life != power_life_ || found == processes_.end() || !found->second.alive) return;
    found->second.report.forced = deaf;
    end(found->second, 0, deaf ? 9 : 15, "");
  });
}

void SimAgent::kill(const IncarnationKey& key) {
  auto it = processes_.find(key);
  if (it == processes_.end() || it->second.report.state == ProcessState::starting) {
    if (forgotten_.count(key) != 0) return;
    Process& p = remember(key);
    p.report.ended_by_us = true;
    return set_final(p, ProcessState::gone);
  }
  Process& p = it->second;
  if (!p.alive) return changed(p);
  world_.check_stop(*this, key, "kill");
  p.stop_requested = true;
  end(p, 0, 9, "");
}

void SimAgent::answer(const fx::AnswerInventory& e) {
  for (const IncarnationKey& key : e.kill) kill(key);
}

void SimAgent::prepare(const fx::Prepare& e) {
  const PrepareCommand& c = e.command;
  world_.loop.after(world_.random.ms(5, 300), [this, c, life = agent_life_, s = session_] {
    if (life != agent_life_ || !agent_up_) return;
    PrepareReport& r = prepared_[{c.job, c.generation, c.attempt}];
    r.job = c.job;
    r.generation = c.generation;
    r.attempt = c.attempt;
    r.address = "10.0.0." + name_.value.substr(1);
    if (c.want_port && r.port == 0) {
      do {
        r.port = static_cast<uint32_t>(world_.random.between(20000, 20020));
      } while (std::find(c.avoid_ports.begin(), c.avoid_ports.end(), r.port) !=
               c.avoid_ports.end());
    }
    r.store = c.want_store && !world_.random.chance(0.03);
    r.no_store = c.want_store && !r.store ? "it would not start" : "";
    r.checkpoints = world_.training.scan(c.job, name_);
    send_up({EntityId::job(c.job), {}, {}, {}, in::Prepared{name_, r}});
  });
}

void SimAgent::go_deaf(Duration lasts) {
  disturbed_until(lasts);
  deaf_until_ = std::max(deaf_until_, world_.loop.now() + lasts);
}

void SimAgent::reset_link(Duration lasts) {
  if (!powered_) return;
  disturbed_until(lasts);
  link_up_ = false;
  disconnect("connection reset", world_.random.chance(0.7));
  world_.loop.after(lasts, [this] {
    disturbed();
    link_up_ = true;
  });
  if (agent_up_) try_connect();
}

void SimAgent::stall_link(Duration lasts) {
  if (stalled_) return;
  stalled_ = true;
  disturbed_until(lasts);
  world_.loop.after(lasts, [this] {
    disturbed();
    stalled_ = false;
    auto waiting = std::move(backlog_);
    backlog_.clear();
    for (auto& deliver : waiting) deliver();
  });
}

void SimAgent::restart_agent(Duration lasts) {
  if (!powered_ || !agent_up_) return;
  disturbed_until(lasts);
  disconnect("the agent died", world_.random.chance(0.7));
  agent_up_ = false;
  ++agent_life_;
  world_.loop.after(lasts, [this, life = agent_life_] {
    if (life != agent_life_ || !powered_) return;
    disturbed();
    agent_up_ = true;
    ++agent_life_;
    for (auto& [key, p] : processes_) p.told = false;
    try_connect();
    heartbeat();
  });
}

void SimAgent::reboot(Duration lasts) {
  if (!powered_) return;
  disturbed_until(lasts);
  disconnect("the machine went down", world_.random.chance(0.3));
  powered_ = agent_up_ = false;
  ++agent_life_;
  ++power_life_;
  for (auto& [key, p] : processes_) {
    bool lived = p.alive;
    p.alive = false;
    p.dying = true;
    if (lived) world_.training.ended(p);
    world_.training.forget(p);
  }
  processes_.clear();
  forgotten_.clear();
  prepared_.clear();
  world_.loop.after(lasts, [this] {
    disturbed();
    boot();
  });
}

void SimAgent::break_device(uint32_t index, Duration lasts) {
  auto say = [this, index] {
    const DeviceReport& d = devices_[index];
    if (session_.value != 0)
      send_up({EntityId::device(name_, d.name), {}, {}, {}, in::DeviceSeen{d, session_, false}});
  };
  DeviceReport& d = devices_[index];
  d.healthy = false;
  d.fault = "xid 79";
  device_fault_at_[d.name] = world_.loop.now() + lasts;
  say();
  world_.loop.after(lasts, [this, index, say] {
    devices_[index].healthy = true;
    devices_[index].fault.clear();
    say();
  });
}

Process* SimAgent::live_process(JobId job, RankIndex rank) {
  for (auto& [key, p] : processes_) {
    if (key.job == job && key.rank == rank && p.alive && !p.dying) return &p;
  }
  return nullptr;
}

}  // namespace regrow::sim
