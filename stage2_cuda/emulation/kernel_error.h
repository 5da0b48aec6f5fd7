// What the emulator has to say against a kernel, or against a launch.
#pragma once

#include <stdexcept>

namespace stagegpt::gpu {

// The message names the kernel and, where one is at fault, the block and the thread.
class KernelError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

}  // namespace stagegpt::gpu
