// Events in words: every event as one line of a list, and the ones that tell a job's story as
// sentences.
//
// Input is an event as the controller sends it: {"seq", "time_us", "entity", "kind", "reason",
// "by", "fields"}. Pure; any thread.
#pragma once

#include <optional>
#include <string>

#include "tools/regrow/json_get.h"
#include "tools/regrow/terminal.h"

namespace regrow::cli {

struct Sentence {
  std::string text;
  Tone tone = Tone::plain;
};

// For someone who follows a job: losses, decisions, recoveries, its end. Nothing for bookkeeping.
std::optional<Sentence> narrate(const Json& event);

// "rank_exited" however the kind was spelt.
std::string kind_of(const Json& event);

// The reason, or where there is none the fields that matter: what a list shows behind the kind. Who
// asked stands at its end.
std::string explain(const Json& event);

// Green, yellow, red or plain for a list.
Tone tone_of(const Json& event);

}  // namespace regrow::cli
