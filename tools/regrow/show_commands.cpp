// show and events: one entity in full, and what happened.
#include <poll.h>
#include <CLI/CLI.hpp>
#include <condition_variable>
#include <csignal>
#include <memory>
#include <mutex>

#include "tools/regrow/cli.h"
#include "tools/regrow/commands.h"
#include "tools/regrow/entity_text.h"
#include "tools/regrow/inbox.h"
#include "tools/regrow/signals.h"
#include "tools/regrow/table.h"
#include "tools/regrow/text.h"

namespace regrow::cli {
namespace {

constexpr uint64_t kPage = 2000;
constexpr uint64_t kLastEvents = 100;

// --- show
// -----------------------------------------------------------------------------------------

// Where each value of a job's environment came from.
int show_environment(Cli& cli, const std::string& entity) {
  if (!entity.starts_with("job/")) fail(kExitUsage, "--env is for jobs");
  Json answer = cli.query("job", {{"job", parse_job(entity)}});
  const Json& environment = child(child(answer, "spec"), "environment");
  if (cli.json()) {
    say(dump(environment, 2) + "\n");
    return kExitOk;
  }
  Table table({{"NAME"}, {"VALUE", Align::left, true}, {"FROM"}});
  for (const auto& variable : environment) {
    table.add({get<std::string>(variable, "name"), get<std::string>(variable, "value"),
               get<std::string>(variable, "source")});
  }
  say(table.text(cli.terminal) +
      "Each rank also gets regrow's own (RANK, MASTER_ADDR, REGROW_* ...).\n");
  return kExitOk;
}

int show(Cli& cli, const std::string& text, bool environment) {
  std::string entity = parse_entity(text);
  if (environment) return show_environment(cli, entity);
  Json answer = or_fail(ask_entity(cli.client(), entity));
  if (cli.json()) {
    say(dump(answer, 2) + "\n");
    return kExitOk;
  }
  const Terminal& terminal = cli.terminal;
  std::string page = head_text(answer) + full_state_text(answer, terminal) + actor_text(answer);
  if (!child(answer, "children").empty())
    page += "children\n" + children_text(child(answer, "children"), terminal);
  page += "last events\n" + events_text(child(answer, "events"), terminal, false);
  page += "last decisions\n" + decisions_text(answer, terminal);
  say(page);
  return kExitOk;
}

// --- events
// ---------------------------------------------------------------------------------------

struct EventOptions {
  std::string entity;
  int64_t limit = -1;  // -1 = by output: all for programs, the last hundred for people
  bool follow = false;
};

bool print_event(Cli& cli, const Json& event, bool with_entity) {
  return say(cli.json() ? dump(event) + "\n" : event_line(event, cli.terminal, with_entity));
}

// The last `limit` events. Returns the sequence to go on from.
uint64_t print_last(Cli& cli, const EventOptions& options, uint64_t limit, bool with_entity) {
  uint64_t next = get<uint64_t>(cli.query("status"), "last_seq") + 1;
  if (limit == 0) return next;
  Json args{{"limit", limit}, {"tail", true}};
  if (!options.entity.empty()) args["entity"] = options.entity;
  Json answer = cli.query("events", args);
  const Json& events = child(answer, "events");
  for (const auto& event : events) {
    if (!print_event(cli, event, with_entity)) break;
    next = std::max(next, get<uint64_t>(event, "seq") + 1);
  }
  std::string problem = get<std::string>(answer, "problem");
  if (!problem.empty()) complain("the journal could not be read to its end: " + one_line(problem));
  return next;
}

// All events, page by page.
uint64_t print_all(Cli& cli, const EventOptions& options, bool with_entity) {
  uint64_t next = 1;
  while (true) {
    Json args{{"from", next}, {"limit", kPage}};
    if (!options.entity.empty()) args["entity"] = options.entity;
    Json answer = cli.query("events", args);
    const Json& events = child(answer, "events");
    if (!events.is_array() || events.empty()) return next;
    for (const auto& event : events) {
      if (!print_event(cli, event, with_entity)) return next;
      next = std::max(next, get<uint64_t>(event, "seq") + 1);
    }
    if (events.size() < kPage) return next;
  }
}

struct WatchNews {
  std::vector<std::string> lines;
  std::string trouble;
  std::optional<Error> failed;
};

int follow_events(Cli& cli, SignalQueue& signals, const EventOptions& options, uint64_t next,
                  bool with_entity) {
  Inbox<WatchNews> inbox;
  WatchCallbacks callbacks;
  callbacks.on_lines = [&inbox](const std::vector<std::string>& lines) {
    inbox.push({lines, "", {}});
  };
  callbacks.on_state = [&inbox](const std::string& trouble) { inbox.push({{}, trouble, {}}); };
  callbacks.on_failed = [&inbox](const Error& error) { inbox.push({{}, "", error}); };
  auto watch = cli.client().watch({next, options.entity}, callbacks);
  bool told_trouble = false;
  while (true) {
    pollfd waits[] = {{signals.fd(), POLLIN, 0}, {inbox.fd(), POLLIN, 0}};
    poll(waits, 2, -1);
    if (signals.take()) return kExitInterrupted;
    for (const auto& news : inbox.take()) {
      if (news.failed) throw CommandFailed(*news.failed);
      if (!news.trouble.empty() && !told_trouble) complain(news.trouble + "; waiting for it");
      told_trouble = !news.trouble.empty();
      for (const auto& line : news.lines) {
        Json event = Json::parse(line, nullptr, false);
        if (!event.is_object() || !event.contains("seq")) continue;
        if (!print_event(cli, event, with_entity)) return kExitOk;
      }
    }
  }
}

int print_events(Cli& cli, EventOptions options) {
  if (!options.entity.empty()) options.entity = parse_entity(options.entity);
  SignalQueue signals(options.follow ? std::initializer_list<int>{SIGINT, SIGTERM}
                                     : std::initializer_list<int>{});
  // One entity's own events need no column that says so; a job or host brings those below it.
  bool with_entity = options.entity.empty() || options.entity.starts_with("job/") ||
                     options.entity.starts_with("host/");
  bool all = options.limit < 0 && cli.json();
  uint64_t limit = options.limit < 0 ? kLastEvents : static_cast<uint64_t>(options.limit);
  uint64_t next =
      all ? print_all(cli, options, with_entity) : print_last(cli, options, limit, with_entity);
  return options.follow ? follow_events(cli, signals, options, next, with_entity) : kExitOk;
}

}  // namespace

void add_show_commands(CLI::App& app, Cli& cli) {
  struct ShowOptions {
    std::string entity;
    bool environment = false;
  };
  auto show_options = std::make_shared<ShowOptions>();
  auto* show_command = add_command(
      app, cli,
      {"show", "Looking", "Shows one node of the tree: state, last events, last decisions",
       "regrow show 7                 (job/7)\nregrow show 7/3               (rank/7/3)\n"
       "regrow show h1                (host/h1)\nregrow show job/7 --env       (where each "
       "variable came from)"});
  show_command
      ->add_option("ID", show_options->entity,
                   "cluster, host/NAME, device/HOST/NAME, job/N, group/N/G, rank/N/R")
      ->required();
  show_command->add_flag("--env", show_options->environment,
                         "A job's environment, and where each value came from");
  on_run(show_command, cli, [&cli, show_options] {
    return show(cli, show_options->entity, show_options->environment);
  });

  auto options = std::make_shared<EventOptions>();
  auto* events_command =
      add_command(app, cli,
                  {"events", "Looking", "What happened and why, from the journal",
                   "regrow events\nregrow events 7 -f\nregrow events job/7 -o json"});
  events_command->add_option("ID", options->entity,
                             "Only this entity; of a job or host, those below it as well");
  events_command->add_option("--tail", options->limit,
                             "Only the last so many (default: 100 in a table, all in JSON)");
  events_command->add_flag("-f,--follow", options->follow, "Go on with what happens from now on");
  on_run(events_command, cli, [&cli, options] { return print_events(cli, *options); });
}

}  // namespace regrow::cli
