// Events and states as JSON, the way commands, the shell and the page show them. Any thread; no
// state.
//
//   dump_json(event_to_json(record));   // one line of `regrow events -o json`
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "journal/projection.h"
#include "supervisors/events.h"

namespace regrow {

// "2026-11-30T22:48:01.123456Z"; UTC, always microseconds, so that texts sort like times.
std::string iso_time(Time time);

// {"seq", "n", "time_us", "time", "entity", "kind", "reason", "by", "role", "caused_by", "fields":
// {...}} `kind` is snake_case ("rank_exited"); `by` and `role` are null for automatic decisions,
// `caused_by` is null or {"entity", "n"}.
nlohmann::json event_to_json(const EventRecord& record);

// {"entity", "kind", "n", "seq", "time_us", "time", "quarantined": null or why, "state": {...} or
// null}
nlohmann::json entity_to_json(const EntityView& entity);

}  // namespace regrow
