// Says in one line what an access went beyond before it ends the program: device memory that host code
// followed an address into, the end of an allocation, a fiber's stack.
#pragma once

#include <memory>

namespace stagegpt::gpu::emulation {

class DeviceMemory;

// Installs a handler of SIGSEGV, which hands faults elsewhere on to the handler before it.
void explain_memory_faults(const DeviceMemory& memory);

// A stack for signal handlers of this OS thread, should it have none: a fiber's own may be what overflowed.
class SignalStack {
 public:
  SignalStack();
  ~SignalStack();
  SignalStack(const SignalStack&) = delete;
  SignalStack& operator=(const SignalStack&) = delete;

 private:
  std::unique_ptr<char[]> memory_;  // null where there was one
};

}  // namespace stagegpt::gpu::emulation
