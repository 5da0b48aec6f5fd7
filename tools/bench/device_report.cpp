#include "tools/bench/device_report.h"

#include <cstdio>

#include "common/base/json.h"

namespace stagegpt {

std::optional<DeviceWork> difference(const std::optional<DeviceWork>& end,
                                     const std::optional<DeviceWork>& begin) {
  if (!end || !begin) return std::nullopt;
  return *end - *begin;
}

Json device_work_json(const std::optional<DeviceWork>& work) {
  if (!work) return nullptr;
  return {{"launches", work->launches()}, {"kernels", work->kernels}, {"products", work->products},
          {"fills", work->fills},         {"copies", work->copies},   {"allocations", work->allocations},
          {"waits", work->waits},         {"graphs", work->graphs},   {"in_graphs", work->in_graphs}};
}

void print_device_work(const DeviceWork& work, const char* what, const char* of_graphs) {
  std::printf(
      "launches    %10lld      in %s: %lld kernels, %lld products of the library, %lld fills; %lld copies\n",
      static_cast<long long>(work.launches()), what, static_cast<long long>(work.kernels),
      static_cast<long long>(work.products), static_cast<long long>(work.fills),
      static_cast<long long>(work.copies));
  if (work.graphs > 0) {
    std::printf("graphs      %10lld      launched in %s, with %lld of these launches in them%s\n",
                static_cast<long long>(work.graphs), what, static_cast<long long>(work.in_graphs), of_graphs);
  }
  std::printf("waits       %10lld      of the host for the device in %s; %lld allocations of device memory\n",
              static_cast<long long>(work.waits), what, static_cast<long long>(work.allocations));
}

}  // namespace stagegpt
