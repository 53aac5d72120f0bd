// Scenarios 30 and 31: what is in a rank's environment, and what is too large for it.
#include <filesystem>
#include <fstream>

#include <unistd.h>

#include "tests/catch.h"
#include "tests/recipes/recipe_helpers.h"

namespace regrow::test {
namespace {

std::string names(const JobSpec& spec) {
  std::string text;
  for (const EnvVar& variable : spec.environment) text += (text.empty() ? "" : " ") + variable.name;
  return text;
}

const std::map<std::string, std::string> kMessyShell = {{"SLURM_CPU_BIND", "mask"},
                                                        {"CUDA_VISIBLE_DEVICES", "3"},
                                                        {"RANK", "7"},
                                                        {"LD_PRELOAD", "x"},
                                                        {"NCCL_DEBUG", "INFO"},
                                                        {"OMP_NUM_THREADS", "1"},
                                                        {"PATH", "/me"},
                                                        {"SECRET_TOKEN", "t"},
                                                        {"HOME", "/wrong"}};

}  // namespace

TEST_CASE("a job gets nothing from the shell that submits it but what the recipe lists") {
  LoadOptions clean = test_options(), messy = test_options();
  clean.submitter_environment = {{"NCCL_DEBUG", "INFO"}};
  messy.submitter_environment = kMessyShell;
  std::string recipe = recipe_with("env: {SEED: 7}\npass_env: [NCCL_DEBUG]\n");
  RecipeResult one = load_recipe_text(recipe, "r.yaml", clean);
  RecipeResult other = load_recipe_text(recipe, "r.yaml", messy);
  REQUIRE(one.spec);
  REQUIRE(other.spec);
  CHECK(names(*one.spec) == "HOME LOGNAME NCCL_DEBUG PATH SEED SHELL USER");
  CHECK(*one.spec == *other.spec);
}

TEST_CASE("variables that describe another job are never taken from the submitter") {
  for (const char* name :
       {"RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "SLURM_CPU_BIND",
        "SLURM_CONF", "PMI_RANK", "PMIX_SERVER_URI", "CUDA_VISIBLE_DEVICES", "REGROW_TOKEN",
        "TORCHELASTIC_RUN_ID", "LD_PRELOAD", "OMPI_COMM_WORLD_RANK"}) {
    INFO(name);
    RecipeResult result = load(recipe_with("pass_env: [OK, " + std::string(name) + "]\n"));
    REQUIRE(result.diagnostics.size() == 1);
    CHECK(result.diagnostics[0].key_path == "pass_env[1]");
    CHECK(result.diagnostics[0].column == 16);
    CHECK(result.diagnostics[0].message.starts_with(std::string(name) +
                                                    " is never taken from the submitter: "));
  }
}

TEST_CASE("a recipe may set what regrow does not set itself") {
  RecipeResult result =
      load(recipe_with("env: {LD_PRELOAD: /x.so, SLURM_CONF: /etc/s, PATH: /opt/bin}\n"));
  REQUIRE(result.spec);
  CHECK(value_text(result.spec->environment).find(R"({"PATH" "/opt/bin" "recipe"})") !=
        std::string::npos);
  CHECK(to_string(load(recipe_with("env: {RANK: 3, CUDA_VISIBLE_DEVICES: 1, REGROW_X: 1}\n"))
                      .diagnostics) ==
        "r.yaml:4:7: env.RANK: cannot be set here: regrow sets it for each rank\n"
        "r.yaml:4:16: env.CUDA_VISIBLE_DEVICES: cannot be set here: regrow sets it to the devices "
        "each rank "
        "has leased\n"
        "r.yaml:4:41: env.REGROW_X: cannot be set here: names that begin with REGROW_ are regrow's "
        "own\n");
}

TEST_CASE("wrong variables are refused by name") {
  CHECK(
      to_string(load(recipe_with(
                         "env:\n  1A: x\n  B:\n  C: [1]\npass_env: [D, \"NCCL_*\", D, HF TOKEN]\n"))
                    .diagnostics) ==
      "r.yaml:5:3: env.1A: no variable name: letters, digits and '_', not beginning with a digit\n"
      "r.yaml:6:3: env.B: expected one value, got nothing; write \"\" for an empty value\n"
      "r.yaml:7:3: env.C: expected one value, got a list\n"
      "r.yaml:8:15: pass_env[1]: name each variable; patterns like NCCL_* let in what nobody "
      "meant\n"
      "r.yaml:8:25: pass_env[2]: D is here twice\n"
      "r.yaml:8:28: pass_env[3]: HF TOKEN is no variable name\n");
  CHECK(to_string(load(recipe_with("env: {HF_TOKEN: x}\npass_env: [HF_TOKEN]\n")).diagnostics) ==
        "r.yaml:5:12: pass_env[0]: HF_TOKEN is also set under env; leave one of them out\n");
  LoadOptions options = test_options();
  options.submitter_environment = {{"A", "\xff"}};
  CHECK(
      to_string(load_recipe_text(recipe_with("pass_env: [A]\n"), "r.yaml", options).diagnostics) ==
      "r.yaml:4:12: pass_env[0]: the submitter's A is not UTF-8\n");
}

TEST_CASE("a value too large for exec is refused with its name and size") {
  CHECK(to_string(
            load(recipe_with("env:\n  HOSTS: " + std::string(131072, 'x') + "\n")).diagnostics) ==
        "r.yaml:5:3: env.HOSTS: HOSTS has 131079 bytes; Linux starts no program with one longer "
        "than 131072; "
        "put a long list into a file and pass its path\n");
  // "A=" and the final NUL make it exactly 32 pages.
  CHECK(load(recipe_with("env: {A: " + std::string(131069, 'x') + "}\n")).spec);
  CHECK_FALSE(load(recipe_with("env: {A: " + std::string(131070, 'x') + "}\n")).spec);
  CHECK(to_string(load("name: x\nranks: 4\ncommand: [a, " + std::string(131072, 'x') + "]\n")
                      .diagnostics) ==
        "r.yaml:3:10: command[1]: command[1] has 131073 bytes; Linux starts no program with one "
        "longer than "
        "131072; put a long list into a file and pass its path\n");
}

TEST_CASE("a list of hosts too long for a variable is refused with its name") {
  std::string hosts;
  for (int i = 0; i < 4096; ++i)
    hosts += "host-with-a-long-name-" + std::to_string(i) + ".example.org,";
  LoadOptions options = test_options();
  options.submitter_environment = {{"HOSTS", hosts}};
  RecipeResult result = load_recipe_text(recipe_with("pass_env: [HOSTS]\n"), "r.yaml", options);
  REQUIRE(result.diagnostics.size() == 1);
  CHECK(result.diagnostics[0].key_path == "env.HOSTS");
  CHECK(result.diagnostics[0].line == 4);
  CHECK(result.diagnostics[0].column == 12);
  CHECK(result.diagnostics[0].message.find(std::to_string(hosts.size() + 7) + " bytes") !=
        std::string::npos);
}

TEST_CASE("too much in all is refused with the largest") {
  LoadOptions options = test_options();
  std::string list;
  for (int i = 0; i < 30; ++i) {
    std::string name = "V" + std::to_string(i);
    options.submitter_environment[name] = std::string(i == 17 ? 110000 : 100000, 'x');
    list += (list.empty() ? "" : ", ") + name;
  }
  RecipeResult result =
      load_recipe_text(recipe_with("pass_env: [" + list + "]\n"), "r.yaml", options);
  REQUIRE(result.diagnostics.size() == 1);
  CHECK(result.diagnostics[0].key_path == "env.V17");
  CHECK(result.diagnostics[0].message.starts_with("arguments and environment have 3010"));
  CHECK(result.diagnostics[0].message.find("the largest is V17 with 110005 bytes") !=
        std::string::npos);
}

TEST_CASE("a recipe of three megabytes is refused with the variable that makes it so") {
  std::string directory =
      std::filesystem::temp_directory_path() / ("regrow-env-" + std::to_string(getpid()));
  std::filesystem::create_directories(directory);
  std::ofstream(directory + "/r.yaml")
      << recipe_with("env:\n  HOSTS: ") << std::string(3000000, 'x') << "\n";
  RecipeResult result = load_recipe_file(directory + "/r.yaml", test_options());
  std::filesystem::remove_all(directory);
  REQUIRE(result.diagnostics.size() == 1);
  CHECK(result.diagnostics[0].key_path == "HOSTS");
  CHECK(result.diagnostics[0].line == 5);
  CHECK(result.diagnostics[0].message.find("HOSTS alone has 3000009 bytes") != std::string::npos);
}

}  // namespace regrow::test
