// What a program needs to know of the machine that it was built for: a GPU (cuda/platform.cpp), or the
// emulator (emulation/platform.cpp).
#pragma once

#include <memory>
#include <string>

#include "common/app/command_line.h"
#include "stage2_cuda/runtime.h"

namespace stagegpt::gpu {

class Platform {
 public:
  virtual ~Platform() = default;
  // Declares the flags that only this machine has a use for.
  virtual void add_flags(CommandLine& command_line) = 0;
  // Called once, when they have been read; so many processes share the host's cores.
  virtual void start(int processes) = 0;
  virtual int threads() const = 0;  // of the host, for what it computes: tokens and, emulated, kernels
  // For the reader: the device, and what make_library_gemm() gives.
  virtual std::string description(int index, const DeviceInfo& device) const = 0;
  virtual std::string library() const = 0;
  // Whether a millisecond here is a GPU's.
  virtual bool is_gpu() const = 0;
};

std::unique_ptr<Platform> make_platform();

}  // namespace stagegpt::gpu
