#include <algorithm>
#include <sstream>

#include "actors/agent/rank_environment.h"
#include "tests/catch.h"

namespace regrow {
namespace {

SpawnCommand two_of_four() {
  SpawnCommand command;
  command.key = {{7}, {3}, {2}};
  command.generation = {5};
  command.world_size = 4;
  command.local_rank = 1;
  command.local_world_size = 2;
  command.group_rank = 1;
  command.group_world_size = 2;
  command.master_address = "10.0.0.1";
  command.master_port = 20123;
  command.resume_step = 200;
  command.resume_path = "/ckpt/step_200";
  command.restart_count = 4;
  return command;
}

RankHost a_host() {
  RankHost host;
  host.scope = "uid1";
  host.host = {"h2"};
  host.home = "/home/ann";
  host.user = "ann";
  host.temporary_directory = "/tmp/regrow-7.3.2-x";
  host.rank_socket = "/run/regrow-agent/ranks/7/3.2/rank.sock";
  host.rank_token = "0123456789abcdef0123456789abcdef";
  host.rank_library = "/usr/lib/libregrow_rank.so.1";
  return host;
}

std::string render(const std::vector<EnvVar>& environment) {
  std::ostringstream text;
  for (const EnvVar& v : environment) text << v.name << "=" << v.value << " (" << v.source << ")\n";
  return text.str();
}

std::string value_of(const std::vector<EnvVar>& environment, const std::string& name) {
  for (const EnvVar& v : environment) {
    if (v.name == name) return v.value;
  }
  return "(not set)";
}

DeviceReport device(const std::string& name, const std::string& kind, const std::string& uid) {
  DeviceReport report;
  report.name = {name};
  report.kind = kind;
  report.uid = uid;
  return report;
}

TEST_CASE("a rank's environment, all of it, with where each value came from") {
  JobSpec spec;
  spec.checkpoint.directory = "/ckpt";
  spec.environment = {{"DATA", "/data", "recipe"}, {"LANG", "de_DE.UTF-8", "submitter"}};
  CHECK(render(build_rank_environment(two_of_four(), spec, a_host())) ==
        R"(DATA=/data (recipe)
GROUP_RANK=1 (regrow)
GROUP_WORLD_SIZE=2 (regrow)
HOME=/home/ann (default)
LANG=de_DE.UTF-8 (submitter)
LOCAL_RANK=1 (regrow)
LOCAL_WORLD_SIZE=2 (regrow)
LOGNAME=ann (default)
MASTER_ADDR=10.0.0.1 (regrow)
MASTER_PORT=20123 (regrow)
OMP_NUM_THREADS=1 (default)
PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin (default)
PYTHONUNBUFFERED=1 (default)
RANK=3 (regrow)
REGROW_CHECKPOINT_DIR=/ckpt (regrow)
REGROW_DEVICES= (regrow)
REGROW_GENERATION=5 (regrow)
REGROW_HOST=h2 (regrow)
REGROW_INCARNATION=uid1/7/3/2 (regrow)
REGROW_JOB=7 (regrow)
REGROW_RANK=3 (regrow)
REGROW_RANK_LIBRARY=/usr/lib/libregrow_rank.so.1 (regrow)
REGROW_RESUME_PATH=/ckpt/step_200 (regrow)
REGROW_RESUME_STEP=200 (regrow)
REGROW_SOCKET=/run/regrow-agent/ranks/7/3.2/rank.sock (regrow)
REGROW_TOKEN=0123456789abcdef0123456789abcdef (regrow)
ROLE_NAME=default (regrow)
ROLE_RANK=3 (regrow)
ROLE_WORLD_SIZE=4 (regrow)
TMPDIR=/tmp/regrow-7.3.2-x (default)
TORCHELASTIC_ERROR_FILE=/tmp/regrow-7.3.2-x/torchelastic_error.json (regrow)
TORCHELASTIC_MAX_RESTARTS=5 (regrow)
TORCHELASTIC_RESTART_COUNT=4 (regrow)
TORCHELASTIC_RUN_ID=regrow-7 (regrow)
TORCHELASTIC_USE_AGENT_STORE=False (regrow)
TORCH_NCCL_ASYNC_ERROR_HANDLING=1 (default)
USER=ann (default)
WORLD_SIZE=4 (regrow)
)");
}

TEST_CASE("a recipe cannot change who a rank is, but can change defaults") {
  JobSpec spec;
  spec.environment = {{"RANK", "0", "recipe"},
                      {"MASTER_PORT", "29500", "recipe"},
                      {"OMP_NUM_THREADS", "8", "recipe"},
                      {"TMPDIR", "/scratch", "recipe"}};
  auto environment = build_rank_environment(two_of_four(), spec, a_host());
  CHECK(value_of(environment, "RANK") == "3");
  CHECK(value_of(environment, "MASTER_PORT") == "20123");
  CHECK(value_of(environment, "OMP_NUM_THREADS") == "8");
  CHECK(value_of(environment, "TMPDIR") == "/scratch");
}

TEST_CASE("a rank alone on its host keeps the framework's number of threads") {
  SpawnCommand command = two_of_four();
  command.local_world_size = 1;
  auto environment = build_rank_environment(command, {}, a_host());
  CHECK(value_of(environment, "OMP_NUM_THREADS") == "(not set)");
}

TEST_CASE("devices are pinned by the vendor's id where it has one, else by index") {
  RankHost host = a_host();
  host.devices = {device("gpu0", "gpu", "GPU-aaaa"), device("gpu1", "gpu", "GPU-bbbb"),
                  device("gpu2", "gpu", "no-vendor-id")};
  SpawnCommand command = two_of_four();
  command.devices = {{"gpu1"}, {"gpu2"}};
  auto environment = build_rank_environment(command, {}, host);
  CHECK(value_of(environment, "CUDA_VISIBLE_DEVICES") == "GPU-bbbb,2");
  CHECK(value_of(environment, "CUDA_DEVICE_ORDER") == "PCI_BUS_ID");
  CHECK(value_of(environment, "REGROW_DEVICES") == "gpu1,gpu2");
}

TEST_CASE(
    "a rank without a device sees none of the host's; simulated ones set no vendor's variable") {
  RankHost host = a_host();
  host.devices = {device("gpu0", "gpu", "GPU-aaaa")};
  auto environment = build_rank_environment(two_of_four(), {}, host);
  CHECK(value_of(environment, "CUDA_VISIBLE_DEVICES").empty());

  host.devices = {device("sim0", "sim", "sim-1")};
  SpawnCommand command = two_of_four();
  command.devices = {{"sim0"}};
  environment = build_rank_environment(command, {}, host);
  CHECK(value_of(environment, "CUDA_VISIBLE_DEVICES") == "(not set)");
  CHECK(value_of(environment, "REGROW_DEVICES") == "sim0");
}

TEST_CASE("tpu chips are pinned by index") {
  RankHost host = a_host();
  host.devices = {device("tpu0", "tpu", ""), device("tpu3", "tpu", "")};
  SpawnCommand command = two_of_four();
  command.devices = {{"tpu3"}};
  CHECK(value_of(build_rank_environment(command, {}, host), "TPU_VISIBLE_CHIPS") == "3");
}

}  // namespace
}  // namespace regrow
