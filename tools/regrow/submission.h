// From a recipe, or the command after `--`, to a job the controller has accepted. Shared by run,
// submit and validate, so that all give the same verdict.
//
// Main's thread only.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "supervisors/job_spec.h"
#include "tools/regrow/cli.h"

namespace regrow::cli {

struct SubmitOptions {
  std::string recipe;
  std::vector<std::string> settings;  // --set
  std::string key;                    // --key; empty = a new random one
  std::string reason;
  int64_t as_user = -1;  // --as-user; -1 = who calls
  bool dry_run = false;
};

// RECIPE, --set, and for those that submit --key, --reason, --dry-run.
void add_recipe_options(CLI::App* command, SubmitOptions& options, bool submits);

// Exit code 2 with all diagnostics on stderr, nothing journaled, if the recipe is wrong.
JobSpec load_spec(const Cli& cli, const SubmitOptions& options);

// The spec as `submit` and `plan` take it.
Json spec_to_json(const JobSpec& spec);

struct Submitted {
  uint64_t job = 0;
  std::string message;
};
// Repeats itself with the same key while the controller restarts, so that one submission is one
// job.
Submitted submit(Cli& cli, const JobSpec& spec, const SubmitOptions& options);

// --dry-run: where the ranks would run. Exit code 1 if they cannot.
int show_plan(Cli& cli, const JobSpec& spec);

}  // namespace regrow::cli
