// What one step, or one token, asks of a device: counted, and reported.
#pragma once

#include <optional>

#include "common/backend/device_work.h"
#include "common/base/json_fwd.h"

namespace stagegpt {

// From `begin` to `end`; nothing if the backend has no device.
std::optional<DeviceWork> difference(const std::optional<DeviceWork>& end,
                                     const std::optional<DeviceWork>& begin);

Json device_work_json(const std::optional<DeviceWork>& work);
// Prints the same as lines of a table. `what`: "a step" or "a token"; `of_graphs` follows what is said of
// them.
void print_device_work(const DeviceWork& work, const char* what, const char* of_graphs = "");

}  // namespace stagegpt
