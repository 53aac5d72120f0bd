#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <regex>
#include <sstream>

#include "recipes/schema_table.h"
#include "tests/catch.h"
#include "tests/recipes/recipe_helpers.h"

namespace regrow::test {
namespace {

std::string source_dir() {
  const char* dir = std::getenv("REGROW_SOURCE_DIR");
  return dir == nullptr ? std::filesystem::path(__FILE__).parent_path() / "../.."
                        : std::filesystem::path(dir);
}

std::string read_file(const std::string& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

JobSpec good(std::string_view text, std::vector<std::string> overrides = {}) {
  RecipeResult result = load(text, std::move(overrides));
  INFO(to_string(result.diagnostics));
  REQUIRE(result.spec);
  REQUIRE(result.diagnostics.empty());
  return *result.spec;
}

}  // namespace

TEST_CASE("every key of a recipe reaches the job's specification") {
  std::string expected = R"GOLDEN(name "charlm"
ranks 8
groups 2
spares 1
ranks_per_host 4
devices {"gpu" 2 80000000000}
interpreter "/usr/bin/python3"
command ["train.py", "--lr", "1e-3", "", "a b", "yes"]
requires_modules ["torch", "torch.distributed"]
working_directory "/data/job/code"
environment
  {"COUNTRY" "NO" "recipe"}
  {"DEBUG" "true" "recipe"}
  {"EMPTY" "" "recipe"}
  {"GREETING" "grüß: dich" "recipe"}
  {"HF_TOKEN" "secret" "submitter"}
  {"HOME" "/home/ann" "account"}
  {"LOGNAME" "ann" "account"}
  {"OMP_NUM_THREADS" "1" "recipe"}
  {"PATH" "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin" "default"}
  {"RATIO" "1.10" "recipe"}
  {"SHELL" "/bin/bash" "account"}
  {"USER" "ann" "account"}
nofile 65536
checkpoint {"/data/job/out/checkpoints" host_local "ckpt-{step}" "rank_{rank}.pt" "COMPLETE" "sizes.txt"}
recovery group
intensity
  {program 5 0us}
  {killed -1 0us}
  {out_of_memory 2 0us}
  {early_exit 3 0us}
  {hang 2 3600000000us}
  {start_up 3 0us}
  {device 7 0us}
  {infrastructure -1 0us}
  {preempted -1 0us}
max_without_progress 4
healthy_for 5400000000us
backoff {500000us 120000000us}
success rank_zero
timeouts {120000000us 90000000us 30000000us 120000000us 15000000us 3600000000us 45000000us}
stop_signal "USR1"
stop_scope group
progress_pattern "step (?P<step>\d+).*loss (?P<loss>\S+)"
total_steps 1000
logs {33554432 4194304}
uid 1000
gid 100
rendezvous store
)GOLDEN";
  CHECK(dump(good(kFullRecipe)) == expected);
}

TEST_CASE("what a recipe leaves out has the defaults of the specification") {
  JobSpec spec = good(recipe_with("progress: {pattern: '(?P<step>\\d+)'}\n"));
  JobSpec expected;
  expected.name = "x";
  expected.ranks = 4;
  expected.command = {"run"};
  expected.working_directory = "/data/job";
  expected.progress_pattern = "(?P<step>\\d+)";
  expected.environment = spec.environment;
  expected.uid = 1000;
  expected.gid = 100;
  expected.intensity = {
      {FailureClass::program, 3, {}},       {FailureClass::killed, 10, {}},
      {FailureClass::out_of_memory, 2, {}}, {FailureClass::early_exit, 3, {}},
      {FailureClass::hang, 3, {}},          {FailureClass::start_up, 3, {}},
      {FailureClass::device, -1, {}},       {FailureClass::infrastructure, -1, {}},
      {FailureClass::preempted, -1, {}}};
  CHECK(dump(spec) == dump(expected));
}

TEST_CASE("without a progress pattern there is no start time-out, since no progress is ever seen") {
  CHECK(good(recipe_with("")).timeouts.start.us == 0);
  CHECK(good(recipe_with("timeouts: {start: 0s}\n")).timeouts.start.us == 0);
  // Ranks that report their steps need no pattern.
  Timeouts reported = good(recipe_with("timeouts: {progress: 1m}\n")).timeouts;
  CHECK(reported.progress == Duration::seconds(60));
  CHECK(reported.start.us == 0);
  CHECK(good(recipe_with("timeouts: {progress: 1m, start: 9m}\n")).timeouts.start ==
        Duration::seconds(540));
}

TEST_CASE("a default gives way to what the recipe says") {
  CHECK(good(recipe_with("logs: {cap: 1MiB}\n")).logs.segment_bytes == 256 * 1024);
  CHECK(good(recipe_with("restarts: {backoff: {cap: 200ms}}\n")).backoff.initial ==
        Duration::ms(200));
  CHECK(good(recipe_with("restarts: {backoff: {initial: 1h}}\n")).backoff.cap ==
        Duration::seconds(3600));
  CHECK(good(recipe_with("timeouts: {host: 1h}\n")).timeouts.max_unreachable ==
        Duration::seconds(3600));
}

TEST_CASE("paths start at the recipe's directory, or are absolute") {
  CHECK(good(recipe_with("working_directory: .\n")).working_directory == "/data/job");
  CHECK(good(recipe_with("working_directory: /srv//x/\n")).working_directory == "/srv/x");
  CHECK(good(recipe_with("working_directory: ../up\n")).working_directory == "/data/job/../up");
  CHECK(good(recipe_with("interpreter: venv/bin/python\n")).interpreter ==
        "/data/job/venv/bin/python");
}

TEST_CASE("names of choices in the table are those of the specification") {
  auto check = [](const char* path, const auto& names) {
    std::vector<std::string_view> words = split_choices(find_row(path)->choices);
    CHECK(words == std::vector<std::string_view>(names.begin(), names.end()));
  };
  auto sorted = split_choices(find_row("recovery")->choices);
  CHECK(sorted ==
        std::vector<std::string_view>(RecoveryScope_names.begin(), RecoveryScope_names.end()));
  check("checkpoint.storage", StorageKind_names);
  check("success", SuccessRule_names);
  check("rendezvous", Rendezvous_names);
  check("stop.scope", StopScope_names);
  for (std::string_view name : FailureClass_names)
    CHECK(find_row("restarts." + std::string(name)) != nullptr);
}

TEST_CASE("files with a byte order mark, Windows line ends, or one document marker are fine") {
  CHECK(good("\xEF\xBB\xBF" + recipe_with("")).name == "x");
  CHECK(good("name: x\r\nranks: 4\r\ncommand: [run]\r\nstop:\r\n  signal: INT\r\n").stop_signal ==
        "INT");
  CHECK(good("---\n" + recipe_with("...\n")).name == "x");
  CHECK(good("name: x\nranks: 4\ncommand:\n  - sh\n  - -c\n  - |\n    \tif true\n    then\n    "
             "\ttrue\n    fi\n")
            .command[2] == "\tif true\nthen\n\ttrue\nfi\n");
}

TEST_CASE("an override wins over the file, the last over those before") {
  JobSpec spec =
      good(kFullRecipe,
           {"ranks=16", "ranks=12", "name=42", "env.RATIO=2: # x",
            "env.NEW=", "command=[other.py, --set, a=b]", "restarts.program=unlimited",
            "restarts.killed.max=4", "restarts.device.window=2d", "restarts.early_exit.window=1h",
            "checkpoint.marker=DONE", "timeouts.stop_grace=1s", "stop.scope=leader",
            "pass_env=[EDITOR]", "progress.pattern=it: (?P<step>[0-9]+) # [x]"});
  CHECK(spec.ranks == 12);
  CHECK(spec.name == "42");
  CHECK(spec.command == std::vector<std::string>{"other.py", "--set", "a=b"});
  auto intensity = [&](FailureClass c) { return spec.intensity[static_cast<size_t>(c)]; };
  CHECK(intensity(FailureClass::program).max_restarts == -1);
  CHECK(intensity(FailureClass::killed).max_restarts == 4);
  CHECK(intensity(FailureClass::device) ==
        Intensity{FailureClass::device, 7, Duration::seconds(2 * 86400)});
  CHECK(intensity(FailureClass::early_exit) ==
        Intensity{FailureClass::early_exit, 3, Duration::seconds(3600)});
  CHECK(spec.checkpoint.marker == "DONE");
  CHECK(spec.timeouts.stop_grace == Duration::seconds(1));
  CHECK(spec.stop_scope == StopScope::leader);
  CHECK(spec.progress_pattern == "it: (?P<step>[0-9]+) # [x]");
  std::string environment = value_text(spec.environment);
  CHECK(environment.find(R"({"RATIO" "2: # x" "recipe --set"})") != std::string::npos);
  CHECK(environment.find(R"({"NEW" "" "recipe --set"})") != std::string::npos);
  CHECK(environment.find(R"({"EDITOR" "vi" "submitter"})") != std::string::npos);
  CHECK(environment.find("HF_TOKEN") == std::string::npos);
}

TEST_CASE("an override can mend what is wrong or missing in the file") {
  CHECK(good("name: x\nranks: 0\n", {"ranks=2", "command=[a]"}).ranks == 2);
}

TEST_CASE("a bare command line becomes a job of one rank") {
  LoadOptions options = test_options();
  options.overrides = {"ranks=2"};
  RecipeResult result =
      spec_for_command({"/usr/bin/python3", "dir/train.py", "--x=$HOME", "3"}, options);
  INFO(to_string(result.diagnostics));
  REQUIRE(result.spec);
  CHECK(result.spec->name == "train");
  CHECK(result.spec->ranks == 2);
  CHECK(result.spec->command ==
        std::vector<std::string>{"/usr/bin/python3", "dir/train.py", "--x=$HOME", "3"});
  CHECK(result.spec->interpreter.empty());
  CHECK(result.spec->working_directory == "/data/job");
  CHECK(spec_for_command({"./--.x y!"}, test_options()).spec->name == "xy");

  CHECK(to_string(spec_for_command({}, test_options()).diagnostics) ==
        "regrow run: no command; for example: regrow run -- python3 train.py\n");
  CHECK(to_string(spec_for_command({"a", "b\xff"}, test_options()).diagnostics) ==
        "regrow run: command[1]: not UTF-8: b\xff\n");
}

TEST_CASE("a recipe file's paths start where the file is") {
  std::string directory =
      std::filesystem::temp_directory_path() / ("regrow-recipe-" + std::to_string(getpid()));
  std::filesystem::create_directories(directory);
  std::ofstream(directory + "/r.yaml") << recipe_with("checkpoint: {directory: ck}\n");
  LoadOptions options = test_options();
  options.directory.clear();
  RecipeResult result = load_recipe_file(directory + "/r.yaml", options);
  std::filesystem::remove_all(directory);
  REQUIRE(result.spec);
  CHECK(result.spec->working_directory == directory);
  CHECK(result.spec->checkpoint.directory == directory + "/ck");
}

TEST_CASE("the template of regrow init is valid, with and without its comments") {
  std::string text = recipe_template();
  JobSpec spec = good(text);
  CHECK(spec.ranks == 4);
  std::string all = std::regex_replace(text, std::regex("(^|\n)#(  |[a-z_]+:)"), "$1$2");
  JobSpec full = good(all);
  CHECK(full.total_steps == 1000);
  CHECK(full.devices.memory_bytes == 16ull << 30);
  CHECK(full.checkpoint.manifest == "sizes.txt");
  for (const SchemaRow& row : schema_table()) {
    INFO(row.path);
    CHECK((row.path.find("CLASS") != row.path.npos ||
           all.find(std::string(row.leaf()) + ":") != all.npos));
  }
}

TEST_CASE("docs/recipes.md is what the table says") {
  std::string path = source_dir() + "/docs/recipes.md";
  if (std::getenv("REGROW_UPDATE_DOCS") != nullptr)
    std::ofstream(path) << recipe_reference_markdown();
  INFO("write it anew: REGROW_UPDATE_DOCS=1 REGROW_SOURCE_DIR=. <build folder>/tests/test_recipes");
  CHECK(read_file(path) == recipe_reference_markdown());
}

TEST_CASE("every example is a valid recipe") {
  int examples = 0;
  for (const auto& entry :
       std::filesystem::recursive_directory_iterator(source_dir() + "/recipes/examples")) {
    if (entry.path().extension() != ".yaml") continue;
    RecipeResult result = load_recipe_file(entry.path(), test_options());
    INFO(to_string(result.diagnostics));
    CHECK(result.spec);
    ++examples;
  }
  CHECK(examples >= 2);
}

}  // namespace regrow::test
