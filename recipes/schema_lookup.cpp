// Finding rows of the table, guessing what was meant, and describing rows in words.
#include <utility>

#include "recipes/diagnostic.h"
#include "recipes/schema_table.h"
#include "recipes/values.h"

namespace regrow {
namespace {

using Kind = ValueKind;

// Other tools' words for our keys.
constexpr std::pair<std::string_view, std::string_view> kOtherWords[] = {
    {"num_workers", "ranks"},
    {"workers", "ranks"},
    {"num_nodes", "ranks"},
    {"nnodes", "ranks"},
    {"nodes", "ranks"},
    {"world_size", "ranks"},
    {"num_processes", "ranks"},
    {"nprocs", "ranks"},
    {"ntasks", "ranks"},
    {"num_ranks", "ranks"},
    {"np", "ranks"},
    {"replicas", "groups"},
    {"nproc_per_node", "ranks_per_host"},
    {"ntasks_per_node", "ranks_per_host"},
    {"ranks_per_node", "ranks_per_host"},
    {"gpus", "devices.count"},
    {"num_gpus", "devices.count"},
    {"accelerators", "devices.count"},
    {"cmd", "command"},
    {"args", "command"},
    {"run", "command"},
    {"script", "command"},
    {"program", "command"},
    {"hosts", "ranks_per_host"},
    {"entrypoint", "command"},
    {"argv", "command"},
    {"python", "interpreter"},
    {"shell", "interpreter"},
    {"modules", "requires"},
    {"cwd", "working_directory"},
    {"workdir", "working_directory"},
    {"working_dir", "working_directory"},
    {"chdir", "working_directory"},
    {"environment", "env"},
    {"env_vars", "env"},
    {"envs", "env"},
    {"export", "pass_env"},
    {"inherit_env", "pass_env"},
    {"max_restarts", "restarts.program.max"},
    {"retries", "restarts.program.max"},
    {"max_retries", "restarts.program.max"},
    {"backoff_limit", "restarts.program.max"},
    {"restart_policy", "restarts"},
    {"restart", "restarts"},
    {"oom", "restarts.out_of_memory"},
    {"timeout", "timeouts.progress"},
    {"hang_timeout", "timeouts.progress"},
    {"host_timeout", "timeouts.host"},
    {"grace_period", "timeouts.stop_grace"},
    {"grace", "timeouts.stop_grace"},
    {"kill_timeout", "timeouts.stop_grace"},
    {"stop_signal", "stop.signal"},
    {"stop_scope", "stop.scope"},
    {"checkpoint_dir", "checkpoint.directory"},
    {"checkpoint_directory", "checkpoint.directory"},
    {"checkpoints", "checkpoint"},
    {"log", "logs"},
    {"steps", "progress.total_steps"},
    {"max_steps", "progress.total_steps"},
    {"ulimit", "limits.nofile"},
    {"job_name", "name"}};

// Splits "restarts.hang.max" at its dots.
std::vector<std::string_view> split_path(std::string_view path) {
  std::vector<std::string_view> parts;
  for (size_t dot; (dot = path.find('.')) != path.npos; path.remove_prefix(dot + 1)) {
    parts.push_back(path.substr(0, dot));
  }
  parts.push_back(path);
  return parts;
}

// Is `path` what the row's path says, CLASS being any failure class?
bool row_matches(const SchemaRow& row, std::string_view path) {
  if (row.path.find("CLASS") == row.path.npos) return row.path == path;
  std::vector<std::string_view> ours = split_path(row.path), theirs = split_path(path);
  if (ours.size() != theirs.size()) return false;
  FailureClass any{};
  for (size_t i = 0; i < ours.size(); ++i) {
    if (ours[i] == "CLASS" ? !from_string(theirs[i], any) : ours[i] != theirs[i]) return false;
  }
  return true;
}

// A row's path as an example that can be typed.
std::string typed_path(const SchemaRow& row) {
  std::string path(row.path);
  size_t at = path.find("CLASS");
  if (at != path.npos) path.replace(at, 5, "program");
  return path;
}

std::string join(std::string_view parent, std::string_view key) {
  return parent.empty() ? std::string(key) : std::string(parent) + "." + std::string(key);
}

}  // namespace

const SchemaRow* find_row(std::string_view path) {
  for (const SchemaRow& row : schema_table()) {
    if (row_matches(row, path)) return &row;
  }
  return nullptr;
}

std::vector<std::string_view> keys_under(std::string_view parent) {
  std::vector<std::string_view> keys;
  for (const SchemaRow& row : schema_table()) {
    if (row_matches(row, join(parent, row.leaf()))) keys.push_back(row.leaf());
  }
  return keys;
}

KeyGuess guess_key(std::string_view parent, std::string_view key) {
  std::string folded(key);
  for (char& c : folded) c = c == '-' ? '_' : c;
  for (const auto& [theirs, ours] : kOtherWords) {
    if (theirs == folded && parent != ours) return {std::string(ours), true};
  }
  for (const SchemaRow& row : schema_table()) {
    if (row.leaf() == folded && !row_matches(row, join(parent, key))) {
      // A key of our own level, but for '-' and '_', is only misspelt.
      if (find_row(join(parent, folded)) != nullptr) return {join(parent, folded), false};
      return {typed_path(row), true};
    }
  }
  if (std::string_view near = nearest_name(key, keys_under(parent)); !near.empty()) {
    return {join(parent, near), false};
  }
  std::vector<std::string_view> leaves;
  for (const SchemaRow& row : schema_table()) leaves.push_back(row.leaf());
  std::string_view near = nearest_name(key, leaves);
  for (const SchemaRow& row : schema_table()) {
    if (!near.empty() && row.leaf() == near) return {typed_path(row), true};
  }
  return {};
}

std::vector<std::string_view> split_choices(std::string_view choices) {
  std::vector<std::string_view> words;
  for (size_t bar; (bar = choices.find('|')) != choices.npos; choices.remove_prefix(bar + 1)) {
    words.push_back(choices.substr(0, bar));
  }
  words.push_back(choices);
  return words;
}

std::string format_number(const SchemaRow& row, uint64_t number) {
  switch (row.kind) {
    case Kind::duration:
    case Kind::window:
      return format_duration(number);
    case Kind::size:
      return format_size(number);
    default:
      return std::to_string(number);
  }
}

std::string describe_kind(const SchemaRow& row) {
  std::string range = " from " + format_number(row, row.min) + " to " + format_number(row, row.max);
  switch (row.kind) {
    case Kind::table:
      return "keys of its own";
    case Kind::name:
      return "a name of letters, digits, '.', '_' and '-'";
    case Kind::count:
      return "a whole number" + range;
    case Kind::duration:
      return "a time" + range;
    case Kind::size:
      return "a size" + range;
    case Kind::choice: {
      std::string text;
      for (std::string_view word : split_choices(row.choices)) {
        text += (text.empty() ? "" : ", ") + std::string(word);
      }
      return "one of " + text;
    }
    case Kind::directory:
      return "a directory";
    case Kind::program:
      return "the path of a program";
    case Kind::step_name:
      return "a file name with {step} in it";
    case Kind::shard_name:
      return "a file name; may hold {rank} and {step}";
    case Kind::file_name:
      return "a file name";
    case Kind::pattern:
      return "an RE2 expression";
    case Kind::arguments:
      return "a list of arguments";
    case Kind::modules:
      return "a list of Python modules";
    case Kind::variables:
      return "a list of variable names";
    case Kind::environment:
      return "a map from variable names to values";
    case Kind::limit:
      return "a whole number" + range + ", or unlimited";
    case Kind::window:
      return "a time" + range + ", or ever";
    case Kind::intensity:
      return "a whole number" + range + ", unlimited, or a table of max and window";
  }
  return {};
}

}  // namespace regrow
