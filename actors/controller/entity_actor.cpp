#include "actors/controller/entity_actor.h"

#include <caf/all.hpp>
#include <utility>

#include "actors/controller/messages.h"
#include "actors/controller/router.h"
#include "actors/controller/vital_actor.h"
#include "actors/log.h"

namespace regrow {
namespace {

using Self = caf::stateful_actor<EntityActorState>*;

void make_child(Self self, const EntityId& id, uint32_t restarts,
                std::shared_ptr<const ChildrenMap> tree, std::shared_ptr<const Envelope> first) {
  auto& st = self->state;
  caf::actor child =
      self->spawn<caf::monitored>(entity_actor, st.context, id, restarts, std::move(tree));
  auto& entry = st.children[id];
  entry.address = child.address();
  entry.restarts = restarts;
  entry.absence.reset();
  // Its first input is in its mailbox before anybody else can find it.
  if (first) self->send(child, msg::Deliver{std::move(first)});
  st.context->directory.set(id, std::move(child), st.host->id());
}

EntityActorState::Child* absent_child(Self self, const EntityId& id) {
  auto it = self->state.children.find(id);
  return it != self->state.children.end() && it->second.absence ? &it->second : nullptr;
}

// Keeps an input for a child that is being made anew.
void wait_for(Self self, EntityActorState::Child& child, std::shared_ptr<const Envelope> envelope) {
  bool hopeless = child.absence == Absence::stays_down || child.waiting.size() >= kMaxWaiting;
  if (hopeless) return refuse(*self->state.context, *envelope);
  child.waiting.push_back(std::move(envelope));
}

void route(Self self, std::shared_ptr<const Envelope> envelope) {
  Context& context = *self->state.context;
  if (auto target = context.directory.find(envelope->to))
    return self->send(*target, msg::Deliver{envelope});
  if (auto* child = absent_child(self, envelope->to))
    return wait_for(self, *child, std::move(envelope));
  auto creator = creator_of(*envelope);
  if (!creator) return refuse(context, *envelope);
  if (*creator == self->state.host->id())
    return make_child(self, envelope->to, 0, nullptr, envelope);
  for (; creator; creator = creator->parent()) {
    if (*creator == self->state.host->id())
      break;  // the creator itself is missing: it was refused before
    if (auto target = context.directory.find(*creator))
      return self->send(*target, msg::Deliver{envelope});
    if (auto* child = absent_child(self, *creator))
      return wait_for(self, *child, std::move(envelope));
  }
  refuse(context, *envelope);
}

void schedule(Self self) {
  auto& st = self->state;
  Now now = st.context->clock.now();
  auto wanted = st.host->wake_at(now);
  if (!wanted || (st.wake_at && *st.wake_at <= *wanted && *st.wake_at > now.time)) return;
  st.wake_at = std::max(*wanted, now.time);
  self->delayed_send(self, std::chrono::microseconds((*st.wake_at - now.time).us),
                     msg::Wake{*st.wake_at});
}

void perform(Self self, Outbox out) {
  Context& context = *self->state.context;
  const std::string& path = self->state.host->id().path;
  if (!out.records.empty()) {
    context.faults.hit("entity.before_append", path);
    auto records = std::make_shared<std::vector<EventRecord>>(std::move(out.records));
    self->send(context.journal, msg::Append{std::move(records), self});
    context.faults.hit("entity.after_append", path);
  }
  for (Envelope& envelope : out.messages)
    route(self, std::make_shared<const Envelope>(std::move(envelope)));
  for (Effect& effect : out.effects)
    self->send(context.effects, msg::Perform{std::make_shared<const Effect>(std::move(effect))});
  for (const Reply& reply : out.replies) {
    context.faults.hit("reply.before_send");
    context.replies.complete(reply);
  }
}

void handle(Self self, const Envelope& envelope) {
  auto& st = self->state;
  st.context->faults.hit("entity.before_input", st.host->id().path);
  bool was_sound = st.host->quarantined().empty();
  Now now = st.context->clock.now();
  Outbox out = st.host->handle(envelope, now);
  if (was_sound && !st.host->quarantined().empty())
    log_error(st.host->id().path + " is quarantined: " + st.host->quarantined());
  perform(self, std::move(out));
  schedule(self);
}

void on_wake(Self self, const msg::Wake& m) {
  auto& st = self->state;
  if (st.wake_at != m.at) return;  // a later or an earlier one was asked for since
  st.wake_at.reset();
  Now now = st.context->clock.now();
  auto wanted = st.host->wake_at(now);
  if (wanted && *wanted <= now.time) {
    handle(self, Envelope{st.host->id(), {}, {}, {}, in::Tick{}});
  } else {
    schedule(self);
  }
}

// The child that died is made from what the journal holds by now. What waited in its mailbox is
// gone: everybody says again what it still wants.
void mend_child(Self self, const EntityId& id, uint32_t restarts) {
  make_child(self, id, restarts, nullptr, nullptr);
  // Anonymously: the answer to Resume would be a message that this actor does not understand.
  for (const auto& [other, actor] : self->state.context->directory.all())
    caf::anon_send(actor, msg::Resume{});
  auto waiting = std::exchange(self->state.children[id].waiting, {});
  for (auto& envelope : waiting) route(self, std::move(envelope));
}

void stay_down(Self self, const EntityId& id, EntityActorState::Child& child) {
  child.absence = Absence::stays_down;
  self->state.context->directory.set_absent(id, Absence::stays_down);
  log_error("the actor of " + id.path + " died " + std::to_string(kMaxRestarts + 1) +
            " times within a minute: it stays down until the controller is restarted");
}

// A child died: what it knew is in the journal. When everything it handed over is durable, make it
// anew.
void on_child_down(Self self, const caf::down_msg& down) {
  auto& st = self->state;
  if (down.reason == caf::exit_reason::user_shutdown) return;  // the controller stops
  for (auto& [id, child] : st.children) {
    if (child.address != down.source) continue;
    Time now = st.context->clock.now().time;
    child.recent.push_back(now);
    while (now - child.recent.front() > kRestartWindow) child.recent.pop_front();
    log_error("the actor of " + id.path + " died: " + self->system().render(down.reason));
    child.absence = Absence::being_mended;
    st.context->directory.set_absent(id, Absence::being_mended);
    st.context->replies.give_up_unless(
        [&](const EntityId& to) { return st.context->directory.find(to).has_value(); });
    if (child.recent.size() > kMaxRestarts) return stay_down(self, id, child);
    self->request(st.context->journal, caf::infinite, msg::Barrier{})
        .then([self, which = id, restarts = child.restarts + 1](bool) {
          mend_child(self, which, restarts);
        });
    return;
  }
}

// After this actor itself was made anew, those below it may still live: they are watched again.
void take_over_children(Self self) {
  auto& st = self->state;
  Directory& directory = st.context->directory;
  std::vector<EntityId> known = children_of(st.context->projection)[st.host->id()];
  for (EntityId& id : directory.below(st.host->id())) known.push_back(std::move(id));
  for (const EntityId& id : known) {
    if (st.children.count(id)) continue;
    if (auto living = directory.find(id)) {
      st.children[id].address = living->address();
      self->monitor(*living);
    } else if (directory.absence(id) == Absence::stays_down) {
      st.children[id].absence = Absence::stays_down;
    } else {
      make_child(self, id, 1, nullptr, nullptr);
      caf::anon_send(*directory.find(id), msg::Resume{});
    }
  }
}

// An error here is not a decision's: the actor dies of it and is made anew.
caf::error on_exception(Self self, const std::exception_ptr& thrown) {
  std::string what = text_of(thrown);
  const EntityId& id = self->state.host->id();
  log_error("the actor of " + id.path + " threw: " + what);
  if (id == EntityId::cluster())
    self->state.context->fatal("the actor of the cluster died: " + what);
  return caf::sec::runtime_error;
}

void answer_inspection(Self self, const msg::Inspect& m) {
  auto& st = self->state;
  auto seen = std::make_shared<msg::Inspection>();
  seen->state = st.host->state();
  seen->n = st.host->n();
  seen->mailbox = self->mailbox().size();
  seen->restarts = st.restarts;
  seen->quarantined = st.host->quarantined();
  seen->decisions.assign(st.host->decisions().begin(), st.host->decisions().end());
  m.done(seen);
}

}  // namespace

ChildrenMap children_of(const Projection& projection) {
  ChildrenMap children;
  projection.for_each([&](const EntityView& view) {
    if (view.id != EntityId::cluster()) children[parent_of(view.id, view.state)].push_back(view.id);
  });
  return children;
}

caf::behavior entity_actor(Self self, Context* context, EntityId id, uint32_t restarts,
                           std::shared_ptr<const ChildrenMap> tree) {
  auto& st = self->state;
  st.context = context;
  st.restarts = restarts;
  if (auto view = context->projection.find(id)) {
    st.host = std::make_unique<EntityHost>(id, std::move(view->state), view->n,
                                           std::move(view->quarantined));
  } else {
    st.host = std::make_unique<EntityHost>(id);
  }
  self->set_down_handler([self](caf::down_msg& down) { on_child_down(self, down); });
  self->set_exception_handler(
      [self](std::exception_ptr& thrown) { return on_exception(self, thrown); });
  if (tree) {
    auto below = tree->find(id);
    if (below != tree->end()) {
      for (const EntityId& child : below->second) make_child(self, child, 0, tree, nullptr);
    }
  } else if (restarts > 0) {
    take_over_children(self);
  }
  return {
      [self](const msg::Deliver& m) {
        if (m.envelope->to == self->state.host->id()) {
          handle(self, *m.envelope);
        } else {
          route(self, m.envelope);
        }
      },
      [self](const msg::Durable& m) { perform(self, self->state.host->durable(m.n)); },
      [self](const msg::Wake& m) { on_wake(self, m); },
      [](const msg::Ready&) { return true; },
      [self](const msg::Resume&) {
        handle(self, Envelope{self->state.host->id(), {}, {}, {}, in::Resumed{}});
        return true;
      },
      [self](const msg::WhenVisible& m) {
        self->request(self->state.context->journal, caf::infinite, msg::Barrier{})
            .then([done = m.done](bool) { done(); }, [](const caf::error&) {});
      },
      [self](const msg::Inspect& m) { answer_inspection(self, m); },
  };
}

}  // namespace regrow
