// Can this interpreter import what the recipe needs? Asked before anything starts.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "actors/agent/child_process.h"
#include "supervisors/job_spec.h"

namespace regrow {

// Runs the interpreter in a child of its own and blocks until it answers, at most `limit`: not for
// the event loop. Looks modules up without running them (importing a framework takes seconds).
// `user`: whose job it is, since looking may run what the recipe's environment brings in.
// Empty if all are there, else a sentence that names interpreter and module.
std::string check_modules(const std::string& interpreter, const std::vector<std::string>& modules,
                          const std::vector<EnvVar>& environment,
                          const std::optional<ChildUser>& user, Duration limit);

}  // namespace regrow
