// Can this interpreter import what the recipe needs? Asked before anything starts.
#pragma once

#include <string>
#include <vector>

#include "supervisors/job_spec.h"

namespace regrow {

// Runs the interpreter in a child of its own and blocks until it answers, at most `limit`: not for
// the event loop. Looks modules up without running them (importing a framework takes seconds).
// Empty if all are there, else a sentence that names interpreter and module.
std::string check_modules(const std::string& interpreter, const std::vector<std::string>& modules,
                          const std::vector<EnvVar>& environment, Duration limit);

}  // namespace regrow
