#include "recipes/overrides.h"

#include <string_view>
#include <utility>

#include "recipes/schema_table.h"
#include "recipes/text_check.h"

namespace regrow {
namespace {

void place_at(YamlNode& node, SourcePosition position) {
  node.position = position;
  for (YamlNode& item : node.items) place_at(item, position);
  for (YamlEntry& entry : node.entries) {
    entry.key_position = position;
    place_at(entry.value, position);
  }
}

YamlNode scalar(std::string_view text, bool quoted, SourcePosition position) {
  YamlNode node;
  node.kind = YamlNode::Kind::scalar;
  node.text = text;
  node.quoted = quoted;
  node.position = position;
  return node;
}

class Override {
 public:
  Override(YamlNode& root, Report& report, std::string_view text, int index)
      : root_(root), report_(report), position_{0, 0, index} {
    size_t equals = text.find('=');
    has_value_ = equals != text.npos;
    path_ = text.substr(0, equals);
    if (has_value_) value_ = text.substr(equals + 1);
  }

  void apply() {
    if (!has_value_ || path_.empty()) return complain("", "needs the form --set key=value");
    if (!is_valid_utf8(path_) || !is_valid_utf8(value_)) return complain("", "not UTF-8");
    if (path_.starts_with("env.")) {
      set(path_, scalar(value_, true, position_));
      return;
    }
    const SchemaRow* row = find_row(path_);
    if (row == nullptr) return complain_unknown();
    switch (row->kind) {
      case ValueKind::table:
      case ValueKind::environment:
        return complain_table();
      case ValueKind::arguments:
      case ValueKind::modules:
      case ValueKind::variables:
      case ValueKind::intensity:
        return set_yaml();
      case ValueKind::count:
      case ValueKind::limit:
        return set(path_, scalar(value_, false, position_));
      default:
        // The shell has eaten any quotes: what is left is text.
        return set(path_, scalar(value_, true, position_));
    }
  }

 private:
  void complain(std::string_view key_path, std::string message, std::string_view hint = {}) {
    report_.add(position_, key_path, std::move(message), hint);
  }

  void complain_unknown() {
    size_t dot = path_.rfind('.');
    std::string_view parent = dot == path_.npos ? std::string_view() : path_.substr(0, dot);
    std::string_view key = dot == path_.npos ? path_ : path_.substr(dot + 1);
    KeyGuess guess = guess_key(parent, key);
    if (guess.path.empty() && !parent.empty() && find_row(parent) == nullptr)
      guess = guess_key("", parent);
    complain(printable(path_), "unknown key", guess.path);
  }

  void complain_table() {
    std::string example = path_ == "env" ? "env.NAME=value" : std::string(path_) + ".KEY=value";
    complain(path_, "has keys of its own; set one of them: --set " + example);
  }

  void set_yaml() {
    YamlTree tree = parse_yaml("value: " + std::string(value_));
    for (const YamlProblem& problem : tree.problems) complain(path_, problem.message, problem.hint);
    if (!tree.problems.empty()) return;
    if (tree.root.entries.size() != 1) return complain(path_, "expected one list, as in [a, b]");
    YamlNode value = std::move(tree.root.entries[0].value);
    place_at(value, position_);
    set(path_, std::move(value));
  }

  // Puts `value` at `path`, making tables on the way. If the file has something else than a table
  // there, checking the file will say so.
  void set(std::string_view path, YamlNode value) {
    YamlNode* table = &root_;
    for (size_t dot; (dot = path.find('.')) != path.npos; path.remove_prefix(dot + 1)) {
      std::string_view key = path.substr(0, dot);
      table = &child(*table, key);
      expand_limit(*table, path_.substr(0, path_.size() - path.size() + dot));
      if (table->kind == YamlNode::Kind::null) table->kind = YamlNode::Kind::map;
      if (table->kind != YamlNode::Kind::map) return;
    }
    child(*table, path) = std::move(value);
  }

  YamlNode& child(YamlNode& table, std::string_view key) {
    if (YamlNode* found = table.find(key)) return *found;
    YamlNode node;
    node.position = position_;
    table.entries.push_back({std::string(key), position_, std::move(node)});
    return table.entries.back().value;
  }

  // `program: 3` is short for `program: {max: 3}`; another key of it can only join the long form.
  static void expand_limit(YamlNode& node, std::string_view path) {
    const SchemaRow* row = find_row(path);
    if (node.kind != YamlNode::Kind::scalar || row == nullptr || row->kind != ValueKind::intensity)
      return;
    YamlNode limit = node;
    node = {};
    node.kind = YamlNode::Kind::map;
    node.position = limit.position;
    node.entries.push_back({"max", limit.position, std::move(limit)});
  }

  YamlNode& root_;
  Report& report_;
  SourcePosition position_;
  std::string_view path_;
  std::string_view value_;
  bool has_value_ = false;
};

}  // namespace

void apply_overrides(YamlNode& root, const std::vector<std::string>& overrides, Report& report) {
  for (size_t i = 0; i < overrides.size(); ++i) {
    Override(root, report, overrides[i], static_cast<int>(i)).apply();
  }
}

}  // namespace regrow
