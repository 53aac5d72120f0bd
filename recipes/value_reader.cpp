#include "recipes/value_reader.h"

#include <re2/re2.h>

#include <algorithm>
#include <filesystem>
#include <set>
#include <utility>
#include <variant>

#include "recipes/environment.h"
#include "recipes/text_check.h"
#include "recipes/values.h"

namespace regrow {
namespace {

using Kind = ValueKind;

constexpr size_t kLongestName = 100;
constexpr size_t kLongestFileName = 255;
constexpr size_t kLongestPath = 4095;
constexpr size_t kLongestPattern = 1000;

// Reads one value; the path grows for the items of a list.
class Reader {
 public:
  Reader(const SchemaRow& row, std::string_view path, const ReadContext& context, Report& report)
      : row_(row), path_(path), context_(context), report_(report) {}

  bool read(const YamlNode& node, RecipeValue& value) {
    switch (row_.kind) {
      case Kind::count:
        return read_number(node, parse_count, value);
      case Kind::duration:
        return read_number(node, parse_duration, value);
      case Kind::size:
        return read_number(node, parse_size, value);
      case Kind::limit:
      case Kind::intensity:
        if (is_word(node, "unlimited")) return value.unlimited = true;
        return read_number(node, parse_count, value);
      case Kind::window:
        return is_word(node, "ever") || read_number(node, parse_duration, value);
      case Kind::arguments:
      case Kind::modules:
      case Kind::variables:
        return read_list(node, value);
      case Kind::table:
      case Kind::environment:
        return expected(node);  // walked by the validator, never read here
      default:
        return read_text(node, value) && check_text_kind(node, value);
    }
  }

 private:
  bool fail(const YamlNode& node, std::string message, std::string_view hint = {}) {
    report_.add(node.position, path_, std::move(message), hint);
    return false;
  }

  bool expected(const YamlNode& node, std::string_view advice = {}, std::string_view hint = {}) {
    return fail(
        node,
        "expected " + describe_kind(row_) + ", got " + describe_node(node) + std::string(advice),
        hint);
  }

  static bool is_word(const YamlNode& node, std::string_view word) {
    return node.kind == YamlNode::Kind::scalar && node.text == word;
  }

  bool read_number(const YamlNode& node, ParsedNumber (*parse)(std::string_view),
                   RecipeValue& value) {
    if (node.kind != YamlNode::Kind::scalar) return expected(node);
    ParsedNumber parsed = parse(node.text);
    bool is_count = parse == parse_count;
    if (const auto* problem = std::get_if<ValueProblem>(&parsed)) {
      return is_count ? expected(node, {}, problem->hint)
                      : fail(node, problem->message, problem->hint);
    }
    if (is_count && node.quoted) return expected(node, "; take away the quotes", node.text);
    value.number = std::get<uint64_t>(parsed);
    if (value.number < row_.min || value.number > row_.max) return expected(node);
    return true;
  }

  bool read_text(const YamlNode& node, RecipeValue& value) {
    if (node.kind != YamlNode::Kind::scalar) return expected(node);
    if (row_.kind != Kind::choice && !node.quoted &&
        (looks_like_number(node.text) || looks_like_bool(node.text))) {
      return expected(node, "; if it is meant, put it in quotes", "\"" + node.text + "\"");
    }
    if (node.text.empty()) return fail(node, "is empty; leave the key out instead");
    for (char c : node.text) {
      if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) {
        return fail(node, "holds a line end or another control character: " + printable(node.text));
      }
    }
    value.text = node.text;
    return true;
  }

  bool check_text_kind(const YamlNode& node, RecipeValue& value) {
    switch (row_.kind) {
      case Kind::name:
        return check_name(node);
      case Kind::choice:
        return check_choice(node);
      case Kind::directory:
        return check_path(node) && resolve(value);
      case Kind::program:
        return check_program(node) && check_path(node) && resolve(value);
      case Kind::pattern:
        return check_pattern(node);
      default:
        return check_file_name(node);
    }
  }

  bool check_name(const YamlNode& node) {
    auto usable = [](char c) {
      return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
             c == '.' || c == '_' || c == '-';
    };
    std::string fixed;
    for (char c : node.text) fixed += usable(c) ? c : '-';
    while (!fixed.empty() && (fixed[0] == '-' || fixed[0] == '.')) fixed.erase(0, 1);
    fixed = fixed.substr(0, kLongestName);
    if (fixed != node.text) {
      return fail(node,
                  "expected " + describe_kind(row_) + ", at most " + std::to_string(kLongestName) +
                      ", not beginning with '.' or '-', got " + describe_node(node),
                  fixed);
    }
    return true;
  }

  bool check_choice(const YamlNode& node) {
    std::vector<std::string_view> words = split_choices(row_.choices);
    if (std::find(words.begin(), words.end(), node.text) != words.end()) return true;
    std::string_view text = node.text;
    if (text.starts_with("SIG")) text.remove_prefix(3);
    return expected(node, {}, nearest_name(text, words));
  }

  bool check_path(const YamlNode& node) {
    const std::string& text = node.text;
    if (text.size() > kLongestPath) return fail(node, "is longer than a path can be");
    if (text[0] == '~') {
      bool own = text.size() == 1 || text[1] == '/';
      std::string hint = own && !context_.home.empty() ? context_.home + text.substr(1) : "";
      return fail(node, "'~' is not expanded here; write the full path", hint);
    }
    if (text.find('$') != text.npos) {
      return fail(node, "variables are not expanded here; write the full path");
    }
    return true;
  }

  bool check_program(const YamlNode& node) {
    if (node.text.find('/') != node.text.npos || node.text[0] == '~') return true;
    return fail(node,
                "needs a full path: which " + printable(node.text) +
                    " that is would depend on somebody's PATH",
                "/usr/bin/" + printable(node.text));
  }

  bool resolve(RecipeValue& value) {
    std::filesystem::path path(value.text);
    if (path.is_relative()) path = std::filesystem::path(context_.directory) / path;
    // ".." stays: what it means depends on symbolic links.
    if (path.string().find("..") == std::string::npos) path = path.lexically_normal();
    value.text = path.string();
    while (value.text.size() > 1 && value.text.back() == '/') value.text.pop_back();
    return true;
  }

  bool check_file_name(const YamlNode& node) {
    const std::string& text = node.text;
    if (text.find('/') != text.npos || text == "." || text == "..") {
      return fail(node,
                  "expected " + describe_kind(row_) + " without '/', got " + describe_node(node));
    }
    if (text.size() > kLongestFileName) return fail(node, "is longer than a file name can be");
    std::vector<std::string_view> known;
    if (row_.kind == Kind::step_name) known = {"{step}"};
    if (row_.kind == Kind::shard_name) known = {"{rank}", "{step}"};
    std::string_view rest = text;
    int steps = 0;
    for (size_t brace; (brace = rest.find_first_of("{}")) != rest.npos;) {
      rest.remove_prefix(brace);
      auto place =
          std::find_if(known.begin(), known.end(), [&](auto p) { return rest.starts_with(p); });
      if (place == known.end()) return fail_brace(node, rest, known);
      steps += *place == "{step}" ? 1 : 0;
      rest.remove_prefix(place->size());
    }
    if (row_.kind == Kind::step_name && steps != 1) {
      return fail(node, "needs {step} exactly once, where the step number stands",
                  steps == 0 ? text + "_{step}" : "");
    }
    return true;
  }

  bool fail_brace(const YamlNode& node, std::string_view rest,
                  const std::vector<std::string_view>& known) {
    std::string_view word = rest.substr(0, std::min(rest.find('}'), rest.size() - 1) + 1);
    std::string list;
    for (std::string_view place : known) list += (list.empty() ? "" : " and ") + std::string(place);
    if (list.empty()) return fail(node, "no {placeholder} is filled in here");
    return fail(node,
                "only " + list + (known.size() == 1 ? " is" : " are") + " filled in here, not " +
                    printable(word),
                nearest_name(word, known));
  }

  bool check_pattern(const YamlNode& node) {
    if (node.text.size() > kLongestPattern) {
      return fail(node, "is longer than " + std::to_string(kLongestPattern) + " bytes");
    }
    RE2::Options options;
    options.set_log_errors(false);
    options.set_max_mem(1 << 20);
    RE2 pattern(node.text, options);
    if (!pattern.ok()) return fail(node, "not a pattern RE2 understands: " + pattern.error());
    if (pattern.NamedCapturingGroups().count("step") == 0) {
      return fail(node,
                  "has no group named step; write (?P<step>[0-9]+) where the step number stands");
    }
    return true;
  }

  bool read_list(const YamlNode& node, RecipeValue& value) {
    if (node.kind == YamlNode::Kind::scalar)
      return expected(node, "; write a list", as_list(node.text));
    if (node.kind != YamlNode::Kind::list) return expected(node);
    if (node.items.empty()) return fail(node, "is empty; leave the key out instead");
    bool good = true;
    std::set<std::string> seen;
    std::string list_path = path_;
    for (size_t i = 0; i < node.items.size(); ++i) {
      path_ = list_path + "[" + std::to_string(i) + "]";
      const YamlNode& item = node.items[i];
      if (item.kind == YamlNode::Kind::broken) {
        good = false;
      } else if (!read_item(item)) {
        good = false;
      } else if (row_.kind != Kind::arguments && !seen.insert(item.text).second) {
        good = fail(item, printable(item.text) + " is here twice");
      }
      value.list.push_back(item.text);
    }
    path_ = list_path;
    return good;
  }

  bool read_item(const YamlNode& item) {
    if (item.kind == YamlNode::Kind::null)
      return fail(item, "is empty; write \"\" or \"null\" if it is meant");
    if (item.kind != YamlNode::Kind::scalar) {
      return fail(item,
                  "expected text, got " + describe_node(item) + "; put it in quotes if it is text");
    }
    if (!is_valid_utf8(item.text)) return fail(item, "not UTF-8: " + printable(item.text));
    if (row_.kind == Kind::modules) return check_module(item);
    if (row_.kind == Kind::variables) return check_variable(item);
    if (path_ == "command[0]" && item.text.empty())
      return fail(item, "the program's name is empty");
    return true;
  }

  bool check_module(const YamlNode& item) {
    for (std::string_view rest = item.text;;) {
      size_t dot = rest.find('.');
      if (!is_variable_name(rest.substr(0, dot))) {
        return fail(item, printable(item.text) + " is no Python module name");
      }
      if (dot == rest.npos) return true;
      rest.remove_prefix(dot + 1);
    }
  }

  bool check_variable(const YamlNode& item) {
    if (item.text.find('*') != item.text.npos) {
      return fail(item, "name each variable; patterns like " + printable(item.text) +
                            " let in what nobody meant");
    }
    if (!is_variable_name(item.text))
      return fail(item, printable(item.text) + " is no variable name");
    if (std::string why = why_never_passed(item.text); !why.empty()) {
      return fail(item, item.text + " is never taken from the submitter: " + why);
    }
    return true;
  }

  // "train.py --fast" as the list it was meant to be; through a shell if it uses one.
  std::string as_list(std::string_view text) const {
    if (row_.kind == Kind::arguments && text.find_first_of("|&;<>$`'\"\\*?(){}") != text.npos) {
      std::string quoted;
      for (char c : printable(text)) quoted += c == '\'' ? "''" : std::string(1, c);
      return "[sh, -c, '" + quoted + "']";
    }
    std::string list;
    for (char c : printable(text)) {
      if (c != ' ' && c != ',') {
        list += c;
      } else if (!list.empty() && list.back() != ' ') {
        list += ", ";
      }
    }
    return "[" + list + "]";
  }

  const SchemaRow& row_;
  std::string path_;
  const ReadContext& context_;
  Report& report_;
};

}  // namespace

std::string describe_node(const YamlNode& node) {
  switch (node.kind) {
    case YamlNode::Kind::null:
      return "nothing";
    case YamlNode::Kind::list:
      return "a list";
    case YamlNode::Kind::map:
      return "keys and values";
    case YamlNode::Kind::broken:
      return "something unreadable";
    case YamlNode::Kind::scalar:
      break;
  }
  if (!node.quoted && looks_like_number(node.text)) return "the number " + printable(node.text);
  if (!node.quoted && looks_like_bool(node.text)) return "the truth value " + printable(node.text);
  return "the text \"" + printable(node.text) + "\"";
}

bool read_value(const SchemaRow& row, std::string_view path, const YamlNode& node,
                const ReadContext& context, Report& report, RecipeValue& value) {
  if (node.kind == YamlNode::Kind::broken) return false;
  return Reader(row, path, context, report).read(node, value);
}

}  // namespace regrow
