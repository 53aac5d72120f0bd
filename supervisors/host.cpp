// A host: is its agent reachable, may it be used, and what may still run there.
// Invariants: F-1, F-2, O-1, A-1.
#include <algorithm>
#include <set>

#include "supervisors/machines.h"

namespace regrow {
namespace {

using T = Turn<HostState>;

template <class State>
auto* find_attached(State& s, const IncarnationKey& key) {
  auto it = std::find_if(s.attached.begin(), s.attached.end(),
                         [&](const AttachedRank& a) { return a.key == key; });
  return it == s.attached.end() ? nullptr : &*it;
}

EntityId rank_of(const IncarnationKey& key) { return EntityId::rank(key.job, key.rank); }

bool is_final(ProcessState state) {
  return state == ProcessState::exited || state == ProcessState::never_started ||
         state == ProcessState::gone;
}

std::string seconds(Duration d) {
  int64_t tenths = d.us / 100000;
  return std::to_string(tenths / 10) + "." + std::to_string(tenths % 10) + " s";
}

// Tells every attached rank what the agent knows of it, and the agent what to keep and what to
// kill.
void answer_inventory(T& t, HostLive& live, const std::vector<RankReport>& reports, bool rebooted) {
  fx::AnswerInventory answer{t.state().name, live.session, {}, {}};
  live.unclaimed.clear();
  std::set<IncarnationKey> reported;
  std::vector<IncarnationKey> unknown;
  for (const RankReport& report : reports) {
    reported.insert(report.key);
    const AttachedRank* attached = find_attached(t.state(), report.key);
    if (is_final(report.state)) {
      // The rank journals it and acknowledges, also one that this host has not heard of yet.
      t.send(rank_of(report.key), in::InventoryReport{t.state().name, report, live.session});
    } else if (attached == nullptr) {
      answer.keep.push_back(report.key);
      unknown.push_back(report.key);
      live.unclaimed.push_back(report);
    } else if (attached->doomed) {
      answer.kill.push_back(report.key);
    } else {
      answer.keep.push_back(report.key);
      t.send(rank_of(report.key), in::InventoryReport{t.state().name, report, live.session});
    }
  }
  std::sort(unknown.begin(), unknown.end());
  if (unknown != t.state().unknown)
    t.record(ev::UnknownRanksSeen{unknown},
             unknown.empty()
                 ? "no unknown processes any more"
                 : std::to_string(unknown.size()) +
                       " incarnations run here that this journal does not know; left alone");
  auto attached = t.state().attached;
  for (const AttachedRank& a : attached) {
    if (reported.count(a.key)) continue;
    RankReport report;
    report.key = a.key;
    report.state = rebooted ? ProcessState::gone : ProcessState::unknown;
    if (rebooted) report.group_gone_us = t.now().time.us;
    report.message = rebooted ? "the host was rebooted" : "the agent has no record of it";
    t.send(rank_of(a.key), in::InventoryReport{t.state().name, report, live.session});
    // An order to start it may be waiting behind this answer. It is over: the agent must not start
    // it now.
    if (rebooted) answer.kill.push_back(a.key);
  }
  live.asked_at = t.now().time;
  t.effect(answer);
}

void on_connected(T& t, HostLive& live, const in::AgentConnected& m) {
  const HostState& s = t.state();
  bool other_machine = !s.uid.empty() && s.uid != m.hello.uid;
  if (other_machine && live.session.value != 0) {
    t.effect(
        fx::DropSession{m.session, "another agent is connected as host " + s.name.value +
                                       " with a different identity; give this one another --name"});
    return t.ignore("a second machine claims this host's name");
  }
  if (s.uid.empty() || other_machine)
    t.record(ev::HostRegistered{m.hello.uid, m.hello.address},
             other_machine ? "another machine took over the name " + s.name.value : "first seen");
  live.session = m.session;
  live.last_heard = t.now().time;
  bool rebooted = other_machine || (!s.boot_id.empty() && s.boot_id != m.hello.boot_id);
  if (s.link != HostLink::up || s.boot_id != m.hello.boot_id || s.address != m.hello.address)
    t.record(ev::HostLinkChanged{HostLink::up, m.hello.boot_id, m.hello.address},
             rebooted ? "the agent connected after a reboot" : "the agent connected");
  std::set<std::string> present;
  for (const DeviceReport& device : m.hello.devices) {
    present.insert(device.name.value);
    t.send(EntityId::device(s.name, device.name), in::DeviceSeen{device, live.session, true});
  }
  for (const DeviceName& known : t.state().devices) {
    if (!present.count(known.value))
      t.send(EntityId::device(s.name, known), in::DeviceMissing{live.session});
  }
  for (const DeviceReport& device : m.hello.devices) {
    const auto& devices = t.state().devices;
    if (std::find(devices.begin(), devices.end(), device.name) == devices.end())
      t.record(ev::HostDeviceListed{device.name}, "the agent has a device " + device.name.value);
  }
  // Another machine's processes are not ours to judge: to it everything of the old one is gone.
  answer_inventory(t, live, m.hello.ranks, rebooted);
}

bool has_doomed(const HostState& s) {
  return std::any_of(s.attached.begin(), s.attached.end(),
                     [](const AttachedRank& a) { return a.doomed; });
}

// When the agent is told once more what to kill; nothing while there is nobody to tell.
std::optional<Time> kill_again_at(const HostState& s, const HostLive& live, Now now) {
  if (s.link != HostLink::up || live.session.value == 0 || !has_doomed(s)) return std::nullopt;
  return now.deadline(live.asked_at, kAskAgainAfter);
}

// What is doomed is to be killed, the rest is to be kept.
void answer_again(T& t, HostLive& live) {
  fx::AnswerInventory answer{t.state().name, live.session, {}, {}};
  for (const AttachedRank& a : t.state().attached)
    (a.doomed ? answer.kill : answer.keep).push_back(a.key);
  live.asked_at = t.now().time;
  t.effect(answer);
}

void on_heartbeat(T& t, HostLive& live, const in::AgentHeartbeat& m) {
  if (live.session.value == 0) {
    // This supervisor was made anew and the connection was not: only a new one brings an inventory.
    t.effect(fx::DropSession{
        m.session, "the controller knows nothing of this connection any more; connect again"});
    return t.ignore("a heartbeat of a connection that said no hello");
  }
  if (m.session != live.session) return t.ignore("a heartbeat of an older connection");
  Duration silent = t.now().time - live.last_heard;
  live.last_heard = t.now().time;
  if (t.state().link == HostLink::up) return;
  t.record(ev::HostLinkChanged{HostLink::up, "", ""}, "heard again after " + seconds(silent));
  answer_again(t, live);
}

void on_tick(T& t, HostLive& live) {
  const HostState& s = t.state();
  if (auto at = kill_again_at(s, live, t.now()); at && t.now().time >= *at) answer_again(t, live);
  Time now = t.now().time;
  Duration silent = now - std::max(live.last_heard, t.now().floor);
  std::string heard = "no heartbeat for " + seconds(silent);
  if (s.link == HostLink::up && silent >= kHostSuspectAfter) {
    t.record(ev::HostLinkChanged{HostLink::suspect, "", ""}, heard);
  } else if (s.link == HostLink::suspect && silent >= kHostUnreachableAfter) {
    t.record(ev::HostLinkChanged{HostLink::unreachable, "", ""},
             heard + "; its ranks may still run");
  } else if (s.link == HostLink::unreachable && silent >= kHostLostAfter) {
    t.record(ev::HostLinkChanged{HostLink::lost, "", ""}, heard);
  } else {
    t.ignore("no deadline has come");
  }
}

void on_admin(T& t, const in::SetHostAdmin& m) {
  if (t.state().admin == m.admin && t.state().admin_reason == m.reason)
    return t.reply(
        true, "host " + t.state().name.value + " is already " + std::string(to_string(m.admin)));
  t.record(ev::HostAdminChanged{m.admin}, m.reason);
  t.reply(true, "host " + t.state().name.value + " is " + std::string(to_string(m.admin)));
}

void on_attach(T& t, HostLive& live, const in::AttachRank& m) {
  if (find_attached(t.state(), m.key) != nullptr) return t.ignore("already attached");
  t.record(ev::RankAttached{m.key}, "starting here");
  for (const RankReport& report : live.unclaimed) {
    if (report.key == m.key)
      t.send(rank_of(m.key), in::InventoryReport{t.state().name, report, live.session});
  }
}

bool anything_left(const HostState& s, JobId job, RankIndex rank) {
  return std::any_of(s.attached.begin(), s.attached.end(),
                     [&](const AttachedRank& a) { return a.key.job == job && a.key.rank == rank; });
}

void on_detach(T& t, const in::DetachRank& m) {
  if (find_attached(t.state(), m.key) != nullptr)
    t.record(ev::RankDetached{m.key}, "nothing of it is left here");
  if (anything_left(t.state(), m.key.job, m.key.rank))
    return t.ignore("another incarnation of this slot is still here");
  t.send(EntityId::cluster(), in::CleanLease{t.state().name, m.key.job, m.key.rank});
}

void on_doom(T& t, HostLive& live, const in::DoomRank& m) {
  const AttachedRank* attached = find_attached(t.state(), m.key);
  if (attached == nullptr || attached->doomed) return t.ignore("not here, or already to be killed");
  t.record(ev::RankDoomed{m.key}, m.why);
  if (live.session.value != 0 && t.state().link == HostLink::up) answer_again(t, live);
}

}  // namespace

void decide(Turn<HostState>& t, HostLive& live) {
  std::visit(Overloaded{
                 [&](const in::AgentConnected& m) { on_connected(t, live, m); },
                 [&](const in::AgentGone& m) {
                   if (m.session == live.session) live.session = {};
                   t.ignore("connection ended: " + m.why);
                 },
                 [&](const in::AgentHeartbeat& m) { on_heartbeat(t, live, m); },
                 [&](const in::Tick&) { on_tick(t, live); },
                 [&](const in::Resumed&) { live.last_heard = t.now().time; },
                 [&](const in::SetHostAdmin& m) { on_admin(t, m); },
                 [&](const in::NoteFault& m) {
                   t.record(ev::FaultInjected{m.what}, m.what + ", on purpose");
                   t.reply(true, m.what);
                 },
                 [&](const in::AttachRank& m) { on_attach(t, live, m); },
                 [&](const in::CheckLease& m) {
                   if (anything_left(t.state(), m.job, m.rank)) return t.ignore("still here");
                   t.send(EntityId::cluster(), in::CleanLease{t.state().name, m.job, m.rank});
                 },
                 [&](const in::DetachRank& m) { on_detach(t, m); },
                 [&](const in::DoomRank& m) { on_doom(t, live, m); },
                 [&](const auto& m) { t.ignore(std::string(m.kTypeName) + " is not for a host"); },
             },
             t.envelope().input);
}

std::optional<Time> deadline(const HostState& s, const HostLive& live, Now now) {
  switch (s.link) {
    case HostLink::up: {
      Time suspect = now.deadline(live.last_heard, kHostSuspectAfter);
      auto kill = kill_again_at(s, live, now);
      return kill ? std::min(*kill, suspect) : suspect;
    }
    case HostLink::suspect:
      return now.deadline(live.last_heard, kHostUnreachableAfter);
    case HostLink::unreachable:
      return now.deadline(live.last_heard, kHostLostAfter);
    default:
      return std::nullopt;
  }
}

std::vector<Action> pending(const HostState& s) {
  std::vector<Action> actions;
  if (s.link == HostLink::never) return actions;
  std::string why_not;
  if (s.health == HostHealth::quarantined) {
    why_not = "quarantined";
  } else if (s.admin != HostAdmin::in_service) {
    why_not = std::string(to_string(s.admin)) + " by " + s.admin_by + " (" + s.admin_reason + ")";
  } else if (s.link != HostLink::up) {
    why_not = std::string(to_string(s.link));
  }
  actions.push_back(Message{EntityId::cluster(), in::HostView{s.name, why_not.empty(), why_not}});
  JobId last;
  for (const AttachedRank& a : s.attached) {
    if (a.key.job == last) continue;
    last = a.key.job;
    actions.push_back(Message{EntityId::job(last), in::HostLinkNews{s.name, s.link, s.link_since}});
  }
  return actions;
}

void apply(HostState& s, const EventRecord& r) {
  auto by_key = [](const auto& a, const auto& b) { return a.key < b.key; };
  std::visit(Overloaded{
                 [&](const ev::HostRegistered& e) {
                   s.uid = e.uid;
                   s.address = e.address;
                   s.boot_id.clear();
                 },
                 [&](const ev::HostDeviceListed& e) { s.devices.push_back(e.device); },
                 [&](const ev::HostLinkChanged& e) {
                   // Since when it is in or out of reach; suspect and unreachable are one silence.
                   if (s.link != HostLink::up || e.link != HostLink::up) {
                     bool turned = (s.link == HostLink::up) != (e.link == HostLink::up);
                     if (turned) s.link_since = r.at;
                   }
                   s.link = e.link;
                   if (!e.boot_id.empty()) s.boot_id = e.boot_id;
                   if (!e.address.empty()) s.address = e.address;
                 },
                 [&](const ev::HostAdminChanged& e) {
                   s.admin = e.admin;
                   s.admin_reason = r.reason;
                   s.admin_by = r.by.who;
                 },
                 [&](const ev::RankAttached& e) {
                   s.attached.push_back({e.key, false});
                   std::sort(s.attached.begin(), s.attached.end(), by_key);
                   std::erase(s.unknown, e.key);
                 },
                 [&](const ev::RankDoomed& e) {
                   if (AttachedRank* a = find_attached(s, e.key)) a->doomed = true;
                 },
                 [&](const ev::RankDetached& e) {
                   std::erase_if(s.attached, [&](const AttachedRank& a) { return a.key == e.key; });
                 },
                 [&](const ev::UnknownRanksSeen& e) { s.unknown = e.keys; },
                 [&](const ev::EntityQuarantined&) {},
                 [&](const ev::FaultInjected&) {},
                 [&](const auto& e) {
                   throw BrokenInvariant(std::string(e.kTypeName) + " is not an event of a host");
                 },
             },
             r.event);
}

}  // namespace regrow
