#include "tools/regrow/submission.h"

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>
#include <random>
#include <thread>

#include "journal/reflect_json.h"
#include "recipes/recipe.h"
#include "tools/regrow/table.h"
#include "tools/regrow/text.h"

namespace regrow::cli {

namespace {

constexpr auto kSubmitPatience = std::chrono::seconds(10);
constexpr auto kSubmitPause = std::chrono::milliseconds(200);

std::string random_key() {
  std::random_device random;
  char out[40];
  std::snprintf(out, sizeof out, "%08x%08x%08x%08x", random(), random(), random(), random());
  return out;
}

}  // namespace

void add_recipe_options(CLI::App* command, SubmitOptions& options, bool submits) {
  command->add_option("RECIPE", options.recipe, "A recipe, as `regrow init` writes one");
  command
      ->add_option("--set", options.settings, "Overrides a key of the recipe: ranks=8, env.SEED=7")
      ->type_name("KEY=VALUE")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  if (!submits) return;
  command->add_option("--key", options.key, "Submitting twice with one key gives one job");
  command
      ->add_option("--as-user", options.as_user,
                   "Number of the user whose ranks they are (default: you); for root, and over TCP")
      ->type_name("UID")
      ->check(CLI::Range(int64_t{0}, int64_t{UINT32_MAX} - 1));
  command->add_option("--reason", options.reason, "Stands in the journal beside your name");
  command->add_flag("--dry-run", options.dry_run, "Only show where the ranks would run");
}

JobSpec load_spec(const Cli& cli, const SubmitOptions& options) {
  if (options.recipe.empty() && (!cli.has_tail || cli.tail.empty())) {
    fail(kExitUsage, "name a recipe, or a command after `--`:  regrow run -- python3 train.py");
  }
  if (!options.recipe.empty() && cli.has_tail) {
    fail(kExitUsage, "a recipe has its own command; to change it: --set 'command=[...]'");
  }
  LoadOptions load = options_of_this_process();
  load.overrides = options.settings;
  if (options.as_user >= 0) {
    load.uid = static_cast<uint32_t>(options.as_user);
    load.gid = 0;  // the agent takes the account's own
    load.account = account_of(load.uid);
  }
  RecipeResult result = options.recipe.empty() ? spec_for_command(cli.tail, load)
                                               : load_recipe_file(options.recipe, load);
  if (result.spec) return std::move(*result.spec);
  std::string text = to_string(result.diagnostics);
  if (!text.empty() && text.back() == '\n') text.pop_back();
  std::fprintf(stderr, "%s\n", text.c_str());
  fail(kExitUsage, count_text(result.diagnostics.size(), "error") + " in " +
                       (options.recipe.empty() ? "the settings" : options.recipe) +
                       ", nothing was submitted");
}

Json spec_to_json(const JobSpec& spec) { return to_json(spec); }

Submitted submit(Cli& cli, const JobSpec& spec, const SubmitOptions& options) {
  Json args{{"spec", spec_to_json(spec)},
            {"key", options.key.empty() ? random_key() : options.key}};
  auto deadline = std::chrono::steady_clock::now() + kSubmitPatience;
  bool connected = false;
  while (true) {
    auto answer = cli.client().act("submit", args, options.reason);
    if (answer) {
      return {get<uint64_t>(*answer, "job"), one_line(get<std::string>(*answer, "message"))};
    }
    // Nothing there from the start is an error at once; one that goes away in between is waited
    // for.
    connected = connected || cli.client().connect().ok();
    bool wait = answer.error().exit_code == kExitUnreachable && connected;
    if (!wait || std::chrono::steady_clock::now() > deadline) throw CommandFailed(answer.error());
    std::this_thread::sleep_for(kSubmitPause);
  }
}

int show_plan(Cli& cli, const JobSpec& spec) {
  Json plan = cli.query("plan", {{"spec", spec_to_json(spec)}});
  bool possible = get<bool>(plan, "possible");
  if (cli.json()) {
    say(dump(plan, 2) + "\n");
    return possible ? kExitOk : kExitJobFailed;
  }
  if (!possible) {
    fail(kExitJobFailed, "\"" + spec.name + "\" cannot be placed now: " +
                             one_line(get<std::string>(plan, "reason")));
  }
  Table table({{"RANK", Align::right}, {"HOST"}, {"DEVICES", Align::left, true}});
  for (const auto& placement : child(plan, "placements")) {
    std::string devices;
    for (const auto& device : child(placement, "devices")) {
      if (device.is_string()) devices += (devices.empty() ? "" : ", ") + device.get<std::string>();
    }
    table.add({std::to_string(get<uint64_t>(placement, "rank")),
               get<std::string>(placement, "host"), devices.empty() ? "-" : devices});
  }
  say(table.text(cli.terminal));
  std::string words = get<std::string>(plan, "grant_text", get<std::string>(plan, "reason"));
  if (!words.empty()) say(one_line(words) + "\n");
  return kExitOk;
}

}  // namespace regrow::cli
