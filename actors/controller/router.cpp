#include "actors/controller/router.h"

#include <caf/send.hpp>

#include "actors/controller/messages.h"
#include "actors/log.h"
#include "supervisors/machines.h"

namespace regrow {

std::optional<EntityId> creator_of(const Envelope& e) {
  if (!may_create_entity(e.input)) return std::nullopt;
  if (e.to.kind() != EntityKind::rank) return e.to.parent();
  if (auto* start = std::get_if<in::RankStart>(&e.input))
    return EntityId::group(start->command.key.job, start->command.group);
  if (e.cause.entity.kind() == EntityKind::group) return e.cause.entity;
  return EntityId::group(*e.to.job_id(), GroupIndex{0});
}

EntityId parent_of(const EntityId& id, const AnyState& state) {
  if (auto* rank = std::get_if<RankState>(&state)) return EntityId::group(rank->job, rank->group);
  return id.parent().value_or(EntityId::cluster());
}

void refuse(Context& context, const Envelope& envelope) {
  std::string why = "there is no " + envelope.to.path;
  if (auto absence = context.directory.absence(envelope.to)) {
    why = *absence == Absence::being_mended
              ? envelope.to.path + " is being restarted after an error inside regrow; ask again"
              : envelope.to.path +
                    " stays down after repeated errors inside regrow; the controller's log has "
                    "them, and a restart of the controller brings it back";
  }
  log_debug(std::string(input_name(envelope.input)) + " for " + envelope.to.path +
            " refused: " + why);
  if (envelope.request.value != 0) context.replies.complete({envelope.request, false, why, {}});
}

void post(Context& context, Envelope envelope) {
  auto shared = std::make_shared<const Envelope>(std::move(envelope));
  auto target = context.directory.find(shared->to);
  // The creator may not exist itself yet: its own creator is asked then, up to the cluster.
  for (auto creator = creator_of(*shared); !target && creator; creator = creator->parent())
    target = context.directory.find(*creator);
  if (!target) return refuse(context, *shared);
  caf::anon_send(*target, msg::Deliver{shared});
}

}  // namespace regrow
