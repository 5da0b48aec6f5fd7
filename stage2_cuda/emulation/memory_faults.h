// A handler of SIGSEGV that reports invalid accesses to emulated device memory in one line and ends the
// program: host code that dereferences a device address, a kernel that exceeds an allocation, a stack
// overflow.
#pragma once

#include <memory>

namespace stagegpt::gpu::emulation {

class DeviceMemory;

// Installs the handler. It passes other faults on to the previous handler.
void explain_memory_faults(const DeviceMemory& memory);

// An alternate stack for this OS thread's signal handlers, if it has none: after an overflow of a fiber's
// stack, the handler cannot run on it.
class SignalStack {
 public:
  SignalStack();
  ~SignalStack();
  SignalStack(const SignalStack&) = delete;
  SignalStack& operator=(const SignalStack&) = delete;

 private:
  std::unique_ptr<char[]> memory_;  // null if the thread already had one
};

}  // namespace stagegpt::gpu::emulation
