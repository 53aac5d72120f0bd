// A state, event or any other JSON value as indented lines that a person reads:
//
//   phase: running
//   running_since: 2026-11-30 22:48:01
//   slots:
//     - rank: 0
//       host: h1
//
// Fields that say when or how long are shown as such; -o json has the exact numbers. Pure; any
// thread.
#pragma once

#include <string>

#include "tools/regrow/json_get.h"

namespace regrow::cli {

// Each line ended by a newline and begun with `indent` spaces.
std::string state_text(const Json& value, size_t indent = 0);

}  // namespace regrow::cli
