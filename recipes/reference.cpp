// docs/recipes.md and the recipe of `regrow init`, written from the table.
#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "recipes/recipe.h"
#include "recipes/schema_table.h"

namespace regrow {
namespace {

constexpr std::string_view kIntroduction = R"(# Recipes

<!-- Written from recipes/schema_table.cpp by REGROW_UPDATE_DOCS=1 test_recipes; a test compares. -->

A recipe is one YAML file that says everything about a job. `regrow init` writes one with every key in it,
`regrow validate FILE` checks one, `regrow run FILE` runs it.

```yaml
name: hello
ranks: 4
interpreter: /usr/bin/python3
command: [train.py, --epochs, 10]
checkpoint:
  directory: checkpoints
  marker: COMPLETE
progress:
  pattern: 'step (?P<step>[0-9]+)'
```

Recipes are read strictly, since a silent default is the most expensive typo there is. An unknown key, a
wrong type, a missing key or an impossible value is refused with its place, all of them in one go, and
nothing is started:

```
train.yaml:4:3: devices.memroy: unknown key (did you mean 'memory'?)
train.yaml:7:8: ranks: expected a whole number from 1 to 100000, got the text "4"; take away the quotes (did you mean '4'?)
```

- Times have a unit (`500ms`, `10s`, `5m`, `2h`, `1d`), and so have sizes (`64MiB`, `8GB`).
- Numbers are not quoted. Text that looks like a number or a truth value is, except in `command` and `env`,
  which take values as they are written.
- Paths: a relative one starts at the recipe's directory; `~` and `$NAME` are not expanded.
- One document of at most 1 MiB in UTF-8, spaces for indentation; no duplicate keys, anchors, aliases, merge
  keys, tags or includes.
- `--set key=value` (`--set ranks=8`, `--set env.SEED=7`, `--set 'command=[train.py, --fast]'`) wins over the
  file and passes the same checks; the last one wins.
)";

constexpr std::string_view kEnvironmentNotes = R"(
## What is in a rank's environment

Nothing but the following, whoever submits from wherever; `regrow show` of the job tells where each value came
from. Later ones win.

1. `PATH` (the same for everybody) and `HOME`, `USER`, `LOGNAME`, `SHELL` of the account.
2. Variables named in `pass_env`, where the submitter has them. Those that describe another job or shell
   (`SLURM_*`, `PMI*`, `OMPI_*`, `LD_PRELOAD`, CPU binding ...) are never taken; if ranks need one, write it
   under `env`.
3. Variables under `env`.
4. What regrow sets for each rank; it cannot be set here: `RANK`, `LOCAL_RANK`, `WORLD_SIZE` and the others of
   torchrun, `MASTER_ADDR`, `MASTER_PORT`, `TORCHELASTIC_*`, `REGROW_*` and the variables that pin devices, such
   as `CUDA_VISIBLE_DEVICES`.

Where none of these sets them, ranks also get `LANG=C.UTF-8`, `TMPDIR`, `PYTHONUNBUFFERED=1`,
`TORCH_NCCL_ASYNC_ERROR_HANDLING=1` and, with several ranks on a host, `OMP_NUM_THREADS=1`.

Linux starts no program with a single variable or argument of more than 131072 bytes. Put a long list into a
file and pass its path.
)";

constexpr std::string_view kTemplateHead =
    R"(# A regrow recipe. `regrow validate FILE` checks it, `regrow run FILE` runs it.
#
# The keys that are not commented out are needed. To use another one, take away the '#' at the
# beginning of its line and of its table's line. Times have a unit (500ms, 10s, 5m, 2h), and so
# have sizes (64MiB, 8GB). docs/recipes.md explains all keys.
)";

std::string default_of(const SchemaRow& row) {
  if (row.required) return "needed";
  if (row.default_text.empty()) return "none";
  return "`" + std::string(row.default_text) + "`";
}

// '|' would end a table's cell.
std::string cell(std::string_view text) {
  std::string out;
  for (char c : text) out += c == '|' ? "\\|" : std::string(1, c);
  return out;
}

std::string table_row(const SchemaRow& row, std::string_view prefix) {
  std::string name(row.path.substr(prefix.size()));
  std::string example =
      row.example.empty() ? "" : " For example `" + std::string(row.example) + "`.";
  return "| `" + name + "` | " + cell(describe_kind(row)) + " | " + cell(default_of(row)) + " | " +
         cell(row.doc) + cell(example) + " |\n";
}

bool is_table(const SchemaRow& row) { return row.kind == ValueKind::table; }

std::string_view first_part(std::string_view path) { return path.substr(0, path.find('.')); }

constexpr std::string_view kTableHead =
    "\n| key | value | default | meaning |\n|---|---|---|---|\n";

// As it would be written behind "key:".
std::string sample_value(const SchemaRow& row) {
  return std::string(row.example.empty() ? row.default_text : row.example);
}

// Wraps `text` into comment lines of at most 100 columns.
std::string comment(std::string_view text, std::string_view indent) {
  constexpr size_t kColumns = 100;
  std::string out, line;
  auto flush = [&] {
    if (!line.empty()) out += std::string(indent) + "#" + line + "\n";
    line.clear();
  };
  while (!text.empty()) {
    size_t space = std::min(text.find(' '), text.size());
    if (indent.size() + 1 + line.size() + 1 + space > kColumns) flush();
    line += " " + std::string(text.substr(0, space));
    text.remove_prefix(std::min(space + 1, text.size()));
  }
  flush();
  return out;
}

// One key of the template, commented out with '#' in the first column unless it is needed.
std::string template_key(const SchemaRow& row) {
  auto depth = static_cast<size_t>(std::count(row.path.begin(), row.path.end(), '.'));
  std::string indent(2 * depth, ' ');
  std::string line = indent + std::string(row.leaf()) + ":";
  if (!is_table(row)) line += " " + sample_value(row);
  if (depth == 0) {
    return "\n" + comment(row.doc, "") + (row.required ? line : "#" + line) + "\n";
  }
  return comment(row.doc, "#" + indent) + "#" + line + "\n";
}

}  // namespace

std::string recipe_reference_markdown() {
  std::string text(kIntroduction);
  text += "\n## Keys\n" + std::string(kTableHead);
  for (const SchemaRow& row : schema_table()) {
    if (row.nested()) continue;
    if (is_table(row)) {
      text += "| [`" + std::string(row.path) + "`](#" + std::string(row.path) +
              ") | keys of its own | | " + cell(row.doc) + " |\n";
    } else {
      text += table_row(row, "");
    }
  }
  for (const SchemaRow& row : schema_table()) {
    if (row.nested() || !is_table(row)) continue;
    std::string prefix = std::string(row.path) + ".";
    text += "\n## " + std::string(row.path) + "\n\n" + std::string(row.doc) + "\n" +
            std::string(kTableHead);
    for (const SchemaRow& key : schema_table()) {
      if (first_part(key.path) == row.path && key.nested() && !is_table(key))
        text += table_row(key, prefix);
    }
  }
  return text + std::string(kEnvironmentNotes);
}

std::string recipe_template() {
  std::string text(kTemplateHead);
  for (const SchemaRow& row : schema_table()) {
    if (row.path.find("CLASS") == row.path.npos) text += template_key(row);
  }
  return text;
}

}  // namespace regrow
