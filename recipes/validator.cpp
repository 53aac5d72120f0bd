#include "recipes/validator.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "recipes/schema_table.h"
#include "recipes/text_check.h"
#include "recipes/value_reader.h"
#include "recipes/values.h"

namespace regrow {
namespace {

std::string join(std::string_view parent, std::string_view key) {
  return parent.empty() ? std::string(key) : std::string(parent) + "." + std::string(key);
}

std::string_view base_name(std::string_view path) { return path.substr(path.rfind('/') + 1); }

std::string count_of(uint64_t n, std::string_view noun) {
  return std::to_string(n) + " " + std::string(noun) + (n == 1 ? "" : "s");
}

class Validator {
 public:
  Validator(const LoadOptions& options, Report& report)
      : options_(options), report_(report), context_{options.directory, options.account.home} {}

  JobSpec run(const YamlNode& root) {
    apply_defaults();
    check_table(root, "");
    report_missing(root);
    check_layout();
    check_program();
    check_checkpoint();
    check_progress();
    check_times();
    check_logs();
    assemble_environment();
    check_sizes();
    spec_.uid = options_.uid;
    spec_.gid = options_.gid;
    return std::move(spec_);
  }

 private:
  // ---- each key for itself

  void apply_defaults() {
    for (FailureClass failure_class : all_failure_classes()) {
      spec_.intensity.push_back({failure_class, 0, {}});
    }
    for (const SchemaRow& row : schema_table()) {
      if (row.default_text.empty() || row.store == nullptr ||
          row.path.find("CLASS") != row.path.npos)
        continue;
      YamlNode node;
      node.kind = YamlNode::Kind::scalar;
      node.text = row.default_text;
      RecipeValue value;
      if (read_value(row, row.path, node, context_, report_, value))
        row.store(spec_, row.path, value);
    }
  }

  static std::vector<FailureClass> all_failure_classes() {
    std::vector<FailureClass> classes;
    for (std::string_view name : FailureClass_names) {
      from_string(name, classes.emplace_back());
    }
    return classes;
  }

  void check_table(const YamlNode& table, const std::string& path) {
    for (const YamlEntry& entry : table.entries) {
      std::string key_path = join(path, entry.key);
      // A key with a dot in it would look like a nested one.
      const SchemaRow* row = entry.key.find('.') == entry.key.npos ? find_row(key_path) : nullptr;
      if (row == nullptr) {
        report_unknown(entry, path);
      } else {
        check_value(*row, key_path, entry);
      }
    }
  }

  void check_value(const SchemaRow& row, const std::string& path, const YamlEntry& entry) {
    const YamlNode& node = entry.value;
    mentioned_.emplace(path, entry.key_position);
    if (node.kind == YamlNode::Kind::broken) return;
    bool is_table = row.kind == ValueKind::table ||
                    (row.kind == ValueKind::intensity && node.kind == YamlNode::Kind::map);
    if (is_table && node.kind == YamlNode::Kind::map) return check_table(node, path);
    if (row.kind == ValueKind::environment) return check_environment(node, entry.key_position);
    if (is_table) {
      std::string list;
      for (std::string_view key : keys_under(path))
        list += (list.empty() ? "" : ", ") + std::string(key);
      return fail(node.position, path,
                  "expected keys of its own (" + list + "), got " + describe_node(node));
    }
    RecipeValue value;
    // "nothing" is best shown where the key is.
    YamlNode shown = node;
    if (node.kind == YamlNode::Kind::null && node.position.override_index < 0)
      shown.position = entry.key_position;
    if (!read_value(row, path, shown, context_, report_, value)) return;
    if (row.kind == ValueKind::variables) {
      pass_ = node;
    } else {
      row.store(spec_, path, value);
    }
    good_.emplace(path, node.position);
  }

  void report_unknown(const YamlEntry& entry, const std::string& parent) {
    std::string path = join(parent, printable(entry.key));
    if (report_.full()) return fail(entry.key_position, path, "unknown key");
    if (entry.key.find('.') != entry.key.npos && find_row(path) != nullptr) {
      return fail(entry.key_position, path, "dots are for --set; write one key below the other");
    }
    KeyGuess guess = guess_key(parent, entry.key);
    if (!guess.path.empty()) {
      guessed_.insert(guess.path);
      bool sibling = !guess.elsewhere && !parent.empty();
      std::string hint = sibling ? guess.path.substr(parent.size() + 1) : guess.path;
      return fail(entry.key_position, path, guess.elsewhere ? "unknown key here" : "unknown key",
                  hint);
    }
    std::string list;
    for (std::string_view key : keys_under(parent))
      list += (list.empty() ? "" : ", ") + std::string(key);
    fail(entry.key_position, path, "unknown key; known here: " + list);
  }

  void report_missing(const YamlNode& root) {
    for (const SchemaRow& row : schema_table()) {
      std::string path(row.path);
      // A misspelt key has been reported already.
      if (!row.required || mentioned_.count(path) > 0 || guessed_.count(path) > 0) continue;
      fail(root.position, path,
           "missing; for example `" + path + ": " + std::string(row.example) + "`");
    }
  }

  void check_environment(const YamlNode& node, SourcePosition key_position) {
    if (node.kind != YamlNode::Kind::map) {
      bool nothing = node.kind == YamlNode::Kind::null;
      return fail(
          nothing ? key_position : node.position, "env",
          "expected variable names and values, as in `env: {SEED: 7}`, got " + describe_node(node));
    }
    for (const YamlEntry& entry : node.entries) {
      std::string path = "env." + printable(entry.key);
      const YamlNode& value = entry.value;
      if (value.kind == YamlNode::Kind::broken) continue;
      if (!is_variable_name(entry.key)) {
        fail(entry.key_position, path,
             "no variable name: letters, digits and '_', not beginning with a digit");
      } else if (std::string why = why_set_by_regrow(entry.key); !why.empty()) {
        fail(entry.key_position, path, "cannot be set here: " + why);
      } else if (value.kind != YamlNode::Kind::scalar) {
        std::string advice =
            value.kind == YamlNode::Kind::null ? "; write \"\" for an empty value" : "";
        fail(entry.key_position, path, "expected one value, got " + describe_node(value) + advice);
      } else {
        bool set = value.position.override_index >= 0;
        own_.push_back({entry.key, value.text, set ? "recipe --set" : "recipe"});
        good_.emplace("env." + entry.key, set ? value.position : entry.key_position);
      }
    }
  }

  // ---- what several keys mean together

  void check_layout() {
    if (good("ranks") && good("groups") && spec_.ranks % spec_.groups != 0) {
      fail(good_["groups"], "groups",
           std::to_string(spec_.groups) + " groups cannot share " + count_of(spec_.ranks, "rank") +
               " evenly",
           std::to_string(nearest_divisor(spec_.ranks, spec_.groups)));
    }
    if (good("devices.memory") && good("devices.count") && spec_.devices.count == 0 &&
        spec_.devices.memory_bytes > 0) {
      fail(good_["devices.memory"], "devices.memory",
           "asks for device memory, but devices.count is 0");
    }
    if (good("limits.nofile") && spec_.nofile > 0 && spec_.nofile < 64) {
      fail(good_["limits.nofile"], "limits.nofile",
           "no program runs with " + count_of(spec_.nofile, "open file") +
               "; at least 64, or 0 for the hard limit");
    }
  }

  static uint32_t nearest_divisor(uint32_t ranks, uint32_t groups) {
    for (uint32_t away = 1; away < groups; ++away) {
      if (ranks % (groups - away) == 0) return groups - away;
      if (groups + away <= ranks && ranks % (groups + away) == 0) return groups + away;
    }
    return 1;
  }

  void check_program() {
    if (good("requires") && mentioned_.count("interpreter") == 0) {
      fail(mentioned_["requires"], "requires",
           "needs `interpreter`, which is asked whether it can import them",
           "interpreter: /usr/bin/python3");
    }
    if (spec_.rendezvous == Rendezvous::store && mentioned_.count("interpreter") == 0) {
      fail(mentioned_["rendezvous"], "rendezvous", "a store needs `interpreter`, which runs it",
           "interpreter: /usr/bin/python3");
    }
    if (spec_.recovery != RecoveryScope::job && spec_.rendezvous != Rendezvous::store) {
      fail(mentioned_["recovery"], "recovery",
           "survivors and new ranks meet in a store of regrow's, not at rank 0, which may be the "
           "lost one; it needs `rendezvous: store`",
           "rendezvous: store");
    }
    if (good("interpreter") && good("command") &&
        base_name(spec_.command[0]) == base_name(spec_.interpreter)) {
      fail(good_["command"], "command[0]",
           "the interpreter is put before the command already; begin with the script");
    }
  }

  void check_checkpoint() {
    auto table = mentioned_.find("checkpoint");
    if (table == mentioned_.end() || mentioned_.count("checkpoint.directory") > 0 ||
        guessed_.count("checkpoint.directory") > 0) {
      return;
    }
    fail(table->second, "checkpoint.directory", "missing; for example `directory: checkpoints`");
  }

  void check_progress() {
    bool has_pattern =
        mentioned_.count("progress.pattern") > 0 || guessed_.count("progress.pattern") > 0;
    // Ranks may report their steps themselves, which nobody can know here: then it is enough to say
    // how long one may take. The default of `start` would end a job whose progress nobody can see.
    if (has_pattern) return;
    const char* start = "timeouts.start";
    if (good(start) && spec_.timeouts.start.us > 0 && spec_.timeouts.progress.us == 0) {
      fail(good_[start], start,
           "needs `progress.pattern`, or `timeouts.progress` for ranks that call regrow.step(): "
           "without them no progress is ever seen");
    }
    if (mentioned_.count(start) == 0) spec_.timeouts.start = {0};
  }

  void check_times() {
    check_order("restarts.backoff.initial", spec_.backoff.initial, "restarts.backoff.cap",
                spec_.backoff.cap);
    check_order("timeouts.host", spec_.timeouts.host, "timeouts.max_unreachable",
                spec_.timeouts.max_unreachable);
  }

  // `low` may not be longer than `high`; a default gives way to what the recipe says.
  void check_order(const std::string& low_path, Duration& low, const std::string& high_path,
                   Duration& high) {
    if (low <= high) return;
    if (mentioned_.count(high_path) == 0) {
      high = low;
    } else if (mentioned_.count(low_path) == 0) {
      low = high;
    } else if (good(low_path) && good(high_path)) {
      fail(good_[low_path], low_path,
           format_duration(static_cast<uint64_t>(low.us)) + " is longer than " + high_path +
               ", which is " + format_duration(static_cast<uint64_t>(high.us)));
    }
  }

  void check_logs() {
    LogLimits& logs = spec_.logs;
    if (logs.segment_bytes <= logs.cap_bytes / 2) return;
    if (mentioned_.count("logs.segment") == 0) {
      logs.segment_bytes = logs.cap_bytes / 4;
    } else if (good("logs.segment") && (good("logs.cap") || mentioned_.count("logs.cap") == 0)) {
      fail(good_["logs.segment"], "logs.segment",
           format_size(logs.segment_bytes) + " is more than half of logs.cap, which is " +
               format_size(logs.cap_bytes),
           format_size(logs.cap_bytes / 2));
    }
  }

  // ---- environment and size

  void assemble_environment() {
    std::vector<EnvVar> passed;
    for (size_t i = 0; i < pass_.items.size(); ++i) {
      const std::string& name = pass_.items[i].text;
      std::string path = "pass_env[" + std::to_string(i) + "]";
      if (good("env." + name)) {
        fail(pass_.items[i].position, path, name + " is also set under env; leave one of them out");
        continue;
      }
      auto found = options_.submitter_environment.find(name);
      if (found == options_.submitter_environment.end()) continue;
      if (!is_valid_utf8(found->second)) {
        fail(pass_.items[i].position, path, "the submitter's " + name + " is not UTF-8");
        continue;
      }
      passed.push_back({name, found->second, "submitter"});
      good_.emplace("env." + name, pass_.items[i].position);
    }
    spec_.environment = merge_environment({account_environment(options_.account), passed, own_});
  }

  void check_sizes() {
    std::optional<Oversize> oversize = find_oversize(spec_);
    if (!oversize) return;
    std::string path = oversize->is_argument ? oversize->name : "env." + oversize->name;
    SourcePosition position = oversize->is_argument ? position_of_argument() : good_[path];
    std::string size = std::to_string(oversize->bytes) + " bytes";
    std::string message = oversize->name + " has " + size +
                          "; Linux starts no program with one longer than " +
                          std::to_string(kLongestString);
    if (oversize->total > 0) {
      message = "arguments and environment have " + std::to_string(oversize->total) +
                " bytes, more than the " + std::to_string(kMostStartBytes) +
                " a program can be started with; the largest is " + oversize->name + " with " +
                size;
    }
    fail(position, path, message + "; put a long list into a file and pass its path");
  }

  SourcePosition position_of_argument() {
    auto found = good_.find("command");
    return found == good_.end() ? SourcePosition{1, 1} : found->second;
  }

  // ----

  bool good(const std::string& path) const { return good_.count(path) > 0; }

  void fail(SourcePosition position, std::string_view path, std::string message,
            std::string_view hint = {}) {
    report_.add(position, path, std::move(message), hint);
  }

  const LoadOptions& options_;
  Report& report_;
  ReadContext context_;
  JobSpec spec_;
  YamlNode pass_;            // the list of pass_env
  std::vector<EnvVar> own_;  // of env
  std::map<std::string, SourcePosition>
      mentioned_;  // keys of the recipe, right or wrong: where the key is
  std::map<std::string, SourcePosition> good_;  // keys that have a usable value: where the value is
  std::set<std::string> guessed_;               // keys that an unknown key was probably meant to be
};

}  // namespace

JobSpec validate(const YamlNode& root, const LoadOptions& options, Report& report) {
  return Validator(options, report).run(root);
}

}  // namespace regrow
