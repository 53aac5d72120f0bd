#include "recipes/environment.h"

#include <utility>

namespace regrow {
namespace {

constexpr std::string_view kPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

// Given to each rank by the agent (torchrun's names). One that ends in '*' is a prefix.
constexpr std::string_view kPlace = "regrow sets it for each rank";
constexpr std::string_view kDevices = "regrow sets it to the devices each rank has leased";
constexpr std::pair<std::string_view, std::string_view> kSetByRegrow[] = {
    {"RANK", kPlace},
    {"LOCAL_RANK", kPlace},
    {"GROUP_RANK", kPlace},
    {"ROLE_RANK", kPlace},
    {"ROLE_NAME", kPlace},
    {"WORLD_SIZE", kPlace},
    {"LOCAL_WORLD_SIZE", kPlace},
    {"GROUP_WORLD_SIZE", kPlace},
    {"ROLE_WORLD_SIZE", kPlace},
    {"MASTER_ADDR", "regrow chooses the rendezvous address anew for each start"},
    {"MASTER_PORT", "regrow leases a rendezvous port for each start"},
    {"TORCHELASTIC_*", "regrow sets it as torchrun does"},
    {"REGROW_*", "names that begin with REGROW_ are regrow's own"},
    {"CUDA_VISIBLE_DEVICES", kDevices},
    {"CUDA_DEVICE_ORDER", "regrow sets it, so that device numbers mean the same everywhere"},
    {"ROCR_VISIBLE_DEVICES", kDevices},
    {"HIP_VISIBLE_DEVICES", kDevices},
    {"TPU_VISIBLE_CHIPS", kDevices},
    {"NEURON_RT_VISIBLE_CORES", kDevices},
    {"HABANA_VISIBLE_MODULES", kDevices}};

// Says what place its process has in somebody else's job, or what gets loaded into every program.
constexpr std::string_view kOuterJob =
    "it describes the job or shell it comes from, not this one; if ranks need it, write it under "
    "env";
constexpr std::string_view kNeverPassed[] = {"SLURM_*",
                                             "SLURMD_*",
                                             "SBATCH_*",
                                             "SRUN_*",
                                             "PMI_*",
                                             "PMI2_*",
                                             "PMIX_*",
                                             "PMI*",
                                             "OMPI_*",
                                             "MPI_*",
                                             "I_MPI_*",
                                             "HYDRA_*",
                                             "PBS_*",
                                             "LSB_*",
                                             "FLUX_*",
                                             "MASTER_*",
                                             "NODE_RANK",
                                             "TF_CONFIG",
                                             "JAX_COORDINATOR_*",
                                             "JAX_PROCESS_ID",
                                             "JAX_NUM_PROCESSES",
                                             "JAX_LOCAL_DEVICE_IDS",
                                             "TPU_WORKER_*",
                                             "TPU_PROCESS_*",
                                             "CLOUD_TPU_TASK_ID",
                                             "MEGASCALE_*",
                                             "REPLICA_GROUP_ID",
                                             "NUM_REPLICA_GROUPS",
                                             "JOB_COMPLETION_INDEX",
                                             "KUBERNETES_*",
                                             "NVIDIA_VISIBLE_DEVICES",
                                             "GPU_DEVICE_ORDINAL",
                                             "LD_PRELOAD",
                                             "LD_AUDIT",
                                             "KMP_AFFINITY",
                                             "GOMP_CPU_AFFINITY",
                                             "OMP_PLACES",
                                             "OMP_PROC_BIND"};

bool matches(std::string_view pattern, std::string_view name) {
  if (!pattern.ends_with('*')) return pattern == name;
  return name.starts_with(pattern.substr(0, pattern.size() - 1));
}

}  // namespace

bool is_variable_name(std::string_view name) {
  if (name.empty() || (name[0] >= '0' && name[0] <= '9')) return false;
  for (char c : name) {
    bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    if (!letter && !(c >= '0' && c <= '9') && c != '_') return false;
  }
  return true;
}

std::string why_set_by_regrow(std::string_view name) {
  for (const auto& [pattern, why] : kSetByRegrow) {
    if (matches(pattern, name)) return std::string(why);
  }
  return {};
}

std::string why_never_passed(std::string_view name) {
  if (std::string why = why_set_by_regrow(name); !why.empty()) return why;
  for (std::string_view pattern : kNeverPassed) {
    if (matches(pattern, name)) return std::string(kOuterJob);
  }
  return {};
}

std::vector<EnvVar> account_environment(const AccountFacts& account) {
  std::vector<EnvVar> variables = {{"PATH", std::string(kPath), "default"}};
  auto add = [&](const char* name, const std::string& value) {
    if (!value.empty()) variables.push_back({name, value, "account"});
  };
  add("HOME", account.home);
  add("LOGNAME", account.user);
  add("SHELL", account.shell);
  add("USER", account.user);
  return variables;
}

std::vector<EnvVar> merge_environment(const std::vector<std::vector<EnvVar>>& lists) {
  std::map<std::string, EnvVar> by_name;
  for (const auto& list : lists) {
    for (const EnvVar& variable : list) by_name[variable.name] = variable;
  }
  std::vector<EnvVar> merged;
  for (auto& [name, variable] : by_name) merged.push_back(std::move(variable));
  return merged;
}

std::optional<Oversize> find_oversize(const JobSpec& spec) {
  constexpr uint64_t kPointer = sizeof(char*);
  Oversize largest;
  uint64_t total = 0;
  auto count = [&](std::string name, bool is_argument, uint64_t bytes) {
    total += bytes + kPointer;
    if (bytes > largest.bytes) largest = {std::move(name), is_argument, bytes, 0};
  };
  if (!spec.interpreter.empty()) count("interpreter", true, spec.interpreter.size() + 1);
  for (size_t i = 0; i < spec.command.size(); ++i) {
    count("command[" + std::to_string(i) + "]", true, spec.command[i].size() + 1);
  }
  for (const EnvVar& variable : spec.environment) {
    count(variable.name, false, variable.name.size() + 1 + variable.value.size() + 1);
  }
  if (largest.bytes > kLongestString) return largest;
  if (total <= kMostStartBytes) return std::nullopt;
  largest.total = total;
  return largest;
}

}  // namespace regrow
