// run, submit, attach: from a recipe to a job, and following it.
#include <CLI/CLI.hpp>
#include <csignal>
#include <memory>

#include "tools/regrow/cli.h"
#include "tools/regrow/commands.h"
#include "tools/regrow/follow.h"
#include "tools/regrow/job_view.h"
#include "tools/regrow/signals.h"
#include "tools/regrow/submission.h"
#include "tools/regrow/text.h"

namespace regrow::cli {
namespace {

int run_job(Cli& cli, const SubmitOptions& options) {
  JobSpec spec = load_spec(cli, options);
  if (options.dry_run) return show_plan(cli, spec);
  SignalQueue signals({SIGINT, SIGTERM});
  // What follows is the whole story of the job, wherever in the journal it begins.
  uint64_t from_seq = get<uint64_t>(cli.query("status"), "last_seq") + 1;
  Submitted submitted = submit(cli, spec, options);
  if (cli.json()) {
    say(dump({{"job", submitted.job}, {"message", submitted.message}}) + "\n");
  } else {
    say("job " + std::to_string(submitted.job) + " \"" + one_line(spec.name) +
        "\": " + count_text(spec.ranks, "rank") + ". Ctrl-C detaches\n");
  }
  // A known key may answer an older job: then its past is not told again.
  return follow(cli, signals, {submitted.job, from_seq});
}

int submit_job(Cli& cli, const SubmitOptions& options) {
  JobSpec spec = load_spec(cli, options);
  if (options.dry_run) return show_plan(cli, spec);
  Submitted submitted = submit(cli, spec, options);
  std::string id = std::to_string(submitted.job);
  if (cli.json()) {
    say(dump({{"job", submitted.job}, {"message", submitted.message}}, 2) + "\n");
  } else {
    say("job " + id + " accepted; to follow it:  regrow attach " + id + "\n");
  }
  return kExitOk;
}

int attach(Cli& cli, const std::string& job_text) {
  uint64_t job = parse_job(job_text);
  SignalQueue signals({SIGINT, SIGTERM});
  Json answer = cli.query("job", {{"job", job}});
  JobView view = job_view(answer);
  if (view.ended() || view.held()) return report_end(cli, answer);
  if (!cli.json()) {
    say(progress_line(view, 0) + "\n");
    if (!view.reason.empty() && view.phase != "running") say("  " + one_line(view.reason) + "\n");
  }
  return follow(cli, signals, {job, kOnlyNew});
}

}  // namespace

void add_run_commands(CLI::App& app, Cli& cli) {
  auto run = std::make_shared<SubmitOptions>();
  auto* run_command = add_command(
      app, cli,
      {"run", "Jobs", "Submits a job and follows it to its end; the exit code is the job's",
       "regrow run recipe.yaml\nregrow run recipe.yaml --set ranks=8 --dry-run\nregrow run -- "
       "python3 train.py"});
  add_recipe_options(run_command, *run, true);
  on_run(run_command, cli, [&cli, run] { return run_job(cli, *run); });

  auto submit = std::make_shared<SubmitOptions>();
  auto* submit_command = add_command(
      app, cli,
      {"submit", "Jobs", "Submits a job and returns at once", "regrow submit recipe.yaml"});
  add_recipe_options(submit_command, *submit, true);
  on_run(submit_command, cli, [&cli, submit] { return submit_job(cli, *submit); });

  auto job = std::make_shared<std::string>();
  auto* attach_command = add_command(
      app, cli,
      {"attach", "Jobs", "Follows a job that was submitted before; the exit code is the job's",
       "regrow attach 7"});
  attach_command->add_option("JOB", *job, "Number of the job")->required();
  on_run(attach_command, cli, [&cli, job] { return attach(cli, *job); });
}

}  // namespace regrow::cli
