#include "tests/driver/controller.h"

namespace regrow::sim {

SimController::SimController(Loop& loop, Outside& outside, Delays delays)
    : loop_(loop), outside_(outside), delays_(std::move(delays)) {}

SimController::Node& SimController::node(const EntityId& id) {
  auto& slot = nodes_[id];
  if (!slot) slot = std::make_unique<Node>(id);
  return *slot;
}

const EntityHost* SimController::find(const EntityId& id) const {
  auto it = nodes_.find(id);
  return it == nodes_.end() ? nullptr : &it->second->host;
}

std::vector<EntityId> SimController::entities() const {
  std::vector<EntityId> ids;
  for (const auto& [id, node] : nodes_) ids.push_back(id);
  return ids;
}

void SimController::start(Epoch epoch, Random* shuffle) {
  ++life_;
  alive_ = true;
  open_ = false;
  nodes_.clear();
  last_delivery_.clear();
  flushing_ = false;
  floor_ = loop_.now();
  stalled_until_ = {};
  stalled_.clear();
  for (const EventRecord& record : journal_.records) node(record.entity).host.replay(record);
  shuffle_ = shuffle;
  term_seq_ = journal_.records.size() + 1;
  deliver({EntityId::cluster(), {}, {}, {"regrow", "system"}, in::StartTerm{"sim", epoch, "test"}});
}

void SimController::restart(const EntityId& id) {
  if (!open_ || nodes_.find(id) == nodes_.end() || node(id).dead) return;
  node(id).dead = true;
  dead_.push_back(id);
  if (all_durable()) revive();
}

void SimController::revive() {
  for (const EntityId& id : dead_) {
    nodes_.erase(id);
    bool known = false;
    for (const EventRecord& record : journal_.records) {
      if (record.entity != id) continue;
      node(id).host.replay(record);
      known = true;
    }
    if (!known && id == EntityId::cluster()) node(id);
  }
  dead_.clear();
  resume();
}

void SimController::resume() {
  open_ = true;
  std::vector<EntityId> ids = entities();
  if (shuffle_ != nullptr) shuffle_->shuffle(ids);
  for (const EntityId& id : ids) deliver({id, {}, {}, {}, in::Resumed{}});
}

void SimController::crash(uint64_t keep) {
  keep = std::clamp<uint64_t>(keep, journal_.durable, journal_.records.size());
  while (journal_.durable < keep) outside_.durable(journal_.records[journal_.durable++]);
  journal_.records.resize(keep);
  ++life_;
  alive_ = open_ = false;
  dead_.clear();
  nodes_.clear();
}

void SimController::guarded(std::function<void()> run) {
  if (loop_.now() >= stalled_until_ && stalled_.empty()) return run();
  stalled_.push_back(std::move(run));
  if (stalled_.size() == 1) wake_after_stall();
}

void SimController::wake_after_stall() {
  loop_.at(stalled_until_, [this, life = life_] {
    if (life != life_ || !alive_) return;
    if (loop_.now() < stalled_until_) return wake_after_stall();
    while (!stalled_.empty() && alive_ && life == life_) {
      auto run = std::move(stalled_.front());
      run();
      if (!stalled_.empty()) stalled_.pop_front();
    }
  });
}

void SimController::later(const std::string& from, const std::string& to,
                          std::function<void()> run) {
  Time at = loop_.now() + (delays_.message ? delays_.message() : Duration{});
  Time& last = last_delivery_[{from, to}];
  last = at = std::max(at, last);
  loop_.at(at, [this, life = life_, run = std::move(run)]() mutable {
    if (life != life_ || !alive_) return;
    guarded(std::move(run));
  });
}

void SimController::post(const std::string& sender, Envelope envelope) {
  if (!open_) return;
  std::string to = envelope.to.path;
  later(sender, to, [this, envelope = std::move(envelope)] { deliver(envelope); });
}

void SimController::stall(Duration d) {
  stalled_until_ = std::max(stalled_until_, loop_.now() + d);
  if (stalled_until_ - loop_.now() >= Duration::seconds(1)) floor_ = stalled_until_;
}

void SimController::deliver(const Envelope& envelope) {
  auto it = nodes_.find(envelope.to);
  if (it == nodes_.end() ? !may_create_entity(envelope.input) : it->second->dead) {
    ++dropped_;
    return;
  }
  Node& n = node(envelope.to);
  Outbox out = n.host.handle(envelope, now());
  outside_.handled(n.host, envelope, out);
  process(n, std::move(out));
  arm(n);
}

void SimController::process(Node& n, Outbox out) {
  for (EventRecord& record : out.records) {
    record.seq = journal_.records.size() + 1;
    journal_.records.push_back(record);
    outside_.appended(record);
  }
  for (Envelope& envelope : out.messages) {
    std::string to = envelope.to.path;
    later(n.host.id().path, to, [this, envelope = std::move(envelope)] { deliver(envelope); });
  }
  if (!out.records.empty()) flush();
  for (const Effect& effect : out.effects) outside_.perform(effect);
  for (const Reply& reply : out.replies) outside_.answer(reply);
}

// One batch at a time, as the journal's thread does: what is decided meanwhile waits for the next.
void SimController::flush() {
  if (flushing_ || journal_.durable == journal_.records.size()) return;
  flushing_ = true;
  Duration takes = delays_.write ? delays_.write() : Duration{};
  loop_.after({}, [this, takes, life = life_] {
    if (life != life_ || !alive_) return;
    uint64_t upto = journal_.records.size();
    loop_.at(std::max(loop_.now() + takes, slow_until_), [this, upto, life] {
      if (life == life_ && alive_) guarded([this, upto] { acknowledge(upto); });
    });
  });
}

void SimController::acknowledge(uint64_t upto) {
  std::map<EntityId, uint64_t> newest;
  while (journal_.durable < upto) {
    const EventRecord& record = journal_.records[journal_.durable++];
    newest[record.entity] = record.n;
    outside_.durable(record);
  }
  for (const auto& [id, n] : newest) {
    later("journal", id.path, [this, id = id, n = n] {
      Node& owner = node(id);
      if (!owner.dead) process(owner, owner.host.durable(n));
    });
  }
  flushing_ = false;
  flush();
  if (!open_ && upto >= term_seq_) resume();
  if (!dead_.empty() && all_durable()) revive();
}

void SimController::arm(Node& n) {
  std::optional<Time> wake = n.host.wake_at(now());
  if (!wake || (n.armed && *n.armed <= *wake)) return;
  n.armed = std::max(*wake, loop_.now());
  loop_.at(*n.armed, [this, life = life_, id = n.host.id(), at = *n.armed] {
    if (life != life_ || !alive_) return;
    guarded([this, id, at] {
      Node& owner = node(id);
      if (owner.dead || owner.armed != at) return;  // an earlier one came in between
      owner.armed.reset();
      tick(id);
    });
  });
}

void SimController::tick(const EntityId& id) {
  Node& n = node(id);
  std::optional<Time> wake = n.host.wake_at(now());
  if (wake && *wake <= loop_.now()) {
    n.ticks_in_place = n.last_tick == loop_.now() ? n.ticks_in_place + 1 : 0;
    n.last_tick = loop_.now();
    if (n.ticks_in_place > 20)
      throw Violation(id.path + " wants a Tick again and again at the same moment");
    deliver({id, {}, {}, {}, in::Tick{}});
  } else {
    arm(n);
  }
}

}  // namespace regrow::sim
