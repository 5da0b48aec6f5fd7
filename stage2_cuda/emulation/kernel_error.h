// An error in a kernel or in a launch, found by the emulator.
#pragma once

#include <stdexcept>

namespace stagegpt::gpu {

// The message names the kernel and, if the error is in a thread, its block and thread index.
class KernelError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

}  // namespace stagegpt::gpu
