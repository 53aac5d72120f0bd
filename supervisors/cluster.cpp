// The cluster: job ids, device leases, and what placement may use. Invariants: D-2, O-2, A-1.
#include <algorithm>

#include "supervisors/machines.h"
#include "supervisors/placement.h"

namespace regrow {
namespace {

using T = Turn<ClusterState>;

template <class Entries>
auto* find_job(Entries& jobs, JobId id) {
  auto it = std::lower_bound(jobs.begin(), jobs.end(), id,
                             [](const JobEntry& e, JobId j) { return e.job < j; });
  return it != jobs.end() && it->job == id ? &*it : nullptr;
}

HostEntry& host_entry(ClusterState& s, const HostName& host) {
  auto it = std::lower_bound(s.hosts.begin(), s.hosts.end(), host,
                             [](const HostEntry& e, const HostName& h) { return e.host < h; });
  if (it == s.hosts.end() || it->host != host)
    it = s.hosts.insert(it, HostEntry{host, false, "not seen yet", {}});
  return *it;
}

const DeviceView* find_device(const ClusterState& s, const HostName& host,
                              const DeviceName& device) {
  auto it = std::lower_bound(s.hosts.begin(), s.hosts.end(), host,
                             [](const HostEntry& e, const HostName& h) { return e.host < h; });
  if (it == s.hosts.end() || it->host != host) return nullptr;
  for (const DeviceView& d : it->devices) {
    if (d.name == device) return &d;
  }
  return nullptr;
}

bool contains(const std::vector<RankIndex>& ranks, RankIndex rank) {
  return std::find(ranks.begin(), ranks.end(), rank) != ranks.end();
}

void sort_leases(std::vector<Lease>& leases) {
  std::sort(leases.begin(), leases.end(), [](const Lease& a, const Lease& b) {
    return std::tie(a.job, a.rank, a.grant, a.host) < std::tie(b.job, b.rank, b.grant, b.host);
  });
}

std::vector<Placement> granted(const ClusterState& s, JobId job, uint32_t grant) {
  std::vector<Placement> placements;
  for (const Lease& lease : s.leases) {
    if (lease.job == job && lease.grant == grant && !lease.dirty)
      placements.push_back({lease.rank, lease.host, lease.devices});
  }
  return placements;
}

// Is it time to tell a job once more what is missing, now that it is something else?
bool may_tell(const T& t, const ClusterLive& live, const WaitingGrant& want) {
  if (want.reason.empty()) return true;  // not in line yet
  auto told = live.told_at.find(want.job);
  return told == live.told_at.end() ||
         t.now().time >= t.now().deadline(told->second, kTellWaitingAfter);
}

bool try_grant(T& t, ClusterLive& live, const WaitingGrant& want) {
  const JobEntry* job = find_job(t.state().jobs, want.job);
  if (job == nullptr) return false;
  PlacementRequest request{want.job,   job->devices,     job->ranks_per_host,
                           want.ranks, want.avoid_hosts, want.dirty};
  PlacementResult result = place(t.state(), request);
  if (!result.placements.empty()) {
    t.record(ev::DevicesGranted{want.job, want.grant, result.placements, want.dirty},
             result.reason);
    t.send(EntityId::job(want.job), in::Granted{want.grant, result.placements});
    return true;
  }
  std::string told = want.reason;
  if (result.reason != told && may_tell(t, live, want)) {
    told = result.reason;
    live.told_at[want.job] = t.now().time;
    t.record(ev::GrantWaiting{want.job, want.grant, want.ranks, want.avoid_hosts, want.dirty},
             told);
  }
  if (result.reason == told) {
    live.outdated.erase(want.job);
  } else {
    live.outdated.insert(want.job);
  }
  t.send(EntityId::job(want.job), in::GrantDelayed{want.grant, told});
  return false;
}

// First come, first served; a smaller request behind one that cannot be met goes ahead.
void serve_line(T& t, ClusterLive& live) {
  auto line = t.state().waiting;
  live.outdated.clear();
  std::erase_if(live.told_at, [&](const auto& told) {
    return std::none_of(line.begin(), line.end(),
                        [&](const WaitingGrant& w) { return w.job == told.first; });
  });
  for (const WaitingGrant& want : line) try_grant(t, live, want);
}

void on_submit(T& t, const in::Submit& m) {
  if (!m.key.empty()) {
    for (const JobEntry& job : t.state().jobs) {
      if (job.key == m.key)
        return t.reply(true,
                       "already submitted with this key as job/" + std::to_string(job.job.value),
                       job.job);
    }
  }
  JobId id{t.state().next_job};
  t.record(ev::JobAccepted{id, m.key, m.spec}, "submitted by " + t.envelope().by.who);
  t.reply(true, "accepted", id);
}

void on_request(T& t, ClusterLive& live, const in::RequestGrant& m) {
  auto placements = granted(t.state(), m.job, m.grant);
  if (!placements.empty()) {
    t.decision().reissue =
        true;  // trouble with these devices was told before the job knew it has them
    return t.send(EntityId::job(m.job), in::Granted{m.grant, placements});
  }
  WaitingGrant want{m.job, m.grant, m.ranks, m.avoid_hosts, m.dirty, ""};
  for (const WaitingGrant& w : t.state().waiting) {
    if (w.job == m.job && w.grant > m.grant) return t.ignore("a newer grant is being waited for");
    if (w.job == m.job && w.grant == m.grant) want = w;
  }
  const JobEntry* job = find_job(t.state().jobs, m.job);
  if (job == nullptr || job->ended) return t.ignore("no such job, or it has ended");
  try_grant(t, live, want);
}

void on_release(T& t, ClusterLive& live, const in::ReleaseDevices& m) {
  std::vector<RankIndex> ranks, dirty;
  for (const Lease& lease : t.state().leases) {
    if (lease.job != m.job || lease.grant > m.grant || lease.dirty) continue;
    ranks.push_back(lease.rank);
    if (contains(m.dirty, lease.rank)) dirty.push_back(lease.rank);
  }
  bool waits =
      std::any_of(t.state().waiting.begin(), t.state().waiting.end(),
                  [&](const WaitingGrant& w) { return w.job == m.job && w.grant <= m.grant; });
  if (!ranks.empty() || waits) {
    t.record(ev::DevicesReleased{m.job, ranks, dirty},
             dirty.empty() ? "the job gave its devices back"
                           : "the job gave its devices back; some wait for their host to be clean");
    serve_line(t, live);
  }
  t.send(EntityId::job(m.job), in::DevicesFreed{m.grant});
}

void on_host_view(T& t, ClusterLive& live, const in::HostView& m) {
  for (const HostEntry& host : t.state().hosts) {
    if (host.host == m.host && host.usable == m.usable && host.why_not == m.why_not)
      return t.ignore("nothing new");
  }
  t.record(ev::HostNoted{m.host, m.usable, m.why_not},
           m.usable ? "host " + m.host.value + " can be used"
                    : "host " + m.host.value + ": " + m.why_not);
  serve_line(t, live);
}

void on_device(T& t, ClusterLive& live, const in::DeviceChanged& m) {
  const DeviceView* known = find_device(t.state(), m.host, m.device.name);
  if (known != nullptr && *known == m.device) return t.ignore("nothing new");
  std::string name = m.host.value + "/" + m.device.name.value;
  t.record(ev::DeviceNoted{m.host, m.device},
           m.device.usable ? name + " can be used" : name + ": " + m.device.why_not);
  serve_line(t, live);
}

void on_clean(T& t, ClusterLive& live, const in::CleanLease& m) {
  for (const Lease& lease : t.state().leases) {
    if (lease.job == m.job && lease.rank == m.rank && lease.host == m.host && lease.dirty) {
      t.record(ev::LeaseCleaned{m.job, m.rank, m.host},
               "nothing of the rank is left on " + m.host.value);
      return serve_line(t, live);
    }
  }
  t.ignore("no dirty lease for it");
}

}  // namespace

void decide(Turn<ClusterState>& t, ClusterLive& live) {
  std::visit(
      Overloaded{
          [&](const in::StartTerm& m) {
            t.record(ev::ControllerStarted{m.cluster_id, m.epoch, m.version},
                     "controller started, epoch " + std::to_string(m.epoch.number));
          },
          [&](const in::Resumed&) {},  // jobs ask again for what they wait for
          [&](const in::Submit& m) { on_submit(t, m); },
          [&](const in::JobTakenOver& m) {
            const JobEntry* job = find_job(t.state().jobs, m.job);
            if (job == nullptr || job->handed_over) return t.ignore("known");
            t.record(ev::JobHandedOver{m.job}, "the job's own supervisor has journaled its spec");
          },
          [&](const in::JobFinished& m) {
            const JobEntry* job = find_job(t.state().jobs, m.job);
            if (job == nullptr || job->ended) return t.ignore("known");
            t.record(ev::JobEndNoted{m.job, m.phase}, "the job " + std::string(to_string(m.phase)));
          },
          [&](const in::RequestGrant& m) { on_request(t, live, m); },
          [&](const in::ReleaseDevices& m) { on_release(t, live, m); },
          [&](const in::HostView& m) { on_host_view(t, live, m); },
          [&](const in::DeviceChanged& m) { on_device(t, live, m); },
          [&](const in::CleanLease& m) { on_clean(t, live, m); },
          [&](const in::Tick&) { serve_line(t, live); },
          [&](const auto& m) { t.ignore(std::string(m.kTypeName) + " is not for the cluster"); },
      },
      t.envelope().input);
}

// When the jobs whose news is old may be told again.
std::optional<Time> deadline(const ClusterState& s, const ClusterLive& live, Now now) {
  std::optional<Time> first;
  for (const WaitingGrant& w : s.waiting) {
    if (!live.outdated.count(w.job)) continue;
    auto told = live.told_at.find(w.job);
    Time at = told == live.told_at.end() ? now.time : now.deadline(told->second, kTellWaitingAfter);
    if (!first || at < *first) first = at;
  }
  return first;
}

std::vector<Action> pending(const ClusterState& s) {
  std::vector<Action> actions;
  for (const JobEntry& job : s.jobs) {
    if (!job.handed_over && !job.spec.empty())
      actions.push_back(
          Message{EntityId::job(job.job), in::CreateJob{job.spec[0], job.submitted_by}});
  }
  for (const Lease& lease : s.leases) {
    if (lease.dirty) {
      actions.push_back(Message{EntityId::host(lease.host), in::CheckLease{lease.job, lease.rank}});
      continue;
    }
    for (const DeviceName& name : lease.devices) {
      const DeviceView* device = find_device(s, lease.host, name);
      if (device != nullptr && !device->usable)
        actions.push_back(Message{EntityId::job(lease.job),
                                  in::DeviceTrouble{lease.host, name, device->why_not}});
    }
  }
  return actions;
}

void apply(ClusterState& s, const EventRecord& r) {
  std::visit(
      Overloaded{
          [&](const ev::ControllerStarted& e) {
            s.cluster_id = e.cluster_id;
            s.epoch = e.epoch;
          },
          [&](const ev::NumbersRaised& e) {
            s.next_job = std::max(s.next_job, e.next_job);
            if (e.epoch > s.epoch.number) s.epoch = {e.epoch, 0};
          },
          [&](const ev::JobAccepted& e) {
            JobEntry entry{e.job, e.spec.name,   e.key,    r.by.who,       false,
                           false, Phase::queued, {e.spec}, e.spec.devices, e.spec.ranks_per_host};
            s.jobs.push_back(std::move(entry));
            s.next_job = e.job.value + 1;
          },
          [&](const ev::JobHandedOver& e) {
            if (JobEntry* job = find_job(s.jobs, e.job)) {
              job->handed_over = true;
              job->spec.clear();
            }
          },
          [&](const ev::DevicesGranted& e) {
            std::vector<Lease> kept;
            for (Lease& lease : s.leases) {
              bool mine = lease.job == e.job && !lease.dirty &&
                          std::any_of(e.placements.begin(), e.placements.end(),
                                      [&](const Placement& p) { return p.rank == lease.rank; });
              if (mine && !contains(e.dirty, lease.rank)) continue;
              if (mine) lease.dirty = true;
              kept.push_back(std::move(lease));
            }
            for (const Placement& p : e.placements)
              kept.push_back({e.job, p.rank, e.grant, p.host, p.devices, false});
            s.leases = std::move(kept);
            sort_leases(s.leases);
            std::erase_if(s.waiting, [&](const WaitingGrant& w) {
              return w.job == e.job && w.grant <= e.grant;
            });
          },
          [&](const ev::GrantWaiting& e) {
            WaitingGrant want{e.job, e.grant, e.ranks, e.avoid_hosts, e.dirty, r.reason};
            for (Lease& l : s.leases) {
              if (l.job == e.job && l.grant < e.grant && contains(e.dirty, l.rank)) l.dirty = true;
            }
            for (WaitingGrant& w : s.waiting) {
              if (w.job == e.job) {
                w = want;
                return;
              }
            }
            s.waiting.push_back(std::move(want));
          },
          [&](const ev::DevicesReleased& e) {
            std::erase_if(s.leases, [&](const Lease& l) {
              return l.job == e.job && !l.dirty && contains(e.ranks, l.rank) &&
                     !contains(e.dirty, l.rank);
            });
            for (Lease& l : s.leases) {
              if (l.job == e.job && contains(e.dirty, l.rank)) l.dirty = true;
            }
            std::erase_if(s.waiting, [&](const WaitingGrant& w) { return w.job == e.job; });
          },
          [&](const ev::LeaseCleaned& e) {
            std::erase_if(s.leases, [&](const Lease& l) {
              return l.dirty && l.job == e.job && l.rank == e.rank && l.host == e.host;
            });
          },
          [&](const ev::HostNoted& e) {
            HostEntry& host = host_entry(s, e.host);
            host.usable = e.usable;
            host.why_not = e.why_not;
          },
          [&](const ev::DeviceNoted& e) {
            HostEntry& host = host_entry(s, e.host);
            for (DeviceView& d : host.devices) {
              if (d.name == e.device.name) {
                d = e.device;
                return;
              }
            }
            host.devices.push_back(e.device);
            std::sort(host.devices.begin(), host.devices.end(),
                      [](const DeviceView& a, const DeviceView& b) { return a.name < b.name; });
          },
          [&](const ev::JobEndNoted& e) {
            if (JobEntry* job = find_job(s.jobs, e.job)) {
              job->ended = true;
              job->phase = e.phase;
            }
          },
          [&](const ev::EntityQuarantined&) {},
          [&](const auto& e) {
            throw BrokenInvariant(std::string(e.kTypeName) + " is not an event of the cluster");
          },
      },
      r.event);
}

}  // namespace regrow
