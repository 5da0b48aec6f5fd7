#include "stage2_cuda/platform.h"

#include <cublasLt.h>
#include <nvtx3/nvToolsExt.h>
#include <sched.h>

#include <algorithm>
#include <thread>

#include "common/base/error.h"

namespace stagegpt::gpu {
namespace {

// Number of cores that this process may use; a launcher may have bound it to some.
int own_cores() {
  cpu_set_t cores;
  if (sched_getaffinity(0, sizeof cores, &cores) == 0) return CPU_COUNT(&cores);
  return static_cast<int>(std::thread::hardware_concurrency());  // more cores than cpu_set_t holds
}

// Without Nsight Systems, a call returns at once.
class NvtxRanges final : public LiveRanges {
 public:
  void begin(const char* name) override { nvtxRangePushA(name); }
  void end() override { nvtxRangePop(); }
};

class Gpu final : public Platform {
 public:
  void add_flags(CommandLine&) override {}
  void start(int processes) override { threads_ = std::max(1, own_cores() / processes); }
  int threads() const override { return threads_; }
  std::string description(int index, const DeviceInfo& device) const override {
    return concat("GPU ", index, ": ", device.name, ", compute capability ", device.major, '.', device.minor);
  }
  std::string library() const override { return "cuBLASLt"; }
  std::string library_version() const override { return concat("cuBLASLt ", cublasLtGetVersion()); }
  bool is_gpu() const override { return true; }
  LiveRanges* live_ranges() override { return &ranges_; }

 private:
  NvtxRanges ranges_;
  int threads_ = 1;
};

}  // namespace

std::unique_ptr<Platform> make_platform() { return std::make_unique<Gpu>(); }

}  // namespace stagegpt::gpu
