#include "tests/sim/world.h"

#include <algorithm>
#include <iostream>

#include "supervisors/blame.h"
#include "tests/driver/text.h"

namespace regrow::sim {
namespace {

constexpr Time kBegin{1000000};

Delays delays_of(const Plan& plan, Random& random) {
  Delays d;
  d.message = [&plan, &random] { return Duration{random.between(0, plan.slowest_message.us)}; };
  d.write = [&plan, &random] { return Duration{random.between(100, plan.slowest_write.us)}; };
  return d;
}

}  // namespace

World::World(const Plan& plan, RunOptions options)
    : AgentWorld(loop_, random_, training_, plan_),
      loop_(kBegin),
      random_(plan.seed + 1),
      training_(loop_, random_),
      plan_(plan),
      options_(options),
      controller_(loop_, *this, delays_of(plan_, random_)) {
  for (uint32_t i = 0; i < plan_.hosts; ++i)
    agents_.push_back(std::make_unique<SimAgent>(*this, HostName{"h" + std::to_string(i + 1)},
                                                 plan_.devices_per_host));
  clients_.resize(plan_.jobs.size());
  training_.end = [this](Process& p, int32_t code, int32_t signal, const std::string& line) {
    if (SimAgent* a = agent_of(p.host)) a->end(p, code, signal, line);
  };
  training_.joined = [this](Process& p) {
    if (SimAgent* a = agent_of(p.host)) a->say_join(p);
  };
}

SimAgent* World::agent_of(const HostName& host) {
  for (auto& a : agents_) {
    if (a->name() == host) return a.get();
  }
  return nullptr;
}

void World::start() {
  start_controller();
  for (auto& a : agents_) a->boot();
  for (uint32_t i = 0; i < plan_.jobs.size(); ++i)
    loop_.at(plan_.jobs[i].submit_at, [this, i] { submit(i); });
}

void World::start_controller() {
  restarted_at_ = loop_.now();
  epoch_ = {epoch_.number + 1, random_.next()};
  history_ = {};
  for (const EventRecord& r : controller_.journal().records) history_.add(r);
  controller_.start(epoch_, &random_);
  check_fold(controller_);
  check_budget();
}

void World::crash_controller(Duration down, std::optional<uint64_t> keep) {
  if (!controller_.alive()) return;
  check_fold(controller_);
  mark("crash");
  const SimJournal& j = controller_.journal();
  uint64_t upto = keep ? *keep : j.durable + random_.below(j.records.size() - j.durable + 1);
  if (upto < j.records.size()) mark("crash lost events");
  controller_.crash(upto);
  for (auto& a : agents_) a->controller_gone();
  loop_.after(down, [this] { start_controller(); });
}

void World::run_until(Time t) { loop_.run_until(t); }

// --- operators -----------------------------------------------------------------------------------

void World::submit(uint32_t index) {
  Client& c = clients_[index];
  if (c.job.value != 0) return;
  c.request = new_request();
  Actor by{"op/" + std::to_string(++operations_), "operator"};
  controller_.post("client", {EntityId::cluster(),
                              {},
                              c.request,
                              by,
                              in::Submit{plan_.jobs[index].key, plan_.jobs[index].spec}});
  loop_.after(Duration::seconds(3), [this, index] { submit(index); });
}

void World::operate(Envelope envelope) {
  envelope.request = new_request();
  envelope.by = {"op/" + std::to_string(++operations_), "operator"};
  auto command = std::make_unique<Command>();
  command->envelope = envelope;
  commands_[envelope.request.value] = std::move(command);
  controller_.post("operator", envelope);
  loop_.after(Duration::seconds(4), [this, request = envelope.request.value] {
    auto it = commands_.find(request);
    if (it == commands_.end()) return;
    Envelope again = it->second->envelope;
    commands_.erase(it);
    operate(again);
  });
}

void World::set_desired(uint32_t index, Desired desired, const std::string& reason) {
  if (clients_[index].job.value == 0) return;
  operate({EntityId::job(clients_[index].job), {}, {}, {}, in::SetDesired{desired, reason}});
}

void World::answer(const Reply& reply) {
  for (Client& c : clients_) {
    if (reply.request == c.request && reply.ok) {
      if (durable_.accepted.count(reply.job) == 0)
        throw Violation("J-3 a submission was answered before it was durable");
      c.job = reply.job;
      return;
    }
  }
  if (auto it = commands_.find(reply.request.value); it != commands_.end()) {
    bool changed = reply.ok && reply.message.find("already") == std::string::npos;
    if (changed && durable_.operators_done.count(it->second->envelope.by.who) == 0)
      throw Violation("J-3 an operator was answered before the event was durable: " +
                      reply.message);
    commands_.erase(it);
    return;
  }
  for (auto& a : agents_) a->on_reply(reply.request, reply.ok);
}

void World::heal_operators() {
  for (auto& a : agents_)
    operate({EntityId::host(a->name()),
             {},
             {},
             {},
             in::SetHostAdmin{HostAdmin::in_service, "all is well"}});
  for (uint32_t i = 0; i < clients_.size(); ++i) {
    const JobState* s = job_state(i);
    if (s != nullptr && (s->desired == Desired::pause || s->desired == Desired::hold) &&
        clients_[i].resumes < 8) {
      ++clients_[i].resumes;
      set_desired(i, Desired::run, "go on");
    }
  }
}

// --- faults --------------------------------------------------------------------------------------

void World::schedule_faults() {
  for (const Fault& f : plan_.faults) loop_.at(f.at, [this, f] { inject(f); });
}

void World::hurt_rank(const Fault& f) {
  JobId job = clients_[f.job].job;
  if (job.value == 0) return;
  for (auto& a : agents_) {
    Process* p = a->live_process(job, {f.rank});
    if (p == nullptr) continue;
    mark(std::string(to_string(f.kind)));
    std::string name(1, static_cast<char>('a' + random_.below(26)));
    switch (f.kind) {
      case FaultKind::kill_rank:
        return a->end(*p, 0, 9, "");
      case FaultKind::exit_rank:
        return a->end(*p, 1, 0, "ValueError: accident " + name + name);
      case FaultKind::exit_zero:
        return a->end(*p, 0, 0, "");
      case FaultKind::unkillable:
        p->unkillable_until = loop_.now() + f.lasts;
        return a->end(*p, 0, 9, "");
      case FaultKind::out_of_memory:
        p->report.out_of_memory = true;
        return a->end(*p, 0, 9, "");
      default:
        p->stopped = true;
        return;
    }
  }
}

void World::inject(const Fault& f) {
  SimAgent& host = *agents_[f.host];
  if (options_.trace)
    std::cout << "! " << seconds_text(loop_.now().us) << " " << to_string(f.kind) << "\n";
  switch (f.kind) {
    case FaultKind::link_reset:
      return host.reset_link(f.lasts);
    case FaultKind::link_stall:
      return host.stall_link(f.lasts);
    case FaultKind::deaf_agent:
      return host.go_deaf(f.lasts);
    case FaultKind::agent_restart:
      return host.restart_agent(f.lasts);
    case FaultKind::host_reboot:
      return host.reboot(f.lasts);
    case FaultKind::device_fault:
      return host.break_device(f.device, f.lasts);
    case FaultKind::controller_crash: {
      // Now, or in the middle of what is decided next.
      if (random_.chance(0.3)) return crash_controller(f.lasts, {});
      crash_at_ = controller_.journal().records.size() + 1 + random_.below(25);
      crash_down_ = f.lasts;
      return;
    }
    case FaultKind::controller_stall:
      if (controller_.alive()) controller_.stall(f.lasts);
      stalled_until_ = loop_.now() + f.lasts;
      return;
    case FaultKind::entity_restart: {
      auto ids = controller_.entities();
      if (!controller_.open() || ids.empty()) return;
      return controller_.restart(random_.pick(ids));
    }
    case FaultKind::slow_disk:
      return controller_.slow_disk_until(loop_.now() + f.lasts);
    case FaultKind::cancel:
      return set_desired(f.job, Desired::cancel, "not needed");
    case FaultKind::pause:
      return set_desired(f.job, Desired::pause, "for a moment");
    case FaultKind::resume:
      return set_desired(f.job, Desired::run, "go on");
    case FaultKind::cordon:
      return operate({EntityId::host(host.name()),
                      {},
                      {},
                      {},
                      in::SetHostAdmin{HostAdmin::cordoned, "a fan"}});
    default:
      return hurt_rank(f);
  }
}

// --- the controller's hands ----------------------------------------------------------------------

void World::to_controller(const HostName& from, Envelope envelope) {
  controller_.post("link/" + from.value, std::move(envelope));
}

void World::perform(const Effect& effect) {
  check_effect(effect);
  HostName host = std::visit(
      Overloaded{
          [](const fx::Spawn& e) { return e.host; }, [](const fx::Stop& e) { return e.host; },
          [](const fx::AnswerInventory& e) { return e.host; },
          [](const fx::Acknowledge& e) { return e.host; },
          [](const fx::Prepare& e) { return e.host; }, [](const fx::Regroup& e) { return e.host; },
          [](const fx::Go& e) { return e.host; }, [](const auto&) { return HostName{}; }},
      effect);
  if (auto* e = std::get_if<fx::DropSession>(&effect)) {
    mark("session dropped");
    for (auto& a : agents_) {
      if (a->session() == e->session) a->hung_up();
    }
  }
  if (SimAgent* a = agent_of(host)) {
    if (a->session().value == 0) {
      mark("effect dropped, no session");
    } else {
      if (durable_.epoch != epoch_.number)
        throw Violation("J-3 a command of epoch " + std::to_string(epoch_.number) +
                        ", which is not durable");
      a->command(effect, epoch_);
    }
  }
}

void World::durable(const EventRecord& r) {
  durable_.add(r);
  mark(std::string("event ") + event_name(r.event));
  if (on_durable) on_durable(r);
}

void World::appended(const EventRecord& r) {
  if (options_.trace) std::cout << record_text(r) << "\n";
  history_.add(r);
  if (auto* e = std::get_if<ev::JobAccepted>(&r.event)) {
    for (const JobPlan& job : plan_.jobs) {
      if (job.spec.name == e->spec.name) training_.know(e->job, job);
    }
  }
  if (crash_at_ != 0 && r.seq >= crash_at_) {
    crash_at_ = 0;
    loop_.after({}, [this] { crash_controller(crash_down_, {}); });
  }
  if (auto* e = std::get_if<ev::IncidentOpened>(&r.event)) check_incident(r, *e);
  if (auto* e = std::get_if<ev::GenerationStarted>(&r.event)) check_resume(r, *e);
  if (auto* e = std::get_if<ev::RecoveryPlanned>(&r.event); e != nullptr && !e->start.empty())
    complete_at_plan_[*r.entity.job_id()] = training_.newest_complete(*r.entity.job_id());
  if (auto* e = std::get_if<ev::DevicesGranted>(&r.event); e != nullptr && !e->dirty.empty())
    mark("dirty lease");
  if (auto* e = std::get_if<ev::RankExited>(&r.event); e != nullptr && left_something(e->report))
    mark("something left behind");
  if (auto* e = std::get_if<ev::SlotEnded>(&r.event); e != nullptr && e->lost) mark("slot lost");
  if (auto* e = std::get_if<ev::RecoveryPlanned>(&r.event); e != nullptr && e->incident != 0)
    mark("rung " + std::string(to_string(e->rung)));
  for (const char* words : {"superseded", "did not rejoin", "has exited with 0 and cannot rejoin",
                            "no step was done since", "no rank survives", "was taken over twice",
                            "exited with 0 while its peers wait", "there is no store where",
                            "was lost during recovery"}) {
    if (r.reason.find(words) != std::string::npos) mark(words);
  }
  if (on_appended) on_appended(r);
}

void World::handled(const EntityHost& host, const Envelope& envelope, const Outbox&) {
  if (!options_.trace) return;
  auto say = [&](const auto& m) {
    std::cout << "  " << host.id().path << " " << m.kTypeName << " session " << m.session.value
              << "\n";
  };
  if (auto* m = std::get_if<in::AgentConnected>(&envelope.input)) say(*m);
  if (auto* m = std::get_if<in::AgentGone>(&envelope.input)) say(*m);
  if (host.decisions().empty()) return;
  const PastDecision& d = host.decisions().back();
  bool heartbeat = std::holds_alternative<in::AgentHeartbeat>(envelope.input) ||
                   std::holds_alternative<in::Progress>(envelope.input) ||
                   std::holds_alternative<in::Tick>(envelope.input);
  if (d.at == loop_.now() && !heartbeat && d.outcome.rfind("ignored", 0) == 0)
    std::cout << "  . " << host.id().path << " " << d.input << ": " << d.outcome << "\n";
}

}  // namespace regrow::sim
