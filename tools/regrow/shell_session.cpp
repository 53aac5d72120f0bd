#include "tools/regrow/shell_session.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdlib>

#include "recipes/diagnostic.h"
#include "supervisors/types.h"
#include "tools/regrow/application.h"
#include "tools/regrow/entity_text.h"
#include "tools/regrow/text.h"

namespace regrow::cli {

namespace {

constexpr size_t kMostTreeLines = 5000;
constexpr uint64_t kEvents = 20;

// Commands of `regrow` that make sense here as they are.
constexpr std::array<const char*, 12> kLent{"status", "jobs",   "hosts",    "devices",
                                            "ranks",  "logs",   "cancel",   "pause",
                                            "resume", "cordon", "uncordon", "fault"};

bool is_lent(const std::string& word) {
  return std::any_of(kLent.begin(), kLent.end(), [&](const char* name) { return word == name; });
}

std::string last_part(const std::string& path) { return path.substr(path.rfind('/') + 1); }

}  // namespace

std::vector<std::string> split_words(const std::string& line) {
  std::vector<std::string> words;
  std::string word;
  bool quoted = false;
  bool in_word = false;
  for (char c : line) {
    if (c == '"') {
      quoted = !quoted;
      in_word = true;
    } else if (std::isspace(static_cast<unsigned char>(c)) != 0 && !quoted) {
      if (in_word) words.push_back(std::exchange(word, ""));
      in_word = false;
    } else {
      word += c;
      in_word = true;
    }
  }
  if (in_word) words.push_back(word);
  return words;
}

const std::vector<ShellSession::Command>& ShellSession::commands() {
  static const std::vector<Command> kCommands{
      {"ls", "[ID]", "children, each with a summary", &ShellSession::list},
      {"cd", "[ID | ..]", "go to a node; without one to the cluster", &ShellSession::change},
      {"pwd", "", "where you are", &ShellSession::where},
      {"show", "[ID]", "full state, and whether it is equal to the fold of its journal",
       &ShellSession::show},
      {"why", "[ID]", "last inputs, what was decided and the reasons", &ShellSession::why},
      {"actor", "[ID]", "messages waiting, restarts", &ShellSession::actor},
      {"events", "[ID] [N]", "last N events (20)", &ShellSession::events},
      {"tree", "[ID]", "everything below", &ShellSession::tree},
      {"help", "", "this list", &ShellSession::help},
      {"quit", "", "leave (also exit, Ctrl-D)", &ShellSession::quit},
  };
  return kCommands;
}

int ShellSession::execute(const std::string& line) {
  auto words = split_words(line);
  if (words.empty() || words[0][0] == '#') return kExitOk;
  std::string name = words[0];
  if (name == "exit") name = "quit";
  if (name == "children") name = "ls";
  if (name == "?") name = "help";
  for (const auto& command : commands()) {
    if (name == command.name) return (this->*command.run)(words);
  }
  if (is_lent(name)) {
    if (!cli_.cluster.empty()) words.insert(words.end(), {"--cluster", cli_.cluster});
    if (!cli_.certs.empty()) words.insert(words.end(), {"--certs", cli_.certs});
    return run_command_line(words);
  }
  std::vector<std::string_view> names;
  for (const auto& command : commands()) names.push_back(command.name);
  for (const char* lent : kLent) names.push_back(lent);
  std::string nearest(nearest_name(name, names));
  fail(kExitUsage, "there is no command \"" + one_line(name) + "\"" +
                       (nearest.empty() ? "" : " (did you mean " + nearest + "?)") +
                       "; help lists them");
}

Json ShellSession::ask(const std::string& entity) {
  return or_fail(ask_entity(cli_.client(), entity));
}

Json ShellSession::children_of(const std::string& entity) {
  return child(cli_.query("children", {{"entity", entity}}), "children");
}

std::string ShellSession::resolve(const std::string& text) {
  if (text == "/" || text == "~") return "cluster";
  if (text == ".") return here_;
  if (text == "..") {
    std::string parent = get<std::string>(ask(here_), "parent");
    return parent.empty() ? "cluster" : parent;
  }
  if (parse_entity_id(text)) return text;
  // A child of this node by the last part of its name: "2" in a group is its rank 2.
  for (const auto& row : children_of(here_)) {
    std::string entity = get<std::string>(row, "entity");
    if (last_part(entity) == text) return entity;
  }
  return parse_entity(text);
}

std::string ShellSession::target(const std::vector<std::string>& words) {
  return words.size() > 1 ? resolve(words[1]) : here_;
}

int ShellSession::list(const std::vector<std::string>& words) {
  Json children = children_of(target(words));
  say(cli_.json() ? dump(children, 2) + "\n" : children_text(children, cli_.terminal));
  return kExitOk;
}

int ShellSession::change(const std::vector<std::string>& words) {
  std::string to = words.size() > 1 ? resolve(words[1]) : "cluster";
  ask(to);  // an error if there is no such entity
  here_ = to;
  return kExitOk;
}

int ShellSession::where(const std::vector<std::string>&) {
  say(here_ + "\n");
  return kExitOk;
}

int ShellSession::show(const std::vector<std::string>& words) {
  Json answer = ask(target(words));
  if (cli_.json()) {
    say(dump(answer, 2) + "\n");
  } else {
    say(head_text(answer) + full_state_text(answer, cli_.terminal) + actor_text(answer));
  }
  return kExitOk;
}

int ShellSession::why(const std::vector<std::string>& words) {
  Json answer = ask(target(words));
  say(cli_.json() ? dump(child(child(answer, "actor"), "decisions"), 2) + "\n"
                  : decisions_text(answer, cli_.terminal));
  return kExitOk;
}

int ShellSession::actor(const std::vector<std::string>& words) {
  Json answer = ask(target(words));
  say(cli_.json() ? dump(child(answer, "actor"), 2) + "\n" : actor_text(answer));
  return kExitOk;
}

int ShellSession::events(const std::vector<std::string>& words) {
  uint64_t limit = kEvents;
  std::vector<std::string> rest = words;
  if (rest.size() > 2) {
    limit = std::strtoull(rest[2].c_str(), nullptr, 10);
    if (limit == 0) fail(kExitUsage, "\"" + one_line(rest[2]) + "\" is not a number of events");
  }
  std::string entity = target(rest);
  Json args{{"limit", limit}, {"tail", true}};
  // Everything is below the cluster.
  if (entity != "cluster") args["entity"] = entity;
  Json found = child(cli_.query("events", args), "events");
  bool with_entity =
      entity == "cluster" || entity.starts_with("job/") || entity.starts_with("host/");
  say(cli_.json() ? dump(found, 2) + "\n" : events_text(found, cli_.terminal, with_entity));
  return kExitOk;
}

void ShellSession::add_tree(std::string& out, const std::string& entity, const std::string& summary,
                            size_t depth, size_t& lines) {
  if (lines >= kMostTreeLines) return;
  if (++lines == kMostTreeLines) {
    out += "... (more; ask for a part of it)\n";
    return;
  }
  std::string line = std::string(depth * 2, ' ') + one_line(entity);
  if (!summary.empty()) line += "  " + cli_.terminal.paint(Tone::quiet, one_line(summary));
  out += line + "\n";
  for (const auto& row : children_of(entity)) {
    add_tree(out, get<std::string>(row, "entity"), get<std::string>(row, "summary"), depth + 1,
             lines);
  }
}

int ShellSession::tree(const std::vector<std::string>& words) {
  std::string out;
  size_t lines = 0;
  add_tree(out, target(words), "", 0, lines);
  say(out);
  return kExitOk;
}

int ShellSession::help(const std::vector<std::string>&) {
  std::string out;
  for (const auto& command : commands()) {
    std::string head = std::string(command.name) + " " + command.arguments;
    head.resize(std::max<size_t>(head.size(), 18), ' ');
    out += "  " + head + command.about + "\n";
  }
  out +=
      "ID is a full name (job/7, rank/7/3, host/h1, device/h1/sim0), a child's last part, or ..\n"
      "As on the command line:";
  for (const char* name : kLent) out += std::string(" ") + name;
  say(out + "\n");
  return kExitOk;
}

int ShellSession::quit(const std::vector<std::string>&) {
  over_ = true;
  return kExitOk;
}

std::vector<std::string> ShellSession::known_entities(std::string_view word) {
  std::vector<std::string> found;
  auto add = [&](const Json& children) {
    for (const auto& row : children) found.push_back(get<std::string>(row, "entity"));
  };
  add(children_of("cluster"));
  if (here_ != "cluster") add(children_of(here_));
  std::string text(word);
  auto first = text.find('/');
  auto second = first == std::string::npos ? first : text.find('/', first + 1);
  if (second != std::string::npos) {
    std::string kind = text.substr(0, first);
    std::string owner = text.substr(first + 1, second - first - 1);
    if (kind == "device") add(children_of("host/" + owner));
    if (kind == "group" || kind == "rank") add(children_of("job/" + owner));
    if (kind == "rank") {
      for (const auto& group : children_of("job/" + owner))
        add(children_of(get<std::string>(group, "entity")));
    }
  }
  found.push_back("cluster");
  return found;
}

std::vector<std::string> ShellSession::complete(std::string_view line, size_t begin,
                                                std::string_view word) {
  std::vector<std::string> candidates;
  bool first = line.substr(0, begin).find_first_not_of(' ') == std::string_view::npos;
  if (first) {
    for (const auto& command : commands()) candidates.emplace_back(command.name);
    for (const char* name : kLent) candidates.emplace_back(name);
  } else {
    try {
      candidates = known_entities(word);
    } catch (const CommandFailed&) {
      return {};
    }
  }
  std::erase_if(candidates,
                [&](const std::string& text) { return !std::string_view(text).starts_with(word); });
  std::sort(candidates.begin(), candidates.end());
  candidates.erase(std::unique(candidates.begin(), candidates.end()), candidates.end());
  return candidates;
}

}  // namespace regrow::cli
