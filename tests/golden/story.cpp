#include "tests/golden/story.h"

#include "tests/catch.h"
#include "tests/driver/text.h"

namespace regrow::golden {
namespace {

using sim::seconds_text;
using sim::value_text;

std::string key_text(const IncarnationKey& key) { return value_text(key); }

std::string keys_text(const std::vector<IncarnationKey>& keys) {
  std::string text;
  for (const IncarnationKey& key : keys) text += " " + key_text(key);
  return text;
}

std::string place_text(const HostName& host, const std::vector<DeviceName>& devices) {
  std::string text = host.value;
  for (size_t i = 0; i < devices.size(); ++i) text += (i == 0 ? "/" : "+") + devices[i].value;
  return text;
}

}  // namespace

JobSpec demo_spec(uint32_t ranks) {
  JobSpec spec;
  spec.name = "demo";
  spec.ranks = ranks;
  spec.devices.kind = "sim";
  spec.command = {"train.py"};
  spec.progress_pattern = "step (?P<step>[0-9]+)";
  spec.checkpoint.directory = "/ckpt";
  spec.checkpoint.shards = "rank_{rank}.pt";
  spec.checkpoint.marker = "COMPLETE";
  for (size_t c = 0; c < FailureClass_names.size(); ++c) {
    bool blameless = static_cast<FailureClass>(c) >= FailureClass::device;
    spec.intensity.push_back({static_cast<FailureClass>(c), blameless ? -1 : 3, {}});
  }
  return spec;
}

Story::Story(std::string name, const std::string& about, StoryOptions options)
    : name_(std::move(name)), options_(options), controller_(loop_, *this, {}) {
  text_ = "# " + about + "\n";
  for (size_t at = 0; (at = text_.find('\n', at)) != std::string::npos && at + 1 < text_.size();
       ++at)
    text_.insert(at + 1, "# ");
  for (uint32_t i = 0; i < options_.hosts; ++i) {
    Host h;
    h.name = {"h" + std::to_string(i + 1)};
    for (uint32_t d = 0; d < options_.devices_per_host; ++d) {
      DeviceReport device;
      device.name = {"sim" + std::to_string(d)};
      device.kind = "sim";
      device.uid = h.name.value + "-" + device.name.value;
      h.devices.push_back(device);
    }
    hosts_.push_back(std::move(h));
  }
}

// --- the world -----------------------------------------------------------------------------------

void Story::start(const JobSpec& spec) {
  quiet_ = !options_.from_the_beginning;
  controller_.start({epoch_, 7}, nullptr);
  for (size_t i = 0; i < hosts_.size(); ++i) {
    loop_.run_for(Duration::ms(100));
    connect(hosts_[i]);
  }
  loop_.after(Duration::seconds(1), [this] { beat(); });
  loop_.run_until(Time{1000000});
  submit(spec);
  loop_.run_until(Time{3000000});
  flush();
  quiet_ = false;
  if (options_.from_the_beginning) return;
  text_ += "\n  ... " + std::to_string(spec.ranks) + " ranks run as in first_start.txt:";
  for (const Slot& slot : job().slots)
    text_ += " " + std::to_string(slot.rank.value) + "=" + place_text(slot.host, slot.devices);
  text_ += "\n";
}

void Story::submit(const JobSpec& spec) {
  controller_.post(
      "client",
      {EntityId::cluster(), {}, {++requests_}, {"uid:1000", "operator"}, in::Submit{"", spec}});
}

void Story::pass(Duration d) { loop_.run_for(d); }

void Story::connect(Host& h) {
  h.session = {++sessions_};
  AgentHello hello;
  hello.name = h.name;
  hello.uid = "uid-" + h.name.value;
  hello.boot_id = "boot-1";
  hello.address = "10.0.0." + h.name.value.substr(1);
  hello.devices = h.devices;
  for (const auto& [key, r] : h.ranks) {
    if (!r.acknowledged) hello.ranks.push_back(r.report);
  }
  from_agent(h, {EntityId::host(h.name), {}, {}, {}, in::AgentConnected{h.session, hello}});
}

void Story::from_agent(Host& h, Envelope envelope) {
  if (h.reachable && controller_.open())
    controller_.post("link/" + h.name.value, std::move(envelope));
}

void Story::beat() {
  loop_.after(Duration::seconds(1), [this] { beat(); });
  for (Host& h : hosts_) {
    from_agent(h, {EntityId::host(h.name), {}, {}, {}, in::AgentHeartbeat{h.session}});
    for (auto& [key, r] : h.ranks) {
      if (r.report.state == ProcessState::running) show(h, r);
    }
  }
}

void Story::show(Host& h, Rank& r) {
  ProgressReport p;
  p.key = r.report.key;
  p.step = r.step;
  p.loss = 0.5;
  p.step_seconds = 0.25;
  p.output_us = p.step_us = r.moved_us;
  p.stopped = r.stopped;
  from_agent(h, {EntityId::job(p.key.job), {}, {}, {}, in::Progress{p}});
}

Story::Host& Story::host_of(const HostName& name) {
  for (Host& h : hosts_) {
    if (h.name == name) return h;
  }
  throw sim::Violation("no host " + name.value);
}

Story::Host* Story::host_with(uint32_t rank, Rank** found) {
  for (Host& h : hosts_) {
    for (auto& [key, r] : h.ranks) {
      if (key.rank.value != rank || !r.alive || key.incarnation != job().slots[rank].incarnation)
        continue;
      *found = &r;
      return &h;
    }
  }
  return nullptr;
}

void Story::progress(int64_t step) {
  for (Host& h : hosts_) {
    for (auto& [key, r] : h.ranks) {
      if (!r.alive || r.stopped) continue;
      r.step = step;
      r.moved_us = loop_.now().us;
      show(h, r);
    }
  }
  loop_.run_for(Duration::ms(10));
}

void Story::joins(uint32_t rank, int64_t step, bool intact) {
  Rank* r = nullptr;
  Host* h = host_with(rank, &r);
  REQUIRE(h != nullptr);
  heading("rank " + std::to_string(rank) + " joins with " +
          (intact ? "step " + std::to_string(step) : "nothing"));
  JoinReport join{r->command.key, job().generation, step, intact};
  from_agent(*h, {EntityId::job(r->command.key.job), {}, {}, {}, in::Joined{h->name, join}});
  loop_.run_for(Duration::ms(1));
}

void Story::stops_moving(uint32_t rank) {
  Rank* r = nullptr;
  Host* h = host_with(rank, &r);
  r->stopped = true;
  show(*h, *r);
}

void Story::exits(std::vector<uint32_t> ranks, int32_t code, int32_t signal,
                  const std::string& error_line) {
  for (uint32_t rank : ranks) {
    Rank* r = nullptr;
    Host* h = host_with(rank, &r);
    REQUIRE(h != nullptr);
    ended(*h, *r, code, signal, false, error_line);
  }
  loop_.run_for(Duration::ms(1));
}

void Story::ended(Host& h, Rank& r, int32_t code, int32_t signal, bool by_us,
                  const std::string& error_line) {
  r.alive = false;
  r.report.state = ProcessState::exited;
  r.report.group_gone_us = r.report.leader_ended_us = loop_.now().us;
  r.report.exit_code = code;
  r.report.signal = signal;
  r.report.ended_by_us = by_us;
  r.report.forced = by_us && signal == 9;
  r.report.error_line = error_line;
  r.report.bind_failed = error_line.find("address already in use") != std::string::npos;
  r.report.last_step = r.step;
  const IncarnationKey& key = r.report.key;
  from_agent(h, {EntityId::rank(key.job, key.rank),
                 {},
                 {++requests_},
                 {},
                 in::AgentReport{h.name, r.report, h.session}});
}

void Story::has_checkpoint(int64_t step, const std::string& problem) {
  CheckpointFound c;
  c.step = step;
  c.path = "/ckpt/step_" + std::to_string(step);
  c.complete = problem.empty();
  c.problem = problem;
  checkpoints_.insert(checkpoints_.begin(), c);
}

void Story::cut(uint32_t host, const std::string& how) {
  say(hosts_[host - 1].name.value + ": " + how);
  hosts_[host - 1].reachable = false;
}

void Story::heal(uint32_t host) {
  say(hosts_[host - 1].name.value + " is back");
  hosts_[host - 1].reachable = true;
  connect(hosts_[host - 1]);
  loop_.run_for(Duration::ms(10));
}

void Story::crash_controller_after(const std::string& event, Duration down) {
  crash_after_ = event;
  crash_down_ = down;
}

void Story::crash_controller(Duration down) {
  flush();
  uint64_t n = controller_.journal().records.size();
  text_ += "\n# " + seconds_text(loop_.now().us) + " the controller is killed; " +
           std::to_string(n) + " events are on disk. The ranks run on.\n";
  controller_.crash(n);
  for (Host& h : hosts_) h.session = {};
  loop_.after(down, [this] {
    controller_.start({++epoch_, 7 + epoch_}, nullptr);
    loop_.after(Duration::ms(50), [this] {
      for (Host& h : hosts_) connect(h);
    });
  });
}

void Story::set_desired(Desired desired, const std::string& reason) {
  controller_.post("operator", {EntityId::job({1}),
                                {},
                                {++requests_},
                                {"uid:1000", "operator"},
                                in::SetDesired{desired, reason}});
  loop_.run_for(Duration::ms(1));
}

const JobState& Story::job() const {
  return std::get<JobState>(controller_.find(EntityId::job({1}))->state());
}

// --- agents --------------------------------------------------------------------------------------

void Story::answer(const Reply& reply) {
  if (!reply.message.empty())
    line("reply", std::string(reply.ok ? "ok" : "no") + " \"" + reply.message + "\"", "");
}

void Story::perform(const Effect& effect) {
  // Of a host without a connection: dropped, its return asks for it again.
  HostName to = std::visit(
      [](const auto& e) {
        if constexpr (requires { e.host; })
          return e.host;
        else
          return HostName{};
      },
      effect);
  if (!to.value.empty() && host_of(to).session.value == 0) return;
  std::visit(
      Overloaded{
          [&](const fx::Spawn& e) {
            std::string from = e.command.resume_step < 0
                                   ? ""
                                   : " from step " + std::to_string(e.command.resume_step);
            line("pending",
                 "spawn " + key_text(e.command.key) + " on " +
                     place_text(e.host, e.command.devices) + " of " +
                     std::to_string(e.command.world_size) + ", meets at " +
                     e.command.master_address + ":" + std::to_string(e.command.master_port) + from,
                 "");
            obey(host_of(e.host), effect);
          },
          [&](const fx::Stop& e) {
            line("pending",
                 "stop " + key_text(e.command.key) + " on " + e.host.value +
                     (e.command.force ? " at once"
                                      : " signal=" + e.command.signal +
                                            " grace=" + seconds_text(e.command.grace.us)),
                 "");
            obey(host_of(e.host), effect);
          },
          [&](const fx::AnswerInventory& e) {
            std::string text = "answer " + e.host.value + ":";
            for (const auto& k : e.keep) text += " keep " + key_text(k);
            for (const auto& k : e.kill) text += " kill " + key_text(k);
            if (!e.keep.empty() || !e.kill.empty()) line("pending", text, "");
            obey(host_of(e.host), effect);
          },
          [&](const fx::Acknowledge& e) { obey(host_of(e.host), effect); },
          [&](const fx::Prepare& e) {
            line("pending",
                 "prepare " + e.host.value + " for generation " + value_text(e.command.generation) +
                     (e.command.want_port ? ", with a port" : "") +
                     (e.command.avoid_ports.empty()
                          ? ""
                          : " other than " + value_text(e.command.avoid_ports)),
                 "");
            obey(host_of(e.host), effect);
          },
          [&](const fx::Regroup& e) {
            std::string text = "call" + keys_text(e.command.keys) + " on " + e.host.value +
                               " to generation " + value_text(e.command.generation);
            line("pending", text, "");
          },
          [&](const fx::Go& e) {
            const GoCommand& go = e.command;
            std::string from = go.source >= 0 ? "step " + std::to_string(go.source_step) +
                                                    " of rank " + std::to_string(go.source)
                               : go.resume_step >= 0
                                   ? "the checkpoint of step " + std::to_string(go.resume_step)
                                   : "the beginning";
            line("pending", "go" + keys_text(go.keys) + " on " + e.host.value + " from " + from,
                 "");
          },
          [](const auto&) {}},
      effect);
}

void Story::obey(Host& h, const Effect& effect) {
  if (!h.reachable || h.session.value == 0) return;
  if (auto* e = std::get_if<fx::Acknowledge>(&effect)) {
    auto it = h.ranks.find(e->key);
    if (it != h.ranks.end() && !it->second.alive) it->second.acknowledged = true;
  } else if (auto* spawn = std::get_if<fx::Spawn>(&effect)) {
    if (h.ranks.count(spawn->command.key) != 0) return;
    Rank& r = h.ranks[spawn->command.key];
    r.command = spawn->command;
    r.report.key = spawn->command.key;
    r.report.state = ProcessState::starting;
    r.alive = true;
    Duration takes{start_takes_.us + 1000 * spawn->command.key.rank.value};
    loop_.after(takes, [this, &h, &r] {
      if (!r.alive) return;
      r.report.state = ProcessState::running;
      r.report.pid = 1000 + r.report.key.rank.value;
      const IncarnationKey& key = r.report.key;
      from_agent(h, {EntityId::rank(key.job, key.rank),
                     {},
                     {++requests_},
                     {},
                     in::AgentReport{h.name, r.report, h.session}});
      if (!bind_fails_ || key.rank.value != 0) return;
      bind_fails_ = false;
      loop_.after(Duration::ms(200), [this, &h, &r] {
        if (r.alive) ended(h, r, 1, 0, false, "RuntimeError: bind: address already in use");
      });
    });
  } else if (auto* order = std::get_if<fx::Stop>(&effect)) {
    auto it = h.ranks.find(order->command.key);
    if (it != h.ranks.end() && it->second.alive) stop(h, it->second, order->command.force);
  } else if (auto* answer = std::get_if<fx::AnswerInventory>(&effect)) {
    for (const IncarnationKey& key : answer->kill) {
      auto it = h.ranks.find(key);
      if (it != h.ranks.end() && it->second.alive) stop(h, it->second, true);
    }
  } else if (auto* p = std::get_if<fx::Prepare>(&effect)) {
    PrepareReport r;
    r.store = p->command.want_store;
    r.job = p->command.job;
    r.generation = p->command.generation;
    r.attempt = p->command.attempt;
    r.address = "10.0.0." + h.name.value.substr(1);
    r.port = p->command.want_port ? 20000 + p->command.attempt : 0;
    r.checkpoints = checkpoints_;
    loop_.after(Duration::ms(5), [this, &h, r] {
      from_agent(h, {EntityId::job(r.job), {}, {}, {}, in::Prepared{h.name, r}});
    });
  }
}

void Story::stop(Host& h, Rank& r, bool force) {
  bool deaf = !force && (ignores_term_ || r.stopped);
  Duration takes = force ? Duration::ms(20) : deaf ? Duration::seconds(10) : Duration::ms(100);
  loop_.after(takes, [this, &h, &r, deaf, force] {
    if (r.alive) ended(h, r, 0, force || deaf ? 9 : 15, true, "");
  });
}

}  // namespace regrow::golden
