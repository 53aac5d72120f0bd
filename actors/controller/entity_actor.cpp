#include "actors/controller/entity_actor.h"

#include <caf/all.hpp>

#include "actors/controller/messages.h"
#include "actors/controller/router.h"
#include "actors/log.h"

namespace regrow {
namespace {

using Self = caf::stateful_actor<EntityActorState>*;

void make_child(Self self, const EntityId& id, uint32_t restarts, std::shared_ptr<const ChildrenMap> tree,
                std::shared_ptr<const Envelope> first) {
  auto& st = self->state;
  caf::actor child = self->spawn<caf::monitored>(entity_actor, st.context, id, restarts, std::move(tree));
  auto& entry = st.children[id];
  entry.address = child.address();
  entry.restarts = restarts;
  // Its first input is in its mailbox before anybody else can find it.
  if (first) self->send(child, msg::Deliver{std::move(first)});
  st.context->directory.set(id, std::move(child));
}

void route(Self self, std::shared_ptr<const Envelope> envelope) {
  Context& context = *self->state.context;
  if (auto target = context.directory.find(envelope->to)) return self->send(*target, msg::Deliver{envelope});
  auto creator = creator_of(*envelope);
  if (!creator) return refuse(context, *envelope);
  if (*creator == self->state.host->id()) return make_child(self, envelope->to, 0, nullptr, envelope);
  for (; creator; creator = creator->parent()) {
    if (*creator == self->state.host->id()) break;  // the creator itself is missing: it was refused before
    if (auto target = context.directory.find(*creator)) return self->send(*target, msg::Deliver{envelope});
  }
  refuse(context, *envelope);
}

void schedule(Self self) {
  auto& st = self->state;
  Now now = st.context->clock.now();
  auto wanted = st.host->wake_at(now);
  if (!wanted || (st.wake_at && *st.wake_at <= *wanted && *st.wake_at > now.time)) return;
  st.wake_at = std::max(*wanted, now.time);
  self->delayed_send(self, std::chrono::microseconds((*st.wake_at - now.time).us), msg::Wake{});
}

void perform(Self self, Outbox out) {
  Context& context = *self->state.context;
  if (!out.records.empty()) {
    context.faults.hit("entity.before_append");
    auto records = std::make_shared<std::vector<EventRecord>>(std::move(out.records));
    self->send(context.journal, msg::Append{std::move(records), self});
    context.faults.hit("entity.after_append");
  }
  for (Envelope& envelope : out.messages) route(self, std::make_shared<const Envelope>(std::move(envelope)));
  for (Effect& effect : out.effects)
    self->send(context.effects, msg::Perform{std::make_shared<const Effect>(std::move(effect))});
  for (const Reply& reply : out.replies) {
    context.faults.hit("reply.before_send");
    context.replies.complete(reply);
  }
}

void handle(Self self, const Envelope& envelope) {
  auto& st = self->state;
  bool was_sound = st.host->quarantined().empty();
  Now now = st.context->clock.now();
  Outbox out = st.host->handle(envelope, now);
  if (was_sound && !st.host->quarantined().empty())
    log_error(st.host->id().path + " is quarantined: " + st.host->quarantined());
  perform(self, std::move(out));
  schedule(self);
}

// A child died: what it knew is in the journal. When everything it handed over is durable, make it anew.
void on_child_down(Self self, const caf::down_msg& down) {
  auto& st = self->state;
  for (auto& [id, child] : st.children) {
    if (child.address != down.source) continue;
    EntityId which = id;
    st.context->directory.erase(which);
    Time now = st.context->clock.now().time;
    child.recent.push_back(now);
    while (now - child.recent.front() > kRestartWindow) child.recent.pop_front();
    log_error("the actor of " + which.path + " died: " + self->system().render(down.reason));
    if (child.recent.size() > kMaxRestarts) {
      log_error("the actor of " + which.path + " died " + std::to_string(kMaxRestarts + 1) +
                " times within a minute: it stays down until the controller is restarted");
      return;
    }
    uint32_t restarts = child.restarts + 1;
    self->request(st.context->journal, caf::infinite, msg::Barrier{}).then([self, which, restarts](bool) {
      make_child(self, which, restarts, nullptr, nullptr);
      // What waited in the dead actor's mailbox is gone: everybody says again what it still wants.
      for (const auto& [id, actor] : self->state.context->directory.all()) self->send(actor, msg::Resume{});
    });
    return;
  }
}

// After this actor itself was made anew, those below it may still live: they are watched again.
void take_over_children(Self self) {
  auto& st = self->state;
  ChildrenMap all = children_of(st.context->projection);
  for (const EntityId& id : all[st.host->id()]) {
    if (auto living = st.context->directory.find(id)) {
      self->monitor(*living);
      st.children[id].address = living->address();
    } else {
      make_child(self, id, 0, nullptr, nullptr);
    }
  }
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
    st.host = std::make_unique<EntityHost>(id, std::move(view->state), view->n, std::move(view->quarantined));
  } else {
    st.host = std::make_unique<EntityHost>(id);
  }
  self->set_down_handler([self](caf::down_msg& down) { on_child_down(self, down); });
  self->set_exception_handler([self](std::exception_ptr& thrown) -> caf::error {
    try {
      std::rethrow_exception(thrown);
    } catch (const std::exception& e) {
      log_error("the actor of " + self->state.host->id().path + " threw: " + e.what());
    }
    return caf::sec::runtime_error;
  });
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
      [self](const msg::Wake&) {
        auto& s = self->state;
        s.wake_at.reset();
        Now now = s.context->clock.now();
        auto wanted = s.host->wake_at(now);
        if (wanted && *wanted <= now.time) {
          handle(self, Envelope{s.host->id(), {}, {}, {}, in::Tick{}});
        } else {
          schedule(self);
        }
      },
      [](const msg::Ready&) { return true; },
      [self](const msg::Resume&) {
        handle(self, Envelope{self->state.host->id(), {}, {}, {}, in::Resumed{}});
        return true;
      },
      [self](const msg::Inspect& m) { answer_inspection(self, m); },
  };
}

}  // namespace regrow
