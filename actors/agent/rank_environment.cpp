#include "actors/agent/rank_environment.h"

#include <algorithm>
#include <map>

namespace regrow {
namespace {

class Environment {
 public:
  void set(const std::string& name, const std::string& value, const char* source = "regrow") {
    variables_[name] = {name, value, source};
  }
  void set(const std::string& name, uint64_t value) { set(name, std::to_string(value)); }
  void set_default(const std::string& name, const std::string& value) {
    variables_.try_emplace(name, EnvVar{name, value, "default"});
  }
  void set(const EnvVar& variable) { variables_[variable.name] = variable; }
  // At the end of a list of directories.
  void append_path(const std::string& name, const std::string& directory) {
    auto [it, fresh] = variables_.try_emplace(name, EnvVar{name, directory, "regrow"});
    if (!fresh) it->second.value += (it->second.value.empty() ? "" : ":") + directory;
  }

  std::vector<EnvVar> take() {
    std::vector<EnvVar> all;
    for (auto& [name, variable] : variables_) all.push_back(std::move(variable));
    return all;
  }

 private:
  std::map<std::string, EnvVar> variables_;
};

// How a framework is told which devices are its own, per kind of device.
struct Pinning {
  const char* kind;
  const char* variable;
  bool by_uid;  // accepts the vendor's unique id, which survives a renumbering of the indices
};
constexpr Pinning kPinnings[] = {
    {"gpu", "CUDA_VISIBLE_DEVICES", true},      {"amd", "ROCR_VISIBLE_DEVICES", true},
    {"tpu", "TPU_VISIBLE_CHIPS", false},        {"neuron", "NEURON_RT_VISIBLE_CORES", false},
    {"gaudi", "HABANA_VISIBLE_MODULES", false},
};

const DeviceReport* find_device(const RankHost& host, const DeviceName& name) {
  auto found = std::find_if(host.devices.begin(), host.devices.end(),
                            [&](const DeviceReport& device) { return device.name == name; });
  return found == host.devices.end() ? nullptr : &*found;
}

// "gpu12" to "12".
std::string index_in(const std::string& name) {
  size_t end = name.find_last_not_of("0123456789");
  return end == std::string::npos ? name : name.substr(end + 1);
}

std::string pinned_as(const DeviceReport& device, bool by_uid) {
  bool vendor_id = device.uid.starts_with("GPU-") || device.uid.starts_with("MIG-");
  return by_uid && vendor_id ? device.uid : index_in(device.name.value);
}

void pin_devices(Environment& environment, const SpawnCommand& command, const RankHost& host) {
  std::string names;
  for (const DeviceName& name : command.devices) names += (names.empty() ? "" : ",") + name.value;
  environment.set("REGROW_DEVICES", names);
  for (const Pinning& pinning : kPinnings) {
    std::string list;
    for (const DeviceName& name : command.devices) {
      const DeviceReport* device = find_device(host, name);
      if (device == nullptr || device->kind != pinning.kind) continue;
      list += (list.empty() ? "" : ",") + pinned_as(*device, pinning.by_uid);
    }
    // A rank without a device of a kind that the host has must not reach for somebody else's.
    bool host_has = std::any_of(host.devices.begin(), host.devices.end(),
                                [&](const auto& device) { return device.kind == pinning.kind; });
    if (!host_has) continue;
    environment.set(pinning.variable, list);
    if (std::string_view(pinning.kind) == "gpu") environment.set("CUDA_DEVICE_ORDER", "PCI_BUS_ID");
  }
}

// What torchrun sets.
void add_torchrun(Environment& environment, const SpawnCommand& command, const JobSpec& spec,
                  const RankHost& host) {
  environment.set("RANK", command.key.rank.value);
  environment.set("LOCAL_RANK", command.local_rank);
  environment.set("GROUP_RANK", command.group_rank);
  environment.set("ROLE_RANK", command.key.rank.value);
  environment.set("ROLE_NAME", "default");
  environment.set("WORLD_SIZE", command.world_size);
  environment.set("LOCAL_WORLD_SIZE", command.local_world_size);
  environment.set("GROUP_WORLD_SIZE", command.group_world_size);
  environment.set("ROLE_WORLD_SIZE", command.world_size);
  environment.set("MASTER_ADDR", command.master_address);
  environment.set("MASTER_PORT", command.master_port);
  environment.set("TORCHELASTIC_RESTART_COUNT", command.restart_count);
  environment.set("TORCHELASTIC_MAX_RESTARTS", spec.max_without_progress);
  environment.set("TORCHELASTIC_RUN_ID", "regrow-" + std::to_string(command.key.job.value));
  environment.set("TORCHELASTIC_USE_AGENT_STORE", command.store ? "True" : "False");
  environment.set("TORCHELASTIC_ERROR_FILE", host.temporary_directory + "/torchelastic_error.json");
}

}  // namespace

std::string incarnation_marker(const std::string& scope, const IncarnationKey& key) {
  return scope + "/" + std::to_string(key.job.value) + "/" + std::to_string(key.rank.value) + "/" +
         std::to_string(key.incarnation.value);
}

std::vector<EnvVar> build_rank_environment(const SpawnCommand& command, const JobSpec& spec,
                                           const RankHost& host) {
  Environment environment;
  for (const EnvVar& variable : spec.environment) environment.set(variable);

  add_torchrun(environment, command, spec, host);
  environment.set("REGROW_HOST", host.host.value);
  environment.set("REGROW_JOB", command.key.job.value);
  environment.set("REGROW_RANK", command.key.rank.value);
  environment.set("REGROW_INCARNATION", incarnation_marker(host.scope, command.key));
  environment.set("REGROW_GENERATION", command.generation.value);
  if (command.rejoins) environment.set("REGROW_JOIN", "1");
  environment.set("REGROW_RESUME_STEP", std::to_string(command.resume_step));
  environment.set("REGROW_RESUME_PATH", command.resume_path);
  environment.set("REGROW_CHECKPOINT_DIR", spec.checkpoint.directory);
  environment.set("REGROW_SOCKET", host.rank_socket);
  environment.set("REGROW_TOKEN", host.rank_token);
  if (!host.rank_library.empty()) environment.set("REGROW_RANK_LIBRARY", host.rank_library);
  if (!host.python_directory.empty()) environment.append_path("PYTHONPATH", host.python_directory);
  pin_devices(environment, command, host);

  environment.set_default("TORCH_NCCL_ASYNC_ERROR_HANDLING", "1");
  if (command.local_world_size > 1) environment.set_default("OMP_NUM_THREADS", "1");
  environment.set_default("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin");
  environment.set_default("HOME", host.home);
  environment.set_default("USER", host.user);
  environment.set_default("LOGNAME", host.user);
  environment.set_default("LANG", "C.UTF-8");
  environment.set_default("TMPDIR", host.temporary_directory);
  // Into a pipe Python would keep its output back: progress would look like silence.
  environment.set_default("PYTHONUNBUFFERED", "1");
  return environment.take();
}

}  // namespace regrow
