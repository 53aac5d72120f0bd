// How an envelope finds its entity's actor, and who makes an entity that does not exist yet.
#pragma once

#include <optional>

#include "actors/controller/context.h"
#include "supervisors/inputs.h"

namespace regrow {

// The entity whose actor makes `envelope.to` on receipt of this input; nothing if this input may
// not create anything.
std::optional<EntityId> creator_of(const Envelope& envelope);

// The node that supervises the entity of a given state (a rank's group is only known from its
// state).
EntityId parent_of(const EntityId& id, const AnyState& state);

// Sends an envelope into the tree from outside it. Any thread. An envelope for an entity that
// neither exists nor may be created is dropped; a request in it is answered "no such ...".
void post(Context& context, Envelope envelope);

// Answers the request in an envelope that could not be delivered, and says why not.
void refuse(Context& context, const Envelope& envelope);

}  // namespace regrow
