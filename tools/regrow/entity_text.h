// The controller's answer to "show" as pages for a person; shared by `regrow show` and the shell.
//
// Main's thread.
#pragma once

#include <string>

#include "tools/regrow/cli.h"

namespace regrow::cli {

// Asks for an entity. State and journal are read one after the other while the world goes on: when
// they differ it asks again, a few times, so that a difference that is shown is a real one.
Result<Json> ask_entity(AdminClient& client, const std::string& entity);

std::string head_text(const Json& answer);  // what it is, in a line
std::string full_state_text(const Json& answer,
                            const Terminal& terminal);  // state; equal to its journal?
std::string actor_text(const Json& answer);             // mailbox, restarts
std::string children_text(const Json& children, const Terminal& terminal);
std::string decisions_text(const Json& answer,
                           const Terminal& terminal);  // inputs and what came of them
std::string events_text(const Json& events, const Terminal& terminal, bool with_entity);
std::string event_line(const Json& event, const Terminal& terminal,
                       bool with_entity);  // with its newline

}  // namespace regrow::cli
