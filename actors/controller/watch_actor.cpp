#include "actors/controller/watch_actor.h"

#include <algorithm>
#include <caf/all.hpp>
#include <utility>

#include "actors/controller/vital_actor.h"
#include "journal/reflect_json.h"
#include "journal/view.h"

namespace regrow {
namespace {

using Self = caf::stateful_actor<WatchActorState>*;

void pump_later(Self self) {
  if (self->state.pumping) return;
  self->state.pumping = true;
  self->send(self, msg::PumpWatches{});
}

// Sends one follower what it misses, at most kWatchStep events. Returns false if its watch is over.
bool pump(WatchActorState& st, WatchActorState::Watch& watch) {
  std::vector<std::string> lines;
  uint64_t end = std::min(st.last, watch.next + kWatchStep - 1);
  auto read = st.journal->replay(watch.next, [&](const EventRecord& record) {
    if (record.seq > end) return false;
    if (watch_matches(watch.entity, record.entity))
      lines.push_back(dump_json(event_to_json(record)));
    return true;
  });
  if (!read) {
    watch.sink.end("the journal could not be read: " + read.error().message);
    return false;
  }
  watch.next = end + 1;
  return lines.empty() ? !watch.sink.closed() : watch.sink.send(std::move(lines));
}

void pump_all(Self self) {
  auto& st = self->state;
  st.pumping = false;
  bool behind = false;
  std::erase_if(st.watches, [&](WatchActorState::Watch& watch) {
    if (watch.next > st.last) return watch.sink.closed();
    if (!pump(st, watch)) return true;
    behind = behind || watch.next <= st.last;
    return false;
  });
  if (behind) pump_later(self);
}

}  // namespace

bool watch_matches(const std::string& filter, const EntityId& entity) {
  if (filter.empty() || entity.path == filter) return true;
  EntityId wanted{filter};
  if (wanted.kind() == EntityKind::cluster) return false;
  if (wanted.kind() == EntityKind::job)
    return entity.job_id() && entity.job_id() == wanted.job_id();
  return wanted.kind() == EntityKind::host && entity.kind() == EntityKind::device &&
         entity.part(1) == wanted.part(1);
}

caf::behavior watch_actor(Self self, const Journal* journal,
                          std::function<void(const std::string&)> fatal) {
  end_process_on_exception(self, std::move(fatal));
  self->state.journal = journal;
  self->state.last = journal->last_seq();
  return {
      [self](const msg::AddWatch& m) {
        auto& st = self->state;
        uint64_t next = m.request.from_seq == kOnlyNew ? st.last + 1
                                                       : std::max<uint64_t>(m.request.from_seq, 1);
        st.watches.push_back({m.sink, m.request.entity, next});
        pump_later(self);
      },
      [self](const msg::Published& m) {
        if (!m.records->empty()) self->state.last = m.records->back().seq;
        pump_later(self);
      },
      [self](const msg::PumpWatches&) { pump_all(self); },
  };
}

}  // namespace regrow
