// Reads recipes: YAML (or a bare command line) in, a complete JobSpec or a list of what is wrong
// out.
//
// Pure but for reading the one file named; any thread; never throws. `regrow validate`, `submit`
// and `run` all come through here, so they give the same verdict. The same recipe, options and
// account give the same JobSpec. The keys are in schema_table.h, for people in docs/recipes.md.
//
//   LoadOptions options = options_of_this_process();
//   options.overrides = {"ranks=8", "env.SEED=7"};                   // --set, later ones win
//   RecipeResult result = load_recipe_file("train.yaml", options);
//   if (!result.spec) std::cerr << to_string(result.diagnostics);    // exit code 2, nothing is
//   journaled
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "recipes/diagnostic.h"
#include "recipes/environment.h"
#include "supervisors/job_spec.h"

namespace regrow {

// A larger recipe is refused unread. What is larger is a list that belongs into a file of its own.
inline constexpr uint64_t kLargestRecipe = 1 << 20;

struct LoadOptions {
  std::vector<std::string> overrides;  // "key.path=value" of each --set
  std::map<std::string, std::string>
      submitter_environment;  // pass_env takes from it, nothing else does
  uint32_t uid = 0;           // ranks run as this user
  uint32_t gid = 0;
  AccountFacts account;  // of that uid
  std::string
      directory;  // absolute; relative paths start here. Empty = the recipe file's, or the current
};

struct RecipeResult {
  std::optional<JobSpec> spec;          // there if and only if diagnostics is empty
  std::vector<Diagnostic> diagnostics;  // in file order, then overrides; at most about twenty
};

RecipeResult load_recipe_file(const std::string& path, const LoadOptions& options);

// `file_name` is for the diagnostics only.
RecipeResult load_recipe_text(std::string_view text, std::string_view file_name,
                              const LoadOptions& options);

// `regrow run -- CMD...`: one rank of the command in the current directory, all else by default or
// --set.
RecipeResult spec_for_command(const std::vector<std::string>& argv, const LoadOptions& options);

// Environment, user and account of the calling process. Reads `environ`: not while another thread
// sets it.
LoadOptions options_of_this_process();

// From the user database; fields are empty where it says nothing.
AccountFacts account_of(uint32_t uid);

// docs/recipes.md, as the table says it.
std::string recipe_reference_markdown();

// What `regrow init` writes: a recipe that is valid as it stands, with every other key as a
// comment.
std::string recipe_template();

}  // namespace regrow
