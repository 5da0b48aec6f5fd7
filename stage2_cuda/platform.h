// The differences between programs for a GPU (cuda/platform.cpp) and for the emulator
// (emulation/platform.cpp).
#pragma once

#include <memory>
#include <string>

#include "common/app/command_line.h"
#include "common/backend/op_observer.h"
#include "common/profile/timeline.h"
#include "stage2_cuda/runtime.h"

namespace stagegpt::gpu {

class Platform {
 public:
  virtual ~Platform() = default;
  // Adds the flags that only this platform has.
  virtual void add_flags(CommandLine& command_line) = 0;
  // Called once, after the flags have been parsed. `processes` share the host's cores.
  virtual void start(int processes) = 0;
  virtual int threads() const = 0;  // of the host, for tokenization and emulated kernels
  // For the user: the device, and the library of make_library_gemm().
  virtual std::string description(int index, const DeviceInfo& device) const = 0;
  virtual std::string library() const = 0;
  // The library and its version.
  virtual std::string library_version() const = 0;
  // Whether kernels run on a GPU, so that measured times are those of a GPU.
  virtual bool is_gpu() const = 0;
  // --emulator-report, of the emulator: counts what kernels do, and reports it. A program that counts
  // measures no time.
  virtual void add_report_flag(CommandLine&) {}
  virtual bool counts() const { return false; }
  // Counts by op too while the observer exists; null if nothing is counted.
  virtual std::unique_ptr<OpObserver> watch(Backend&) { return nullptr; }
  virtual void write_report() {}
  // Where a profiler of the platform shows ranges of a timeline; null if there is none.
  virtual LiveRanges* live_ranges() { return nullptr; }
};

std::unique_ptr<Platform> make_platform();

}  // namespace stagegpt::gpu
