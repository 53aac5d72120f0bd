// Scenario 34: every mistake is refused with its place, the key's path and the nearest valid name.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "tests/catch.h"
#include "tests/recipes/recipe_helpers.h"

namespace regrow::test {
namespace {

struct BadRecipe {
  std::string what;
  std::string text;
  std::string expected;  // all diagnostics, as printed
};

void check_all(const std::vector<BadRecipe>& cases) {
  for (const BadRecipe& bad : cases) {
    INFO(bad.what);
    RecipeResult result = load(bad.text);
    CHECK_FALSE(result.spec);
    CHECK(to_string(result.diagnostics) == bad.expected);
  }
}

// `more` stands on line 4 and after.
BadRecipe with(std::string what, std::string_view more, std::string expected) {
  return {std::move(what), recipe_with(more), std::move(expected)};
}

}  // namespace

TEST_CASE("an unknown key is refused with the nearest one") {
  check_all({
      {"misspelt at the top", "nmae: x\nranks: 4\ncommand: [run]\n",
       "r.yaml:1:1: nmae: unknown key (did you mean 'name'?)\n"},
      {"another tool's word", "name: x\nnum_workers: 2\ncommand: [run]\n",
       "r.yaml:2:1: num_workers: unknown key here (did you mean 'ranks'?)\n"},
      {"letter case", "name: x\nRanks: 2\ncommand: [run]\n",
       "r.yaml:2:1: Ranks: unknown key (did you mean 'ranks'?)\n"},
      with("misspelt below", "devices:\n  kind: gpu\n  memroy: 8GB\n",
           "r.yaml:6:3: devices.memroy: unknown key (did you mean 'memory'?)\n"),
      with("two levels below", "restarts: {hang: {max: 1, windw: 1h}}\n",
           "r.yaml:4:27: restarts.hang.windw: unknown key (did you mean 'window'?)\n"),
      with("dashes", "ranks-per-host: 2\n",
           "r.yaml:4:1: ranks-per-host: unknown key (did you mean 'ranks_per_host'?)\n"),
      with("right key, wrong level: it belongs below", "memory: 8GB\n",
           "r.yaml:4:1: memory: unknown key here (did you mean 'devices.memory'?)\n"),
      with("right key, wrong level: it belongs above", "devices:\n  spares: 3\n",
           "r.yaml:5:3: devices.spares: unknown key here (did you mean 'spares'?)\n"),
      with("right key, wrong table", "timeouts: {cap: 3s}\n",
           "r.yaml:4:12: timeouts.cap: unknown key here (did you mean 'restarts.backoff.cap'?)\n"),
      with("a path as a key", "devices.count: 2\n",
           "r.yaml:4:1: devices.count: dots are for --set; write one key below the other\n"),
      with("no idea", "stop: {xylophone: 1}\n",
           "r.yaml:4:8: stop.xylophone: unknown key; known here: signal, scope\n"),
      with("terminal codes are not printed", "\"a\\e[31m\": 1\n",
           "r.yaml:4:1: a\\x1b[31m: unknown key; known here: name, ranks, groups, spares, "
           "ranks_per_host, "
           "devices, interpreter, command, requires, rendezvous, working_directory, env, pass_env, "
           "limits, "
           "checkpoint, "
           "recovery, restarts, success, timeouts, stop, progress, logs\n"),
  });
}

TEST_CASE("a missing key is named with an example") {
  check_all({
      {"all", "spares: 1\n",
       "r.yaml:1:1: name: missing; for example `name: my-training`\n"
       "r.yaml:1:1: ranks: missing; for example `ranks: 4`\n"
       "r.yaml:1:1: command: missing; for example `command: [train.py, --epochs, 10]`\n"},
      with("checkpoint", "checkpoint: {marker: DONE}\n",
           "r.yaml:4:1: checkpoint.directory: missing; for example `directory: checkpoints`\n"),
  });
}

TEST_CASE("a wrong type is refused") {
  check_all({
      {"number as text", "name: x\nranks: \"4\"\ncommand: [run]\n",
       "r.yaml:2:8: ranks: expected a whole number from 1 to 100000, got the text \"4\"; take away "
       "the "
       "quotes (did you mean '4'?)\n"},
      {"word for a number", "name: x\nranks: four\ncommand: [run]\n",
       "r.yaml:2:8: ranks: expected a whole number from 1 to 100000, got the text \"four\"\n"},
      {"fraction", "name: x\nranks: 4.0\ncommand: [run]\n",
       "r.yaml:2:8: ranks: expected a whole number from 1 to 100000, got the number 4.0\n"},
      {"nothing", "name: x\nranks:\ncommand: [run]\n",
       "r.yaml:2:1: ranks: expected a whole number from 1 to 100000, got nothing\n"},
      {"octal", "name: x\nranks: 010\ncommand: [run]\n",
       "r.yaml:2:8: ranks: expected a whole number from 1 to 100000, got the number 010 (did you "
       "mean "
       "'10'?)\n"},
      {"number for a name", "name: 42\nranks: 4\ncommand: [run]\n",
       "r.yaml:1:7: name: expected a name of letters, digits, '.', '_' and '-', got the number 42; "
       "if it is "
       "meant, put it in quotes (did you mean '\"42\"'?)\n"},
      {"truth value for a name", "name: on\nranks: 4\ncommand: [run]\n",
       "r.yaml:1:7: name: expected a name of letters, digits, '.', '_' and '-', got the truth "
       "value on; if "
       "it is meant, put it in quotes (did you mean '\"on\"'?)\n"},
      {"command as text", "name: x\nranks: 4\ncommand: python3 train.py --fast\n",
       "r.yaml:3:10: command: expected a list of arguments, got the text \"python3 train.py "
       "--fast\"; write "
       "a list (did you mean '[python3, train.py, --fast]'?)\n"},
      {"command for a shell", "name: x\nranks: 4\ncommand: echo $RANK | tee x\n",
       "r.yaml:3:10: command: expected a list of arguments, got the text \"echo $RANK | tee x\"; "
       "write a "
       "list (did you mean '[sh, -c, 'echo $RANK | tee x']'?)\n"},
      {"map in the command", "name: x\nranks: 4\ncommand:\n  - a\n  - b: c\n",
       "r.yaml:5:5: command[1]: expected text, got keys and values; put it in quotes if it is "
       "text\n"},
      {"null in the command", "name: x\nranks: 4\ncommand: [a, null]\n",
       "r.yaml:3:14: command[1]: is empty; write \"\" or \"null\" if it is meant\n"},
      {"empty command", "name: x\nranks: 4\ncommand: []\n",
       "r.yaml:3:10: command: is empty; leave the key out instead\n"},
      {"two arguments that became one", "name: x\nranks: 4\ncommand:\n  - train.py\n    --fast\n",
       "r.yaml:4:5: command[0]: text without quotes goes on over several lines; use quotes, or | "
       "for "
       "lines\n"},
      with("text for a table", "devices: gpu\n",
           "r.yaml:4:10: devices: expected keys of its own (kind, count, memory), got the text "
           "\"gpu\"\n"),
      with("table for text", "recovery: {rank: 1}\n",
           "r.yaml:4:11: recovery: expected one of rank, group, job, got keys and values\n"),
      with("list for env", "env: [A=1]\n",
           "r.yaml:4:6: env: expected variable names and values, as in `env: {SEED: 7}`, got a "
           "list\n"),
  });
}

TEST_CASE("an impossible value is refused") {
  check_all({
      {"a billion ranks", "name: x\nranks: 1000000000\ncommand: [run]\n",
       "r.yaml:2:8: ranks: expected a whole number from 1 to 100000, got the number 1000000000\n"},
      {"1e9", "name: x\nranks: 1e9\ncommand: [run]\n",
       "r.yaml:2:8: ranks: expected a whole number from 1 to 100000, got the number 1e9\n"},
      {"more than 64 bits", "name: x\nranks: 99999999999999999999999\ncommand: [run]\n",
       "r.yaml:2:8: ranks: expected a whole number from 1 to 100000, got the number "
       "99999999999999999999999\n"},
      {"negative", "name: x\nranks: -4\ncommand: [run]\n",
       "r.yaml:2:8: ranks: expected a whole number from 1 to 100000, got the number -4\n"},
      {"zero", "name: x\nranks: 0\ncommand: [run]\n",
       "r.yaml:2:8: ranks: expected a whole number from 1 to 100000, got the number 0\n"},
      {"name", "name: my job\nranks: 4\ncommand: [run]\n",
       "r.yaml:1:7: name: expected a name of letters, digits, '.', '_' and '-', at most 100, not "
       "beginning "
       "with '.' or '-', got the text \"my job\" (did you mean 'my-job'?)\n"},
      with("groups that do not divide", "groups: 3\n",
           "r.yaml:4:9: groups: 3 groups cannot share 4 ranks evenly (did you mean '2'?)\n"),
      with("spares", "spares: -1\n",
           "r.yaml:4:9: spares: expected a whole number from 0 to 100000, got the number -1\n"),
      with("choice", "recovery: jbo\n",
           "r.yaml:4:11: recovery: expected one of rank, group, job, got the text \"jbo\" (did you "
           "mean "
           "'job'?)\n"),
      with("signal", "stop: {signal: SIGTERM}\n",
           "r.yaml:4:16: stop.signal: expected one of TERM, INT, HUP, QUIT, USR1, USR2, got the "
           "text "
           "\"SIGTERM\" (did you mean 'TERM'?)\n"),
      with("time without unit", "timeouts: {stop_grace: 30}\n",
           "r.yaml:4:24: timeouts.stop_grace: a time needs a unit, as in 500ms, 10s, 5m or 2h (did "
           "you mean "
           "'30s'?)\n"),
      with("unknown unit of time", "timeouts: {stop_grace: 1 min}\n",
           "r.yaml:4:24: timeouts.stop_grace: expected a time like 500ms, 10s, 5m or 2h; there is "
           "no unit "
           "'min' (did you mean '1m'?)\n"),
      with(
          "negative time", "timeouts: {stop_grace: -1s}\n",
          "r.yaml:4:24: timeouts.stop_grace: expected a time like 500ms, 10s, 5m or 2h, got -1s\n"),
      with("too long", "timeouts: {stop_grace: 99999d}\n",
           "r.yaml:4:24: timeouts.stop_grace: expected a time from 0s to 1d, got the text "
           "\"99999d\"\n"),
      with("size without unit", "devices: {memory: 80}\n",
           "r.yaml:4:19: devices.memory: a size needs a unit, as in 64MiB or 8GB (did you mean "
           "'80MiB'?)\n"),
      with("half a unit", "logs: {cap: 64M}\n",
           "r.yaml:4:13: logs.cap: expected a size like 64MiB or 8GB; there is no unit 'M' (did "
           "you mean "
           "'64MiB'?)\n"),
      with("log segment", "logs: {cap: 1MiB, segment: 1MiB}\n",
           "r.yaml:4:28: logs.segment: 1MiB is more than half of logs.cap, which is 1MiB (did you "
           "mean "
           "'512KiB'?)\n"),
      with("back-off", "restarts: {backoff: {initial: 2m, cap: 1m}}\n",
           "r.yaml:4:31: restarts.backoff.initial: 2m is longer than restarts.backoff.cap, which "
           "is 1m\n"),
      with("intensity", "restarts: {program: often}\n",
           "r.yaml:4:21: restarts.program: expected a whole number from 0 to 1000000, unlimited, "
           "or a table "
           "of max and window, got the text \"often\"\n"),
      with("open files", "limits: {nofile: 3}\n",
           "r.yaml:4:18: limits.nofile: no program runs with 3 open files; at least 64, or 0 for "
           "the hard "
           "limit\n"),
      with("memory of no device", "devices: {count: 0, memory: 1GiB}\n",
           "r.yaml:4:29: devices.memory: asks for device memory, but devices.count is 0\n"),
  });
}

TEST_CASE("programs, paths and patterns that cannot work are refused") {
  check_all({
      with("interpreter by PATH", "interpreter: python3\n",
           "r.yaml:4:14: interpreter: needs a full path: which python3 that is would depend on "
           "somebody's "
           "PATH (did you mean '/usr/bin/python3'?)\n"),
      {"interpreter twice",
       "name: x\nranks: 4\ninterpreter: /usr/bin/python3\ncommand: [python3, a.py]\n",
       "r.yaml:4:10: command[0]: the interpreter is put before the command already; begin with the "
       "script\n"},
      with("modules without interpreter", "requires: [torch]\n",
           "r.yaml:4:1: requires: needs `interpreter`, which is asked whether it can import them "
           "(did you "
           "mean 'interpreter: /usr/bin/python3'?)\n"),
      with("survivors without a place to meet", "recovery: rank\n",
           "r.yaml:4:1: recovery: survivors and new ranks meet in a store of regrow's, not at rank "
           "0, which may be the lost one; it needs `rendezvous: store` (did you mean "
           "'rendezvous: store'?)\n"),
      with("store without interpreter", "rendezvous: store\n",
           "r.yaml:4:1: rendezvous: a store needs `interpreter`, which runs it (did you mean "
           "'interpreter: /usr/bin/python3'?)\n"),
      with("module name", "interpreter: /usr/bin/python3\nrequires: [\"torch; rm\"]\n",
           "r.yaml:5:12: requires[0]: torch; rm is no Python module name\n"),
      with("tilde", "working_directory: ~/x\n",
           "r.yaml:4:20: working_directory: '~' is not expanded here; write the full path (did you "
           "mean "
           "'/home/ann/x'?)\n"),
      with("variable", "checkpoint: {directory: $HOME/x}\n",
           "r.yaml:4:25: checkpoint.directory: variables are not expanded here; write the full "
           "path\n"),
      with(
          "line end in a path", "working_directory: \"a\\nb\"\n",
          "r.yaml:4:20: working_directory: holds a line end or another control character: a\\nb\n"),
      with("entry without step", "checkpoint: {directory: c, entry: foo}\n",
           "r.yaml:4:35: checkpoint.entry: needs {step} exactly once, where the step number stands "
           "(did you "
           "mean 'foo_{step}'?)\n"),
      with("unknown place", "checkpoint: {directory: c, shards: \"x_{rnk}\"}\n",
           "r.yaml:4:36: checkpoint.shards: only {rank} and {step} are filled in here, not {rnk} "
           "(did you "
           "mean '{rank}'?)\n"),
      with("marker elsewhere", "checkpoint: {directory: c, marker: ../DONE}\n",
           "r.yaml:4:36: checkpoint.marker: expected a file name without '/', got the text "
           "\"../DONE\"\n"),
      with("pattern that is none", "progress: {pattern: 'step (\\d+'}\n",
           "r.yaml:4:21: progress.pattern: not a pattern RE2 understands: missing ): step (\\d+\n"),
      with("pattern without step", "progress: {pattern: 'step (\\d+)'}\n",
           "r.yaml:4:21: progress.pattern: has no group named step; write (?P<step>[0-9]+) where "
           "the step "
           "number stands\n"),
      with(
          "start time-out, and no progress to be seen", "timeouts: {start: 1m}\n",
          "r.yaml:4:19: timeouts.start: needs `progress.pattern`, or `timeouts.progress` for ranks "
          "that call regrow.step(): without them no progress is ever seen\n"),
  });
}

TEST_CASE("YAML beyond plain maps, lists and values is refused") {
  check_all({
      with("duplicate key", "spares: 1\ngroups: 2\nspares: 2\n",
           "r.yaml:6:1: spares: the key is here twice; it is also on line 4\n"),
      with("duplicate key below", "devices: {count: 1, count: 2}\n",
           "r.yaml:4:21: devices.count: the key is here twice; it is also on line 4\n"),
      with("anchor and alias", "spares: &n 1\ngroups: *n\n",
           "r.yaml:4:9: spares: anchors (&name) are not supported; write the value out\n"
           "r.yaml:5:9: groups: aliases (*name) are not supported; write the value out\n"),
      with("merge key", "devices: {<<: {count: 2}}\n",
           "r.yaml:4:11: devices.<<: merge keys (<<) are not supported; write the keys out\n"),
      with("tag", "spares: !!int \"4\"\n",
           "r.yaml:4:9: spares: tags (!!int) are not supported; write the plain value\n"),
      with("include", "devices: !include r.yaml\n",
           "r.yaml:4:10: devices: !include is not supported; a recipe is one file\n"),
      with("second document", "---\nname: y\n",
           "r.yaml:4:1: this does not belong to what stands above it: wrong indentation, or a "
           "second "
           "document (a recipe is one document)\n"),
      {"list", "- name: x\n",
       "r.yaml:1:1: a recipe is made of `key: value` lines, this is something else\n"},
      {"text", "hello\n",
       "r.yaml:1:1: a recipe is made of `key: value` lines, this is something else\n"},
      {"empty", "", "r.yaml:1:1: the recipe is empty; `regrow init` writes one to begin with\n"},
      {"comment", "# name: x\n",
       "r.yaml:1:1: the recipe is empty; `regrow init` writes one to begin with\n"},
      with("tab", "devices:\n\tcount: 1\n", "r.yaml:5:1: a tab in the indentation; use spaces\n"),
      with("tab after spaces", "devices:\n  \tcount: 1\n",
           "r.yaml:5:3: a tab in the indentation; use spaces\n"),
      with("tab after a dash", "pass_env:\n-\tA\n",
           "r.yaml:5:2: a tab in the indentation; use spaces\n"),
      with("NUL", std::string_view("env: {A: x\0y}\n", 15),
           "r.yaml:4:11: a NUL byte: this is no text file\n"),
      with("escaped NUL", "env: {A: \"x\\0y\"}\n",
           "r.yaml:4:10: env.A: holds a NUL character (\\0), which no program can be given\n"),
      with("Latin-1", "env: {A: gr\xfc\xdf}\n",
           "r.yaml:4:12: not UTF-8: byte 0xfc; save the file as UTF-8\n"),
      with("overlong UTF-8", "env: {A: \xc0\xaf}\n",
           "r.yaml:4:10: not UTF-8: byte 0xc0; save the file as UTF-8\n"),
      with("escape codes", "env: {A: \x1b[31m}\n", "r.yaml:4:10: control character 0x1b\n"),
      {"UTF-16", std::string("\xff\xfen\0a\0m\0e\0", 10),
       "r.yaml:1:1: not UTF-8: this looks like UTF-16; save the file as UTF-8\n"},
      with("two values on a line", "spares: 1 groups: 2\n",
           "r.yaml:4:17: a ':' where none can be: two on one line, or the line is not indented "
           "like its "
           "neighbours (put text that holds ': ' in quotes)\n"),
      with("open bracket", "pass_env: [A, B\n", "r.yaml:5:1: '[' is not closed by ']'\n"),
      with("key without a value in a list", "? [a, b]\n: 3\n",
           "r.yaml:4:3: a key must be a plain name, not a list or a map\n"),
      with("nested too deeply", "env: {A: [[[[[[[[[[[[1]]]]]]]]]]]]}\n",
           "r.yaml:4:16: nested deeper than any recipe can be\n"),
      {"columns count characters", "name: x\nranks: 4\ncommand: [\"grüße\", null]\n",
       "r.yaml:3:20: command[1]: is empty; write \"\" or \"null\" if it is meant\n"},
  });
}

TEST_CASE("all mistakes are reported in one go, in file order") {
  RecipeResult result =
      load("nmae: x\nranks: 0\ndevices: {knd: gpu}\ncommand: [run]\nspares: 1\nspares: 2\n");
  CHECK(to_string(result.diagnostics) ==
        "r.yaml:1:1: nmae: unknown key (did you mean 'name'?)\n"
        "r.yaml:2:8: ranks: expected a whole number from 1 to 100000, got the number 0\n"
        "r.yaml:3:11: devices.knd: unknown key (did you mean 'kind'?)\n"
        "r.yaml:6:1: spares: the key is here twice; it is also on line 5\n");
}

TEST_CASE("very many mistakes are counted, not listed") {
  std::string text;
  for (int i = 0; i < 1000; ++i) text += "key_" + std::to_string(i) + ": 1\n";
  RecipeResult result = load(text);
  REQUIRE(result.diagnostics.size() == 21);
  CHECK(to_string(result.diagnostics.back()) == "r.yaml: and 983 more problems");
}

TEST_CASE("a wrong override names itself") {
  auto diagnostics = [](std::vector<std::string> overrides) {
    return to_string(load(recipe_with("devices: {count: 1}\n"), std::move(overrides)).diagnostics);
  };
  CHECK(diagnostics({"rank=4"}) == "--set rank=4: rank: unknown key (did you mean 'ranks'?)\n");
  CHECK(diagnostics({"device.count=4"}) ==
        "--set device.count=4: device.count: unknown key (did you mean 'devices.count'?)\n");
  CHECK(diagnostics({"ranks=four", "spares=-1"}) ==
        "--set ranks=four: ranks: expected a whole number from 1 to 100000, got the text \"four\"\n"
        "--set spares=-1: spares: expected a whole number from 0 to 100000, got the number -1\n");
  CHECK(diagnostics({"ranks"}) == "--set ranks: needs the form --set key=value\n");
  CHECK(diagnostics({"=4"}) == "--set =4: needs the form --set key=value\n");
  CHECK(
      diagnostics({"devices=4"}) ==
      "--set devices=4: devices: has keys of its own; set one of them: --set devices.KEY=value\n");
  CHECK(diagnostics({"env=4"}) ==
        "--set env=4: env: has keys of its own; set one of them: --set env.NAME=value\n");
  CHECK(diagnostics({"command=[a"}) == "--set command=[a: command: '[' is not closed by ']'\n");
  CHECK(diagnostics({"command=a b"}) ==
        "--set command=a b: command: expected a list of arguments, got the text \"a b\"; write a "
        "list (did "
        "you mean '[a, b]'?)\n");
  CHECK(diagnostics({"env.RANK=3"}) ==
        "--set env.RANK=3: env.RANK: cannot be set here: regrow sets it for each rank\n");
  CHECK(diagnostics({"groups=3"}) ==
        "--set groups=3: groups: 3 groups cannot share 4 ranks evenly (did you mean '2'?)\n");
  CHECK(diagnostics({"name=\xff"}) == "--set name=\xff: not UTF-8\n");
}

TEST_CASE("what is not a readable regular file is refused without waiting") {
  std::string directory =
      std::filesystem::temp_directory_path() / ("regrow-bad-" + std::to_string(getpid()));
  std::filesystem::create_directories(directory);
  auto diagnostics = [&](const std::string& path) {
    std::string text = to_string(load_recipe_file(path, test_options()).diagnostics);
    size_t at = text.find(directory);
    return at == 0 ? text.substr(directory.size() + 1) : text;
  };
  std::string fifo = directory + "/fifo";
  REQUIRE(mkfifo(fifo.c_str(), 0600) == 0);
  CHECK(diagnostics(fifo) == "fifo: is a pipe, not a recipe file\n");
  CHECK(diagnostics("/dev/zero") == "/dev/zero: is a device, not a recipe file\n");
  CHECK(diagnostics("/") == "/: is a directory, not a recipe file\n");
  CHECK(
      diagnostics(directory + "/none.yaml") ==
      "none.yaml: cannot read the recipe: No such file or directory (`regrow init` writes one)\n");
  std::ofstream(directory + "/big.yaml") << recipe_with("") << std::string(2 << 20, '#') << "\n";
  CHECK(diagnostics(directory + "/big.yaml") ==
        "big.yaml:4:1: the recipe has 2097185 bytes; at most 1048576 are read; this line alone has "
        "2097152 "
        "bytes: put a long list into a file and pass its path\n");
  std::filesystem::remove_all(directory);
}

}  // namespace regrow::test
