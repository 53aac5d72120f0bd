// Which environment variables a rank gets: the recipe's own, an allow-list from the submitter, the
// account's few, and nothing else, so that a job does not depend on who typed the command in which
// window.
//
// Pure; any thread. What differs from rank to rank (RANK, MASTER_ADDR, devices ...) is added by the
// agent.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "supervisors/job_spec.h"

namespace regrow {

// The user the ranks run as, from the user database and not from anybody's environment.
struct AccountFacts {
  std::string user;
  std::string home;
  std::string shell;
};

// Linux refuses a single "NAME=value" or argument longer than 32 pages, its final NUL included.
inline constexpr uint64_t kLongestString = 32 * 4096;
// Arguments and environment together. Linux allows 2 MiB with the usual stack limit; the rest is
// room for what the agent adds.
inline constexpr uint64_t kMostStartBytes = 1536 * 1024;

// Letters, digits and '_', not beginning with a digit.
bool is_variable_name(std::string_view name);

// Why a recipe may not set this variable: regrow gives it to each rank. Empty = it may.
std::string why_set_by_regrow(std::string_view name);

// Why this variable is never taken from the submitter, allow-list or not. Empty = it may be.
std::string why_never_passed(std::string_view name);

// HOME, USER, LOGNAME and SHELL as far as known, and a PATH that is the same for everybody.
std::vector<EnvVar> account_environment(const AccountFacts& account);

// Later lists win; the result is sorted by name.
std::vector<EnvVar> merge_environment(const std::vector<std::vector<EnvVar>>& lists);

// The variable or argument that makes a start impossible, if any. `name` is a variable's, or
// "command[2]".
struct Oversize {
  std::string name;
  bool is_argument = false;
  uint64_t bytes = 0;  // of this one
  uint64_t total = 0;  // of all, if it is the total that is too large; else 0
};
std::optional<Oversize> find_oversize(const JobSpec& spec);

}  // namespace regrow
