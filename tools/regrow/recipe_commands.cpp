// init and validate: recipes, without a cluster.
#include <fcntl.h>
#include <unistd.h>
#include <CLI/CLI.hpp>

#include <cerrno>
#include <cstring>
#include <memory>

#include "recipes/recipe.h"
#include "tools/regrow/cli.h"
#include "tools/regrow/commands.h"
#include "tools/regrow/submission.h"
#include "tools/regrow/text.h"

namespace regrow::cli {
namespace {

int write_template(const std::string& path, bool force) {
  std::string text = recipe_template();
  if (path.empty() || path == "-") {
    say(text);
    return kExitOk;
  }
  int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | (force ? O_TRUNC : O_EXCL), 0644);
  if (fd < 0 && errno == EEXIST)
    fail(kExitUsage, path + " is there already; --force overwrites it");
  bool ok = fd >= 0;
  for (size_t done = 0; ok && done < text.size();) {
    ssize_t n = write(fd, text.data() + done, text.size() - done);
    ok = n > 0;
    done += ok ? static_cast<size_t>(n) : 0;
  }
  if (!ok) fail(kExitUsage, "cannot write " + path + ": " + std::strerror(errno));
  close(fd);
  say("wrote " + path + "; edit it, then:  regrow validate " + path + "\n");
  return kExitOk;
}

Json diagnostic_to_json(const Diagnostic& d) {
  return {{"file", d.file},    {"line", d.line},       {"column", d.column},
          {"key", d.key_path}, {"message", d.message}, {"hint", d.hint}};
}

int validate_as_json(const SubmitOptions& options) {
  LoadOptions load = options_of_this_process();
  load.overrides = options.settings;
  RecipeResult result = load_recipe_file(options.recipe, load);
  Json out{{"valid", result.spec.has_value()}, {"diagnostics", Json::array()}};
  for (const auto& d : result.diagnostics) out["diagnostics"].push_back(diagnostic_to_json(d));
  if (result.spec) out["spec"] = spec_to_json(*result.spec);
  say(dump(out, 2) + "\n");
  return result.spec ? kExitOk : kExitUsage;
}

int validate(Cli& cli, const SubmitOptions& options) {
  if (cli.json()) return validate_as_json(options);
  LoadOptions load = options_of_this_process();
  load.overrides = options.settings;
  RecipeResult result = load_recipe_file(options.recipe, load);
  if (!result.spec) {
    std::fputs(to_string(result.diagnostics).c_str(), stderr);
    return kExitUsage;
  }
  const JobSpec& spec = *result.spec;
  std::string command = spec.interpreter;
  for (const auto& word : spec.command) command += (command.empty() ? "" : " ") + word;
  std::string devices = spec.devices.count == 0 ? "no devices"
                                                : count_text(spec.devices.count, "device") +
                                                      " each (" + spec.devices.kind + ")";
  say(options.recipe + " is fine: \"" + spec.name + "\", " + count_text(spec.ranks, "rank") + ", " +
      devices + "\n  runs      " + fit(one_line(command), 100) + "\n  in        " +
      one_line(spec.working_directory) + "\n  resumes   " +
      (spec.checkpoint.directory.empty() ? "never: it keeps no checkpoints"
                                         : "from " + one_line(spec.checkpoint.directory)) +
      "\n");
  return kExitOk;
}

}  // namespace

void add_recipe_commands(CLI::App& app, Cli& cli) {
  struct InitOptions {
    std::string path;
    bool force = false;
  };
  auto init = std::make_shared<InitOptions>();
  auto* init_command = add_command(app, cli,
                                   {"init", "Jobs", "Writes a recipe with comments, to start from",
                                    "regrow init > recipe.yaml\nregrow init recipe.yaml"},
                                   false, false);
  init_command->add_option("FILE", init->path, "Where to; stdout if left out");
  init_command->add_flag("--force", init->force, "Overwrite the file");
  on_run(init_command, cli, [init] { return write_template(init->path, init->force); });

  auto options = std::make_shared<SubmitOptions>();
  auto* validate_command = add_command(app, cli,
                                       {"validate", "Jobs", "Checks a recipe; nothing is submitted",
                                        "regrow validate recipe.yaml --set ranks=8"},
                                       false, true);
  add_recipe_options(validate_command, *options, false);
  validate_command->get_option("RECIPE")->required();
  on_run(validate_command, cli, [&cli, options] { return validate(cli, *options); });
}

}  // namespace regrow::cli
