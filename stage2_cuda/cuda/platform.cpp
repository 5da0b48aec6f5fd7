#include "stage2_cuda/platform.h"

#include <algorithm>
#include <thread>

#include "common/error.h"

namespace stagegpt::gpu {
namespace {

class Gpu final : public Platform {
 public:
  void add_flags(CommandLine&) override {}
  void start(int processes) override {
    threads_ = std::max(1, static_cast<int>(std::thread::hardware_concurrency()) / processes);
  }
  int threads() const override { return threads_; }
  std::string description(int index, const DeviceInfo& device) const override {
    return concat("GPU ", index, ": ", device.name, ", compute capability ", device.major, '.', device.minor);
  }
  std::string library() const override { return "cuBLASLt"; }
  bool is_gpu() const override { return true; }

 private:
  int threads_ = 1;
};

}  // namespace

std::unique_ptr<Platform> make_platform() { return std::make_unique<Gpu>(); }

}  // namespace stagegpt::gpu
