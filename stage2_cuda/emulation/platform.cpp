#include "stage2_cuda/platform.h"

#include <algorithm>
#include <optional>

#include "common/base/error.h"
#include "common/system/restart_for_openmp.h"
#include "stage2_cuda/emulation/settings.h"

namespace stagegpt::gpu {
namespace {

class Emulator final : public Platform {
 public:
  void add_flags(CommandLine& command_line) override {
    command_line.integer(
        "--threads", threads_, 1, emulation::kMostThreads,
        concat("threads of each rank that run blocks (default: its share of the cores, at most ",
               emulation::kMostThreads, ")"));
    command_line.allow_another_value_per_rank("--threads");
  }
  void start(int processes) override {
    emulation::set_threads(threads_ ? static_cast<int>(*threads_)
                                    : std::max(1, emulation::threads() / processes));
  }
  int threads() const override { return emulation::threads(); }
  std::string description(int, const DeviceInfo&) const override {
    return concat("emulated GPU on ", threads(), threads() == 1 ? " thread" : " threads");
  }
  std::string library() const override { return "host BLAS (f32) in place of cuBLASLt"; }
  std::string library_version() const override { return "host BLAS"; }
  bool is_gpu() const override { return false; }

 private:
  std::optional<std::int64_t> threads_;
};

}  // namespace

std::unique_ptr<Platform> make_platform() {
  restart_with_short_spins();
  return std::make_unique<Emulator>();
}

}  // namespace stagegpt::gpu
