// The one table of recipe keys. Validation, `--set`, docs/recipes.md and `regrow init` all read it,
// so a key that is added here is accepted, documented and shown by all of them.
//
// Constant data; any thread. To add a key: a row in schema_table.cpp with its kind, default, range,
// one line of explanation and the function that stores it in the JobSpec; then write
// docs/recipes.md anew (REGROW_UPDATE_DOCS=1 test_recipes).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "supervisors/job_spec.h"

namespace regrow {

// What a value looks like.
//   table        keys of its own
//   name         letters, digits, '.', '_' and '-'
//   count        a whole number
//   duration     number and unit: 500ms, 10s, 5m, 2h
//   size         number and unit: 64MiB, 8GB
//   choice       one of the words in `choices`
//   directory    a path; a relative one starts at the recipe's directory
//   program      a path to an executable
//   step_name    a file name with {step}
//   shard_name   a file name, {rank} and {step} filled in
//   file_name    a file name
//   pattern      an RE2 expression with a group named step
//   arguments    a list of command line arguments
//   modules      a list of Python modules
//   variables    a list of environment variable names
//   environment  a map from variable names to values
//   limit        a whole number or `unlimited`
//   window       a duration or `ever`
//   intensity    a limit, or a table of `max` and `window`
enum class ValueKind {
  table,
  name,
  count,
  duration,
  size,
  choice,
  directory,
  program,
  step_name,
  shard_name,
  file_name,
  pattern,
  arguments,
  modules,
  variables,
  environment,
  limit,
  window,
  intensity
};

// A value of any kind after it was read.
struct RecipeValue {
  uint64_t number = 0;            // count, duration (microseconds), size (bytes), limit, window
  bool unlimited = false;         // limit
  std::string text;               // the kinds that are one text
  std::vector<std::string> list;  // the kinds that are a list
};

struct SchemaRow {
  std::string_view path = {};  // "devices.count"; CLASS in it stands for any failure class
  ValueKind kind = ValueKind::table;
  bool required = false;
  std::string_view default_text = {};  // as it would be written; empty = none
  uint64_t min = 0;                    // of numbers; durations in microseconds, sizes in bytes
  uint64_t max = 0;
  std::string_view choices = {};  // "rank|group|job"
  std::string_view example = {};  // for the template and the docs; empty = the default
  std::string_view doc = {};      // one line
  // Null for tables and for the environment, which is assembled from several keys. `path` is the
  // row's with CLASS filled in.
  void (*store)(JobSpec& spec, std::string_view path, const RecipeValue& value) = nullptr;

  std::string_view leaf() const { return path.substr(path.rfind('.') + 1); }
  std::string_view parent() const {
    return path.substr(0, path.size() - leaf().size() - (nested() ? 1 : 0));
  }
  bool nested() const { return path.find('.') != path.npos; }
};

// All rows, in the order in which a person wants to read them; a table comes before its keys.
const std::vector<SchemaRow>& schema_table();

// The row of "devices.count" or "restarts.hang.max"; null if there is no such key.
const SchemaRow* find_row(std::string_view path);

// The names of the keys directly under `parent` ("" = the top level, "restarts.hang").
std::vector<std::string_view> keys_under(std::string_view parent);

// The full path that a key was probably meant to be, written as `key` under `parent`; empty = no
// idea. `elsewhere` tells whether the key exists, or a word of another tool for it, but in another
// place.
struct KeyGuess {
  std::string path;
  bool elsewhere = false;
};
KeyGuess guess_key(std::string_view parent, std::string_view key);

std::vector<std::string_view> split_choices(std::string_view choices);

// "a whole number from 1 to 100000", for messages and docs.
std::string describe_kind(const SchemaRow& row);

// A number of this row's kind as one would write it.
std::string format_number(const SchemaRow& row, uint64_t number);

}  // namespace regrow
