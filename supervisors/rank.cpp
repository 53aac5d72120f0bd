// A rank slot: what its newest incarnation is doing, and what follows from what happens to it.
// Invariants, F-1, J-3, D-2.
#include <algorithm>

#include "supervisors/blame.h"
#include "supervisors/machines.h"

namespace regrow {
namespace {

using T = Turn<RankState>;
constexpr size_t kPastKept = 16;

bool is_active(Process p) {
  return p == Process::spawning || p == Process::running || p == Process::rejoining ||
         p == Process::stopping;
}

bool is_final(ProcessState s) {
  return s == ProcessState::exited || s == ProcessState::never_started || s == ProcessState::gone;
}

Incarnation current(const RankState& s) { return s.command.key.incarnation; }

std::string describe_end(const RankReport& r, bool force) {
  switch (r.state) {
    case ProcessState::never_started:
      return "never started: " + r.message;
    case ProcessState::gone:
      return "gone without an exit status" + (r.message.empty() ? "" : ": " + r.message);
    default:
      break;
  }
  std::string text = r.signal != 0 ? "killed by signal " + std::to_string(r.signal)
                                   : "exited with " + std::to_string(r.exit_code);
  if (r.ended_by_us) {
    text += force      ? ", ended by us"
            : r.forced ? ", forced by us at the deadline"
                       : ", stopped on request";
  } else if (r.out_of_memory) {
    text += ", out of memory";
  } else if (r.signal != 0) {
    text += ", not by us";
  }
  if (left_something(r)) text += "; something that it started could not be ended";
  return text;
}

// An incarnation that is not this slot's newest, or has ended: it must not run, and it changes
// nothing else.
void on_stale(T& t, const HostName& host, const RankReport& report) {
  if (is_final(report.state)) {
    t.effect(fx::Acknowledge{host, report.key});
    if (left_something(report))
      return t.ignore("end of an older incarnation that left something behind");
    t.send(EntityId::host(host), in::DetachRank{report.key});
    return t.ignore("end of an older incarnation: its device is free, nothing else changes");
  }
  if (report.state == ProcessState::unknown) {
    t.send(EntityId::host(host), in::DetachRank{report.key});
    return t.ignore("an older incarnation is not there any more");
  }
  StopCommand stop;
  stop.key = report.key;
  stop.force = true;
  stop.reason = "an older incarnation of this slot, or one whose end was reported";
  t.effect(fx::Stop{host, stop});
  t.ignore("a stale incarnation still ran: killed");
}

// What the newest incarnation had left behind when it ended is not there any more.
void record_gone(T& t, int64_t gone_us, const std::string& why) {
  ev::RankExited again{current(t.state()), t.state().report};
  again.report.group_gone_us = gone_us;
  t.record(std::move(again), why);
}

void on_report(T& t, RankLive& live, const HostName& host, const RankReport& report,
               SessionId session, bool inventory) {
  const RankState& s = t.state();
  t.reply(true, "");
  // An inventory is the first thing said on a connection: a report that came over it since is
  // newer.
  if (inventory && session.value != 0 && session == live.heard_in && report.key == s.command.key)
    return t.ignore("the agent has said more on this connection since");
  if (!inventory && report.key == s.command.key) live.heard_in = session;
  if (report.key.incarnation > current(s) && !is_final(report.state))
    return t.ignore("newer than anything this journal knows: left alone");
  if (report.key.incarnation != current(s) || host != s.host || s.process == Process::lost)
    return on_stale(t, host, report);
  if (is_final(report.state)) {
    if (!is_active(s.process)) {
      t.decision().reissue = true;
      if (!left_something(s.report) || left_something(report)) return t.ignore("its end is known");
      return record_gone(t, report.group_gone_us, "what it had left behind is gone");
    }
    return t.record(ev::RankExited{report.key.incarnation, report},
                    describe_end(report, s.stop.force));
  }
  if (s.process == Process::exited && report.state != ProcessState::unknown)
    return on_stale(t, host, report);
  switch (report.state) {
    case ProcessState::running:
      if (s.process == Process::spawning) {
        t.record(ev::RankRunning{report.key.incarnation, report.pid, report.start_time,
                                 report.started_us},
                 "runs as pid " + std::to_string(report.pid) + " on " + host.value);
      } else if (inventory && s.process != Process::running) {
        t.decision().reissue = true;
      }
      return;
    case ProcessState::unknown:
      if (!inventory) return t.ignore("the agent does not know it yet");
      if (s.process == Process::spawning || s.process == Process::stopping) {
        t.decision().reissue = true;
        return t.ignore("not started there yet: asked again");
      }
      if (is_active(s.process)) t.record(ev::RankLost{report.key.incarnation}, report.message);
      if (left_something(s.report)) record_gone(t, t.now().time.us, report.message);
      return;
    default:
      if (inventory) t.decision().reissue = true;
      return t.ignore("still starting");
  }
}

void on_start(T& t, const in::RankStart& m) {
  const RankState& s = t.state();
  if (m.command.key.incarnation <= current(s))
    return t.ignore("this incarnation was started already");
  if (is_active(s.process)) {
    // The job has given the old one up already; word of that may come later than the new start.
    IncarnationKey old = s.command.key;
    HostName host = s.host;
    t.record(ev::RankLost{old.incarnation},
             "superseded by incarnation " + std::to_string(m.command.key.incarnation.value));
    t.send(EntityId::host(host), in::DoomRank{old, "superseded"});
  }
  t.record(
      ev::RankSpawning{m.host, m.command},
      "generation " + std::to_string(m.command.generation.value) + " starts on " + m.host.value);
}

void on_stop(T& t, const in::RankStop& m) {
  const RankState& s = t.state();
  if (m.incarnation > current(s)) {
    // The order to start it was lost in a crash, and the order to stop it has overtaken it: it
    // never was.
    in::RankStatus never{s.rank, m.incarnation, {}, Process::exited, {}, ""};
    never.report.key = {s.job, s.rank, m.incarnation};
    never.report.state = ProcessState::never_started;
    never.report.ended_by_us = true;
    t.send(EntityId::job(s.job), never);
    return t.ignore("it was never started");
  }
  if (m.incarnation != current(s) || !is_active(s.process)) {
    t.decision().reissue = true;
    return t.ignore("it has ended already");
  }
  if (s.process == Process::stopping && (s.stop.force || !m.how.force))
    return t.ignore("it is being stopped already");
  StopCommand command = m.how;
  command.key = s.command.key;
  t.record(ev::RankStopping{m.incarnation, command}, m.how.reason);
}

void on_declared_lost(T& t, const in::DeclareLost& m) {
  if (m.incarnation != current(t.state()) || !is_active(t.state().process))
    return t.ignore("it has ended already");
  t.record(ev::RankLost{m.incarnation}, m.why);
}

void remember(RankState& s, const EventRecord& r) {
  PastIncarnation past;
  past.incarnation = current(s);
  past.host = s.host;
  past.process = s.process;
  past.exit_code = s.report.exit_code;
  past.signal = s.report.signal;
  past.ended_by_us = s.report.ended_by_us;
  past.message = r.reason;
  past.ended_at = r.at;
  s.past.push_back(std::move(past));
  if (s.past.size() > kPastKept) s.past.erase(s.past.begin());
}

}  // namespace

void decide(Turn<RankState>& t, RankLive& live) {
  std::visit(
      Overloaded{
          [&](const in::RankStart& m) { on_start(t, m); },
          [&](const in::RankStop& m) { on_stop(t, m); },
          [&](const in::DeclareLost& m) { on_declared_lost(t, m); },
          [&](const in::AgentReport& m) { on_report(t, live, m.host, m.report, m.session, false); },
          [&](const in::InventoryReport& m) {
            on_report(t, live, m.host, m.report, m.session, true);
          },
          [&](const in::Resumed&) { live.asked_at = t.now().time; },
          [&](const in::Tick&) {
            auto at = deadline(t.state(), live, t.now());
            if (!at || t.now().time < *at) return t.ignore("no deadline has come");
            live.asked_at = t.now().time;
            t.decision().reissue = true;
            t.ignore("no answer from the agent: asked again");
          },
          [&](const auto& m) { t.ignore(std::string(m.kTypeName) + " is not for a rank"); },
      },
      t.envelope().input);
}

std::optional<Time> deadline(const RankState& s, const RankLive& live, Now now) {
  if (s.process != Process::spawning && s.process != Process::stopping) return std::nullopt;
  return now.deadline(std::max(s.since, live.asked_at), kAskAgainAfter);
}

std::vector<Action> pending(const RankState& s) {
  std::vector<Action> actions;
  if (current(s).value == 0) return actions;
  EntityId host = EntityId::host(s.host);
  switch (s.process) {
    case Process::spawning:
      actions.push_back(Message{host, in::AttachRank{s.command.key}});
      actions.push_back(fx::Spawn{s.host, s.command});
      break;
    case Process::running:
      actions.push_back(Message{host, in::AttachRank{s.command.key}});
      break;
    case Process::stopping:
      actions.push_back(Message{host, in::AttachRank{s.command.key}});
      actions.push_back(fx::Stop{s.host, s.stop});
      break;
    case Process::exited:
      if (left_something(s.report)) {
        actions.push_back(Message{host, in::AttachRank{s.command.key}});
      } else {
        actions.push_back(Message{host, in::DetachRank{s.command.key}});
      }
      actions.push_back(fx::Acknowledge{s.host, s.command.key});
      break;
    case Process::lost:
      actions.push_back(
          Message{host, in::DoomRank{s.command.key, s.past.empty() ? "" : s.past.back().message}});
      break;
    default:
      break;
  }
  in::RankStatus status{s.rank, current(s), s.command.generation, s.process, {}, ""};
  if (s.process == Process::exited) status.report = s.report;
  if (s.process == Process::lost && !s.past.empty()) status.why = s.past.back().message;
  actions.push_back(Message{EntityId::group(s.job, s.group), status});
  return actions;
}

void apply(RankState& s, const EventRecord& r) {
  std::visit(Overloaded{
                 [&](const ev::RankSpawning& e) {
                   s.host = e.host;
                   s.command = e.command;
                   s.group = e.command.group;
                   s.process = Process::spawning;
                   s.stop = {};
                   s.pid = s.start_time = 0;
                   s.report = {};
                   s.since = r.at;
                 },
                 [&](const ev::RankRunning& e) {
                   s.process = Process::running;
                   s.pid = e.pid;
                   s.start_time = e.start_time;
                   s.since = r.at;
                 },
                 [&](const ev::RankStopping& e) {
                   s.process = Process::stopping;
                   s.stop = e.command;
                   s.stop_reason = r.reason;
                   s.since = r.at;
                 },
                 [&](const ev::RankExited& e) {
                   s.report = e.report;
                   // The second one of an incarnation only says that what it left behind is gone.
                   if (s.process == Process::exited) return;
                   s.process = Process::exited;
                   s.since = r.at;
                   remember(s, r);
                 },
                 [&](const ev::RankLost&) {
                   s.process = Process::lost;
                   s.since = r.at;
                   remember(s, r);
                 },
                 [&](const ev::EntityQuarantined&) {},
                 [&](const auto& e) {
                   throw BrokenInvariant(std::string(e.kTypeName) + " is not an event of a rank");
                 },
             },
             r.event);
}

}  // namespace regrow
