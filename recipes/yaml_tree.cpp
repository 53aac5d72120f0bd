#include "recipes/yaml_tree.h"

#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/mark.h>
#include <yaml-cpp/parser.h>

#include <algorithm>
#include <cstdint>
#include <exception>
#include <istream>
#include <streambuf>
#include <unordered_map>
#include <utility>

#include "recipes/diagnostic.h"
#include "recipes/text_check.h"

namespace regrow {
namespace {

constexpr size_t kDeepest = 8;        // the schema itself needs four levels
constexpr size_t kMostNodes = 50000;  // a command or environment this long cannot be started anyway
constexpr size_t kMostProblems = 50;

// Reads the caller's text in place.
class ViewBuffer : public std::streambuf {
 public:
  explicit ViewBuffer(std::string_view text) {
    // The get area is never written to; std::streambuf just has no const interface.
    char* begin = const_cast<char*>(text.data());
    setg(begin, begin, begin + text.size());
  }
};

// Ends the parse at once; thrown and caught within this file.
struct Abandon {
  YamlProblem problem;
};

// yaml-cpp's marks count bytes; people and editors count characters.
class Positions {
 public:
  explicit Positions(std::string_view text) : text_(text) {}

  SourcePosition of(const YAML::Mark& mark) {
    if (mark.line < 0 || mark.pos < mark.column) return {1, 1};
    auto at = std::min(static_cast<size_t>(mark.pos), text_.size());
    auto line_start = std::min(static_cast<size_t>(mark.pos - mark.column), at);
    // Marks mostly go forward: counting on from the last one keeps a very long line linear.
    if (line_start != line_start_ || at < at_) {
      line_start_ = at_ = line_start;
      column_ = 0;
    }
    for (; at_ < at; ++at_) column_ += (static_cast<unsigned char>(text_[at_]) & 0xC0) != 0x80;
    return {mark.line + 1, column_ + 1};
  }

 private:
  std::string_view text_;
  size_t line_start_ = 0;
  size_t at_ = 0;
  int column_ = 0;
};

// Turns yaml-cpp's events into YamlNodes. Events come from a recursive parser, so an exception
// thrown here unwinds it: nesting never gets deep enough to hurt the stack.
class TreeBuilder : public YAML::EventHandler {
 public:
  TreeBuilder(std::string_view text, Positions& positions, std::vector<YamlProblem>& problems)
      : text_(text), positions_(positions), problems_(problems) {}

  YamlNode take_root() { return std::move(root_); }

  void OnDocumentStart(const YAML::Mark& mark) override {
    if (++documents_ == 1) return;
    SourcePosition position = positions_.of(mark);
    throw Abandon{
        {position, "",
         "this does not belong to what stands above it: wrong indentation, or a second document "
         "(a recipe is one document)",
         ""}};
  }
  void OnDocumentEnd() override {}

  void OnNull(const YAML::Mark& mark, YAML::anchor_t) override {
    YamlNode node;
    node.position = positions_.of(mark);
    add(std::move(node), false);
  }

  void OnAlias(const YAML::Mark& mark, YAML::anchor_t) override {
    add(refused(mark, "aliases (*name) are not supported; write the value out"), false);
  }

  void OnAnchor(const YAML::Mark& mark, const std::string&) override {
    report(positions_.of(mark), "anchors (&name) are not supported; write the value out");
  }

  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& value) override {
    if (is_tag(tag)) {
      add(refused_tag(mark, tag), true);
      return;
    }
    YamlNode node;
    node.kind = YamlNode::Kind::scalar;
    node.text = value;
    node.quoted = tag == "!";
    node.position = positions_.of(mark);
    if (value.find('\0') != value.npos) {
      node = refused(mark, "holds a NUL character (\\0), which no program can be given");
    } else if (!is_valid_utf8(value)) {
      // yaml-cpp makes single bytes of \N and \_.
      node = refused(
          mark, "holds an escape that gives no UTF-8 here; write \\u0085 for \\N, \\u00a0 for \\_");
    } else if (!node.quoted && anchor == YAML::NullAnchor && !written_as(mark, value)) {
      node = refused(mark,
                     "text without quotes goes on over several lines; use quotes, or | for lines");
    }
    add(std::move(node), true);
  }

  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t,
                       YAML::EmitterStyle::value) override {
    open(mark, tag, YamlNode::Kind::list);
  }
  void OnSequenceEnd() override { close(); }
  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t,
                  YAML::EmitterStyle::value) override {
    open(mark, tag, YamlNode::Kind::map);
  }
  void OnMapEnd() override { close(); }

 private:
  // A map or list that is being read.
  struct Level {
    YamlNode node;
    bool want_key = false;
    bool skip_value = false;  // the key was refused: its value is read and dropped
    std::string key;
    SourcePosition key_position;
    std::unordered_map<std::string, int> lines;  // of the keys so far
  };

  static bool is_tag(const std::string& tag) { return !tag.empty() && tag != "?" && tag != "!"; }

  // Is the scalar's text in the file just what the parser made of it, i.e. was nothing folded?
  bool written_as(const YAML::Mark& mark, const std::string& value) const {
    auto at = static_cast<size_t>(mark.pos);
    if (mark.pos < 0 || at >= text_.size()) return value.empty();
    return text_.substr(at).starts_with(value);
  }

  void report(SourcePosition position, std::string message, std::string hint = {}) {
    if (problems_.size() >= kMostProblems) {
      throw Abandon{{position, "", "too many problems; giving up here", ""}};
    }
    problems_.push_back({position, path(), std::move(message), std::move(hint)});
  }

  YamlNode refused(const YAML::Mark& mark, std::string message) {
    YamlNode node;
    node.kind = YamlNode::Kind::broken;
    node.position = positions_.of(mark);
    report(node.position, std::move(message));
    return node;
  }

  YamlNode refused_tag(const YAML::Mark& mark, const std::string& tag) {
    std::string name = tag;
    constexpr std::string_view kCore = "tag:yaml.org,2002:";
    if (name.starts_with(kCore)) name = "!!" + name.substr(kCore.size());
    if (name == "!include") {
      return refused(mark, "!include is not supported; a recipe is one file");
    }
    return refused(mark, "tags (" + printable(name) + ") are not supported; write the plain value");
  }

  // Where we are, as "devices.count" or "command[2]".
  std::string path() const {
    std::string text;
    for (const Level& level : levels_) {
      if (level.node.kind == YamlNode::Kind::list) {
        text += "[" + std::to_string(level.node.items.size()) + "]";
      } else if (!level.want_key) {
        if (!text.empty()) text += ".";
        text += printable(level.key);
      }
    }
    return text;
  }

  void open(const YAML::Mark& mark, const std::string& tag, YamlNode::Kind kind) {
    SourcePosition position = positions_.of(mark);
    if (is_tag(tag)) refused_tag(mark, tag);
    if (!levels_.empty() && levels_.back().want_key) {
      throw Abandon{{position, path(), "a key must be a plain name, not a list or a map", ""}};
    }
    if (levels_.size() >= kDeepest) {
      throw Abandon{{position, "", "nested deeper than any recipe can be", ""}};
    }
    Level level;
    level.node.kind = kind;
    level.node.position = position;
    level.want_key = kind == YamlNode::Kind::map;
    levels_.push_back(std::move(level));
  }

  void close() {
    YamlNode node = std::move(levels_.back().node);
    levels_.pop_back();
    add(std::move(node), false);
  }

  void add(YamlNode node, bool may_be_key) {
    if (++nodes_ > kMostNodes) {
      throw Abandon{
          {node.position, "", "more values than any recipe can need; giving up here", ""}};
    }
    if (levels_.empty()) {
      root_ = std::move(node);
      return;
    }
    Level& level = levels_.back();
    if (level.node.kind == YamlNode::Kind::list) {
      level.node.items.push_back(std::move(node));
    } else if (level.want_key) {
      take_key(level, node, may_be_key);
    } else {
      level.want_key = true;
      if (!level.skip_value) {
        level.node.entries.push_back({std::move(level.key), level.key_position, std::move(node)});
      }
    }
  }

  void take_key(Level& level, YamlNode& node, bool may_be_key) {
    level.want_key = false;
    level.key = node.text;
    level.key_position = node.position;
    level.skip_value = true;
    if (node.kind == YamlNode::Kind::broken) return;
    if (!may_be_key) {
      report(node.position, "a key is missing before ':'");
    } else if (level.key == "<<" && !node.quoted) {
      report(node.position, "merge keys (<<) are not supported; write the keys out");
    } else if (auto [it, fresh] = level.lines.try_emplace(level.key, node.position.line); !fresh) {
      report(node.position,
             "the key is here twice; it is also on line " + std::to_string(it->second));
    } else {
      level.skip_value = false;
    }
  }

  std::string_view text_;
  Positions& positions_;
  std::vector<YamlProblem>& problems_;
  std::vector<Level> levels_;
  YamlNode root_;
  size_t nodes_ = 0;
  int documents_ = 0;
};

// yaml-cpp's words for the mistakes that people make, in ours.
std::string explain(const std::string& message) {
  static constexpr std::pair<std::string_view, std::string_view> kWords[] = {
      {"illegal map value",
       "a ':' where none can be: two on one line, or the line is not indented like its neighbours "
       "(put text "
       "that holds ': ' in quotes)"},
      {"end of sequence flow not found", "'[' is not closed by ']'"},
      {"end of map flow not found", "'{' is not closed by '}'"},
      {"end of map not found", "this is not indented like the keys above it"},
      {"end of sequence not found", "this is not indented like the items above it"},
      {"illegal EOF in scalar", "a quote is opened here and never closed"},
      {"unknown token", "text cannot begin with this character; put it in quotes"},
      {"illegal block entry", "a '- ' where no list item can be"},
      {"illegal flow end", "']' or '}' without its '[' or '{'"},
      {"bad file", "nested deeper than any recipe can be"},
  };
  for (const auto& [theirs, ours] : kWords) {
    if (message == theirs) return std::string(ours);
  }
  // Theirs ends with the raw byte, which may be a control character or half of one that is not
  // ASCII.
  if (message.starts_with("unknown escape character"))
    return "a '\\' in double quotes that begins no escape of YAML; write '\\\\', or use single "
           "quotes";
  return "not valid YAML: " + printable(message, 200);
}

}  // namespace

YamlNode* YamlNode::find(std::string_view key) {
  for (YamlEntry& entry : entries) {
    if (entry.key == key) return &entry.value;
  }
  return nullptr;
}

YamlTree parse_yaml(std::string_view text) {
  YamlTree tree;
  constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
  if (text.starts_with(kByteOrderMark)) text.remove_prefix(kByteOrderMark.size());
  tree.problems = check_text(text);
  if (!tree.problems.empty()) return tree;
  Positions positions(text);
  try {
    ViewBuffer buffer(text);
    std::istream stream(&buffer);
    YAML::Parser parser(stream);
    TreeBuilder builder(text, positions, tree.problems);
    while (parser.HandleNextDocument(builder)) {
    }
    tree.root = builder.take_root();
    if (tree.root.position.line == 0) tree.root.position = {1, 1};
    tree.complete = true;
  } catch (const Abandon& abandon) {
    tree.problems.push_back(abandon.problem);
  } catch (const YAML::Exception& error) {
    tree.problems.push_back({positions.of(error.mark), "", explain(error.msg), ""});
  } catch (const std::exception& error) {
    tree.problems.push_back(
        {{1, 1}, "", std::string("cannot be read as YAML: ") + error.what(), ""});
  }
  return tree;
}

}  // namespace regrow
