#include "tests/sim/training.h"

#include <algorithm>

#include "tests/driver/text.h"
#include "tests/sim/checkers.h"

namespace regrow::sim {

void Training::when_alive(Process& p, Duration d, std::function<void(Process&)> run) {
  loop_.after(d, [this, key = p.key(), run = std::move(run)] {
    auto it = processes_.find(key);
    if (it != processes_.end() && it->second->alive && !it->second->dying) run(*it->second);
  });
}

void Training::started(Process& p) {
  processes_[p.key()] = &p;
  p.called = p.command.generation;
  const JobPlan& job = plan(p.key().job);
  Duration start_up = random_.ms(20, std::max<int64_t>(21, job.start_up.us / 1000));
  if (p.command.rejoins) return when_alive(p, start_up, [this](Process& q) { say_join(q); });
  p.member_of = p.command.generation;
  teams_[{p.key().job, p.member_of}].ranks[p.key().rank.value] = &p;
  when_alive(p, start_up, [this](Process& q) { become_ready(q); });
}

// Its collectives break: it leaves the team, now or when it notices, and says that it is ready.
void Training::regroup(Process& p, Generation g) {
  const JobPlan& job = plan(p.key().job);
  if (g <= p.called) return;
  p.called = g;
  if (!job.rejoins || random_.chance(job.never_joins)) return;
  when_alive(p, random_.ms(0, 400), [this, g](Process& q) {
    if (q.called == g && !q.finished) say_join(q);
  });
}

void Training::say_join(Process& p) {
  if (p.stopped) return when_alive(p, Duration::ms(500), [this](Process& q) { say_join(q); });
  bool said = (p.join && p.join->generation == p.called) || p.member_of == p.called;
  if (said) return;
  leave(p);
  p.join = JoinReport{p.key(), p.called, p.step, p.intact};
  said_[{p.key().job, p.called, p.key().rank}] = *p.join;
  joined(p);
}

void Training::leave(Process& p) {
  auto team = teams_.find({p.key().job, p.member_of});
  p.member_of = {};
  p.ready = false;
  if (team == teams_.end()) return;
  auto rank = team->second.ranks.find(p.key().rank.value);
  if (rank == team->second.ranks.end() || rank->second != &p) return;
  team->second.ranks.erase(rank);
  team->second.broken = true;
}

void Training::go(Process& p, const GoCommand& c) {
  if (!p.join || p.join->generation != c.generation) return;
  p.join.reset();
  p.member_of = c.generation;
  TeamId id{p.key().job, c.generation};
  Team& team = teams_[id];
  Process*& seat = team.ranks[p.key().rank.value];
  if (seat != nullptr && seat != &p && seat->alive)
    throw Violation("R-1 two members of one slot: " + fields_text(p.key()));
  seat = &p;
  bool receives = c.source < 0 || p.step != c.source_step || !p.intact;
  if (receives) p.intact = false;
  if (team.broken || team.ranks.size() != c.world_size) return;
  int64_t step = c.source >= 0 ? c.source_step : std::max<int64_t>(c.resume_step, 0);
  loop_.after(random_.ms(5, 800), [this, id, step] { begin(id, step); });
}

// All have the same state.
void Training::begin(TeamId id, int64_t at) {
  Team& team = teams_[id];
  if (team.broken || team.stepping) return;
  team.stepping = true;
  team.step = at;
  for (auto& [rank, p] : team.ranks) {
    p->ready = p->intact = true;
    p->step = at;
  }
  loop_.after(plan(id.first).step_time, [this, id] { step(id); });
}

void Training::forget(Process& p) {
  auto it = processes_.find(p.key());
  if (it != processes_.end() && it->second == &p) processes_.erase(it);
  leave(p);
}

void Training::become_ready(Process& p) {
  JobId id = p.key().job;
  const JobPlan& job = plan(id);
  if (p.stopped) return when_alive(p, Duration::ms(500), [this](Process& q) { become_ready(q); });
  if (p.member_of != p.command.generation) return;  // called away before it was ready
  if (p.key().rank.value == 0 && !p.command.store && thefts_[id] < job.bind_thefts) {
    ++thefts_[id];
    p.report.bind_failed = true;
    return end(p, 1, 0,
               "RuntimeError: The server socket has failed to bind: address already in use");
  }
  p.ready = true;
  TeamId tid{id, p.command.generation};
  Team& team = teams_[tid];
  bool all = team.ranks.size() == p.command.world_size &&
             std::all_of(team.ranks.begin(), team.ranks.end(),
                         [](const auto& r) { return r.second->ready; });
  if (!all || team.broken || team.stepping) return;
  begin(tid, std::max<int64_t>(p.command.resume_step, 0));
}

void Training::step(TeamId id) {
  Team& team = teams_[id];
  const JobPlan& job = plan(id.first);
  if (team.broken) return;
  bool waits = std::any_of(team.ranks.begin(), team.ranks.end(),
                           [](const auto& r) { return r.second->stopped; });
  if (waits) {
    loop_.after(job.step_time, [this, id] { step(id); });
    return;
  }
  ++team.step;
  // One that was given up behind a cut link may still step; it does not speak for its job.
  auto newer = teams_.upper_bound(id);
  if (newer == teams_.end() || newer->first.first != id.first) last_step_[id.first] = loop_.now();
  for (auto& [rank, p] : team.ranks) {
    p->step = team.step;
    p->step_at = loop_.now();
  }
  if (team.step == job.bug_at_step) {
    auto it = team.ranks.begin();
    std::advance(it, team.ranks.size() / 2);
    return end(*it->second, 1, 0, "ValueError: bad batch");
  }
  if (team.step % job.checkpoint_every == 0) save(id, team);
  if (team.step >= job.steps) {
    for (auto& [rank, p] : team.ranks) p->finished = true;
    auto ranks = team.ranks;
    for (auto& [rank, p] : ranks)
      when_alive(*p, random_.ms(0, 400), [this](Process& q) { end(q, 0, 0, ""); });
    return;
  }
  loop_.after(job.step_time, [this, id] { step(id); });
}

// Each rank writes its shard, then rank 0 the marker; whoever dies in between leaves it torn.
void Training::save(TeamId id, const Team& team) {
  const JobPlan& job = plan(id.first);
  int64_t at = team.step;
  uint32_t world = job.spec.ranks;
  for (const auto& [rank, p] : team.ranks) {
    if (random_.chance(job.torn / world)) continue;
    when_alive(*p, random_.ms(0, 150), [this, at, id](Process& q) {
      if (!q.stopped) checkpoints_[id.first][at].shards[q.key().rank.value].insert(q.host);
    });
  }
  auto first = team.ranks.find(0);
  if (first == team.ranks.end()) return;
  when_alive(*first->second, Duration::ms(160), [this, at, id, world](Process& q) {
    Checkpoint& c = checkpoints_[id.first][at];
    if (c.shards.size() == world && !q.stopped) c.marker.insert(q.host);
  });
}

void Training::ended(Process& p) {
  TeamId id{p.key().job, p.member_of};
  auto it = teams_.find(id);
  if (it == teams_.end() || p.finished) return;
  bool stepping = it->second.stepping && !it->second.broken;
  it->second.broken = true;
  const JobPlan& job = plan(id.first);
  auto ranks = it->second.ranks;
  // Some had all that the next step needs and did it, others had not.
  bool ahead = job.rejoins && stepping && it->second.step + 1 < job.steps && random_.chance(0.3);
  for (auto& [rank, peer] : ranks) {
    if (ahead && peer != &p && peer->alive && !peer->dying && random_.chance(0.5))
      peer->step = it->second.step + 1;
  }
  for (auto& [rank, peer] : ranks) {
    if (peer == &p || !peer->alive || peer->dying || peer->finished) continue;
    if (!random_.chance(job.peer_error)) continue;  // stuck in a collective until somebody ends it
    when_alive(*peer, random_.ms(0, 2500), [this](Process& q) {
      if (!q.stopped) end(q, 1, 0, "RuntimeError: Connection closed by peer [10.0.0.7]:4711");
    });
  }
}

std::vector<CheckpointFound> Training::scan(JobId id, const HostName& host) const {
  std::vector<CheckpointFound> found;
  auto job = checkpoints_.find(id);
  if (job == checkpoints_.end()) return found;
  const JobPlan& plan = *plans_.at(id);
  bool shared = plan.spec.checkpoint.storage == StorageKind::shared;
  for (auto it = job->second.rbegin(); it != job->second.rend() && found.size() < 16; ++it) {
    CheckpointFound f;
    f.step = it->first;
    f.path = plan.spec.checkpoint.directory + "/step_" + std::to_string(f.step);
    for (const auto& [rank, where] : it->second.shards) {
      if (shared || where.count(host) != 0) f.shards.push_back(rank);
    }
    if (f.shards.empty()) continue;
    f.marker = shared ? !it->second.marker.empty() : it->second.marker.count(host) != 0;
    f.complete = f.shards.size() == plan.spec.ranks && f.marker;
    if (!f.complete)
      f.problem = "shards " + std::to_string(f.shards.size()) + "/" +
                  std::to_string(plan.spec.ranks) + (f.marker ? "" : ", marker missing");
    found.push_back(std::move(f));
  }
  return found;
}

bool Training::complete(JobId id, int64_t step, const std::vector<HostName>& host_of_rank) const {
  auto job = checkpoints_.find(id);
  if (job == checkpoints_.end() || job->second.count(step) == 0) return false;
  const Checkpoint& c = job->second.at(step);
  const JobPlan& plan = *plans_.at(id);
  if (plan.spec.checkpoint.storage == StorageKind::shared)
    return c.shards.size() == plan.spec.ranks && !c.marker.empty();
  for (uint32_t r = 0; r < plan.spec.ranks; ++r) {
    auto shard = c.shards.find(r);
    if (shard == c.shards.end() || shard->second.count(host_of_rank.at(r)) == 0) return false;
  }
  return !c.marker.empty();
}

int64_t Training::newest_complete(JobId id) const {
  auto job = checkpoints_.find(id);
  if (job == checkpoints_.end()) return -1;
  for (auto it = job->second.rbegin(); it != job->second.rend(); ++it) {
    if (it->second.shards.size() == plans_.at(id)->spec.ranks && !it->second.marker.empty())
      return it->first;
  }
  return -1;
}

const JoinReport* Training::said(JobId job, Generation g, RankIndex rank) const {
  auto it = said_.find({job, g, rank});
  return it == said_.end() ? nullptr : &it->second;
}

Time Training::last_step(JobId job) const {
  auto it = last_step_.find(job);
  return it == last_step_.end() ? Time{} : it->second;
}

}  // namespace regrow::sim
