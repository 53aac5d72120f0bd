// journal verify | salvage: a journal that no controller has open.
#include <CLI/CLI.hpp>
#include <memory>

#include "journal/offline.h"
#include "tools/regrow/cli.h"
#include "tools/regrow/commands.h"
#include "tools/regrow/text.h"

namespace regrow::cli {
namespace {

// 1 = the operation failed or found damage, 2 = this is not a journal that may be looked at.
[[noreturn]] void give_up(const JournalError& error) {
  bool usage = error.fault == JournalFault::in_use || error.fault == JournalFault::refused ||
               error.fault == JournalFault::newer_format;
  fail(usage ? kExitUsage : kExitJobFailed, error.message);
}

template <class T>
T or_give_up(JournalResult<T> result) {
  if (!result) give_up(result.error());
  return std::move(*result);
}

std::string count(uint64_t n, const std::string& word) { return count_text(n, word); }

int verify_journal(Cli& cli, const std::string& path) {
  auto checked = or_give_up(check_journal(path));
  if (cli.json()) {
    say(dump(Json{{"directory", checked.directory},
                  {"events", checked.found.events},
                  {"entities", checked.found.entities},
                  {"snapshots", checked.found.snapshots},
                  {"first_at_us", checked.first_at.us},
                  {"last_at_us", checked.last_at.us},
                  {"unfinished_bytes", checked.unfinished_bytes}},
             2) +
        "\n");
    return kExitOk;
  }
  std::string text = checked.directory + ": whole: " + count(checked.found.events, "event") +
                     " of " + std::to_string(checked.found.entities) + " entities, " +
                     count(checked.found.snapshots, "snapshot") + "\n";
  if (checked.found.events > 0) {
    text += "from " + date_time_text(checked.first_at.us) + " to " +
            date_time_text(checked.last_at.us) + "\n";
  }
  if (checked.unfinished_bytes > 0) {
    text += checked.unfinished_file + " ends with an unfinished write (" +
            count(checked.unfinished_bytes, "byte") +
            "), as after a crash; the next start drops it, nobody was told of it\n";
  }
  say(text);
  return kExitOk;
}

std::string lost_text(const Salvaged& saved) {
  std::string first = std::to_string(saved.events + 1);
  if (saved.seen_up_to <= saved.events)
    return "what came behind event " + std::to_string(saved.events) + "; how much cannot be read";
  return "events " + first + " to " + std::to_string(saved.seen_up_to) + ", and any behind them";
}

std::string raised_text(const SalvagedJournal& done) {
  if (done.next_job == 0) return "";
  return "raised: the next job is " + std::to_string(done.next_job) + " and the next epoch " +
         std::to_string(done.next_epoch) +
         ": hosts may know numbers that the lost events gave out\n";
}

int salvage_journal(Cli& cli, const std::string& path, const std::string& to) {
  auto done = or_give_up(salvage(path, to));
  if (cli.json()) {
    say(dump(Json{{"directory", done.directory},
                  {"was_whole", done.was_whole},
                  {"events", done.saved.events},
                  {"last_at_us", done.saved.last_at.us},
                  {"damage", done.damage},
                  {"lost_from", done.was_whole ? Json() : Json(done.saved.events + 1)},
                  {"seen_up_to", done.saved.seen_up_to},
                  {"next_job", done.next_job},
                  {"next_epoch", done.next_epoch},
                  {"kept", done.kept}},
             2) +
        "\n");
    return kExitOk;
  }
  if (done.was_whole) {
    say(done.directory + ": not damaged (" + count(done.saved.events, "event") +
        "); nothing was changed\n");
    return kExitOk;
  }
  std::string until =
      done.saved.events == 0 ? "" : ", the newest of " + date_time_text(done.saved.last_at.us);
  say("found:  " + one_line(done.damage) + "\n" + "saved:  " + count(done.saved.events, "event") +
      until + ", in " + done.directory + "\n" + "lost:   " + lost_text(done.saved) + "\n" +
      raised_text(done) + "kept:   the damaged journal as it was, in " + done.kept + "\n" +
      "next:   start the controller" + (to.empty() ? "" : " with this journal in its place") +
      "; it goes on from there. Hosts tell what runs on them; a process\n" +
      "        that this journal does not know is shown by `regrow show host/NAME` and left "
      "alone\n");
  return kExitOk;
}

}  // namespace

void add_journal_commands(CLI::App& app, Cli& cli) {
  auto* journal =
      add_command(app, cli,
                  {"journal", "Running a cluster", "Checks and mends a controller's journal",
                   "regrow journal verify /var/lib/regrow"},
                  false, false);
  journal->require_subcommand(1);

  struct Options {
    std::string directory;
    std::string to;
  };
  auto o = std::make_shared<Options>();
  auto* verify = add_command(
      *journal, cli,
      {"verify", "Journal", "Reads a stopped controller's journal and says whether it is whole",
       "regrow journal verify /var/lib/regrow"},
      false, true);
  verify->add_option("DIR", o->directory, "State directory of a controller, or the journal in it")
      ->required();
  on_run(verify, cli, [&cli, o] { return verify_journal(cli, o->directory); });

  auto* salvage = add_command(
      *journal, cli,
      {"salvage", "Journal", "Goes on with the events before the damage; keeps the damaged journal",
       "regrow journal salvage /var/lib/regrow\n"
       "regrow journal salvage /var/lib/regrow /tmp/good      (changes nothing in the first)"},
      false, true);
  salvage->add_option("DIR", o->directory, "State directory of a controller, or the journal in it")
      ->required();
  salvage->add_option("TO", o->to,
                      "New directory for the good events (default: they take the journal's place)");
  on_run(salvage, cli, [&cli, o] { return salvage_journal(cli, o->directory, o->to); });
}

}  // namespace regrow::cli
