#include "actors/controller/journal_actor.h"

#include <caf/all.hpp>

#include "actors/controller/messages.h"
#include "actors/controller/vital_actor.h"
#include "actors/log.h"

namespace regrow {
namespace {

using Self = caf::stateful_actor<JournalActorState>*;

// The mailbox is first in, first out: this message comes back after everything that is queued now.
void flush_soon(Self self) {
  if (self->state.flushing) return;
  self->state.flushing = true;
  self->send(self, msg::Flush{});
}

void commit(Self self) {
  auto& st = self->state;
  Context& context = *st.context;
  st.flushing = false;
  if (!st.batch.empty()) {
    context.faults.hit("journal.before_commit");
    auto first = st.journal->append(st.batch);
    if (!first) {
      // Whether the events are on disk is unknown; only a new start can tell. Nothing of them was
      // seen.
      context.fatal("the journal could not be written, nothing was decided since: " +
                    first.error().message);
      return self->quit();
    }
    context.faults.hit("journal.after_commit");
    for (const EventRecord& record : st.batch) context.projection.apply(record);
    for (auto& [id, owner] : st.owners) self->send(owner.first, msg::Durable{owner.second});
    context.faults.hit("journal.after_ack");
    auto published = std::make_shared<const std::vector<EventRecord>>(std::move(st.batch));
    if (st.watches) self->send(st.watches, msg::Published{published});
    for (const EventRecord& record : *published) {
      if (std::holds_alternative<ev::JobEnded>(record.event))
        self->send(context.effects, msg::ForgetJob{*record.entity.job_id()});
    }
    st.batch.clear();
    st.owners.clear();
    if (auto written = st.snapshotter->after_append(); !written)
      log_warning("snapshots could not be written; the next start replays more: " +
                  written.error().message);
  }
  for (auto& barrier : st.barriers) barrier.deliver(true);
  st.barriers.clear();
}

}  // namespace

caf::behavior journal_actor(Self self, Context* context,
                            std::shared_ptr<std::unique_ptr<Journal>> journal, std::string program,
                            caf::actor watches) {
  end_process_on_exception(self, context->fatal);
  auto& st = self->state;
  st.context = context;
  st.journal = std::move(*journal);
  st.snapshotter = std::make_unique<Snapshotter>(*st.journal, context->projection,
                                                 SnapshotOptions{std::move(program)});
  st.watches = std::move(watches);
  return {
      [self](const msg::Append& m) {
        auto& s = self->state;
        for (EventRecord& record : *m.records) {
          auto& owner = s.owners[record.entity];
          owner = {m.owner, record.n};
          s.batch.push_back(std::move(record));
        }
        if (s.batch.size() >= kMaxBatch) {
          commit(self);
        } else {
          flush_soon(self);
        }
      },
      [self](const msg::Flush&) { commit(self); },
      [self](const msg::Barrier&) -> caf::result<bool> {
        auto promise = self->make_response_promise<bool>();
        self->state.barriers.push_back(promise);
        flush_soon(self);
        return promise;
      },
      [self](const msg::CloseJournal&) {
        commit(self);
        auto& s = self->state;
        if (auto written = s.snapshotter->write_now(); !written)
          log_warning("snapshots could not be written at the end: " + written.error().message);
        s.snapshotter.reset();
        s.journal.reset();
        self->quit();
        return true;
      },
  };
}

}  // namespace regrow
