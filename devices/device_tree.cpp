#include "devices/device_tree.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <map>

namespace regrow {
namespace {

namespace fs = std::filesystem;

using Facts = std::map<std::string, std::string>;

bool read_facts(const fs::path& path, Facts& facts) {
  std::ifstream file(path);
  std::string line;
  while (std::getline(file, line)) {
    size_t equals = line.find('=');
    if (equals != std::string::npos) facts[line.substr(0, equals)] = line.substr(equals + 1);
  }
  return file.eof();
}

DeviceReport read_device(const fs::path& path) {
  DeviceReport report;
  report.name = {path.filename().string()};
  Facts facts;
  bool read = read_facts(path, facts);
  report.kind = facts["kind"];
  report.uid = facts["uid"];
  report.pci_address = facts["pci_address"];
  const std::string& memory = facts["memory_bytes"];
  std::from_chars(memory.data(), memory.data() + memory.size(), report.memory_bytes);
  report.fault = facts["fault"];
  if (!read || report.kind.empty() || report.uid.empty())
    report.fault = "its description cannot be read";
  report.healthy = report.fault.empty();
  return report;
}

bool is_plain_name(const std::string& name) {
  return !name.empty() && name[0] != '.' && name.find('/') == std::string::npos;
}

}  // namespace

std::vector<DeviceReport> read_device_tree(const std::string& sysroot) {
  std::vector<DeviceReport> reports;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(sysroot + "/devices", error)) {
    if (is_plain_name(entry.path().filename().string()))
      reports.push_back(read_device(entry.path()));
  }
  std::sort(reports.begin(), reports.end(),
            [](const DeviceReport& a, const DeviceReport& b) { return a.name < b.name; });
  return reports;
}

std::string set_device_fault(const std::string& sysroot, const DeviceName& device,
                             const std::string& fault) {
  if (sysroot.empty()) return "this host has no simulated devices";
  fs::path path = fs::path(sysroot) / "devices" / device.value;
  std::error_code error;
  if (!is_plain_name(device.value) || !fs::is_regular_file(path, error))
    return "there is no simulated device " + device.value + " on this host";
  Facts facts;
  if (!read_facts(path, facts)) return path.string() + " cannot be read";
  facts.erase("fault");
  std::string one_line = fault;
  std::replace(one_line.begin(), one_line.end(), '\n', ' ');
  if (!one_line.empty()) facts["fault"] = one_line;
  fs::path next = path.parent_path() / ("." + device.value + ".new");
  std::ofstream file(next);
  for (const auto& [key, value] : facts) file << key << '=' << value << '\n';
  file.close();
  if (!file) return next.string() + " cannot be written";
  fs::rename(next, path, error);
  return error ? path.string() + ": " + error.message() : "";
}

}  // namespace regrow
