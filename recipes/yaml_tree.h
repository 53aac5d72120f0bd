// A recipe's YAML as a plain tree that knows where each piece stands.
//
// The subset of YAML is small on purpose: one document of maps, lists and scalars. Tabs in
// indentation, duplicate keys, anchors, aliases, merge keys, tags, a second document, text that is
// not UTF-8, NUL bytes and deep nesting are refused. Scalars keep their text exactly as written
// (1.10 stays "1.10", NO stays "NO"); what they mean is the validator's business. Nothing is
// thrown; time and memory are bounded by the size of the text, which the caller limits.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "recipes/diagnostic.h"

namespace regrow {

struct YamlEntry;

struct YamlNode {
  //   null    nothing, ~ or null
  //   broken  refused and already reported (an alias, a tag): say no more about it
  enum class Kind { null, scalar, list, map, broken };

  Kind kind = Kind::null;
  std::string text;     // of a scalar
  bool quoted = false;  // "text", 'text', | or >: certainly text, never a number
  SourcePosition position;
  std::vector<YamlNode> items;     // of a list
  std::vector<YamlEntry> entries;  // of a map, in the order written, keys unique

  YamlNode* find(std::string_view key);
};

struct YamlEntry {
  std::string key;
  SourcePosition key_position;
  YamlNode value;
};

struct YamlProblem {
  SourcePosition position;
  std::string key_path;
  std::string message;
  std::string hint;
};

struct YamlTree {
  YamlNode root;
  std::vector<YamlProblem> problems;
  bool complete = false;  // false: the text could not be read to its end; `root` is not to be used
};

YamlTree parse_yaml(std::string_view text);

}  // namespace regrow
