// Devices of a host from a directory tree: simulated ones, each a file that tests and `regrow
// fault` edit.
//
//   SYSROOT/devices/sim0:   kind=sim
//                           uid=SIM-3f2a...
//                           memory_bytes=17179869184
//                           fault=uncorrectable memory error     (no such line = healthy)
//
// Any thread; blocking file work of a few small files.
#pragma once

#include <string>
#include <vector>

#include "supervisors/host_protocol.h"

namespace regrow {

// Every device of the tree, by name. A file that cannot be read or lacks kind or uid is a device
// that is not healthy and says why: unknown never counts as healthy.
std::vector<DeviceReport> read_device_tree(const std::string& sysroot);

// Gives a simulated device a fault, or heals it (empty). Returns why not; empty = done.
std::string set_device_fault(const std::string& sysroot, const DeviceName& device,
                             const std::string& fault);

}  // namespace regrow
