#include "stage2_cuda/emulation/memory_faults.h"

#include <limits.h>
#include <signal.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "common/base/error.h"
#include "stage2_cuda/emulation/block.h"
#include "stage2_cuda/emulation/device_memory.h"

extern "C" const char __executable_start;  // the linker's name for the first byte of the program

namespace stagegpt::gpu::emulation {
namespace {

constexpr std::size_t kSignalStackBytes = std::size_t{64} << 10;
constexpr std::size_t kLineBytes = 512;

const DeviceMemory* watched_memory = nullptr;
struct sigaction previous_action;
std::atomic_flag has_reported;

bool in_kernel() { return current_block != nullptr && current_thread != nullptr; }

// Describes a faulting access to `address`; null if it is neither device memory nor a fiber's stack guard.
const char* description_of_fault(const void* address) {
  if (watched_memory->is_device_address(address)) {
    return in_kernel() ? "dereferenced a device address that is not an argument of the launch"
                       : "accessed device memory outside a copy";
  }
  if (watched_memory->is_view_address(address))
    return "reads or writes beyond an allocation of device memory";
  if (in_kernel() && current_block->fibers().is_stack_guard(address)) return "overflows its stack";
  return nullptr;
}

void write_text(const char* text) {
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, text, std::strlen(text));
}

// Names the array: the last one that begins before the address. It is the right one if the address is in the
// guard page behind it.
void report_element(const std::vector<PointerArgument>& pointers, const void* address) {
  const PointerArgument* array = nullptr;
  for (const PointerArgument& pointer : pointers) {
    if (pointer.address <= address && (array == nullptr || array->address < pointer.address))
      array = &pointer;
  }
  if (array == nullptr) return;
  const std::ptrdiff_t byte = static_cast<const char*>(address) - static_cast<const char*>(array->address);
  char line[kLineBytes];
  std::snprintf(line, sizeof(line), ": byte %td (element %td, if of 4 bytes) of the array in argument %zu",
                byte, byte / 4, array->number);
  write_text(line);
}

// Writes the first part without allocating memory, because the heap may be damaged.
void report(const char* description, const void* address) {
  char line[kLineBytes];
  if (in_kernel()) {
    const Index block = current_block->index(), thread = current_thread->index;
    std::snprintf(line, sizeof(line), "kernel %.200s, block (%u,%u,%u), thread (%u,%u,%u): %s",
                  current_block->launch().kernel, block.x, block.y, block.z, thread.x, thread.y, thread.z,
                  description);
  } else {
    std::snprintf(line, sizeof(line), "host code %s", description);
  }
  write_text(line);
  if (in_kernel() && watched_memory->is_view_address(address)) {
    const Launch& launch = current_block->launch();
    report_element(launch.pointers(launch.arguments), address);
  }
  std::snprintf(line, sizeof(line), " (%p)\n", address);
  write_text(line);
}

std::uintptr_t instruction_of(const void* context) {
  const mcontext_t& state = static_cast<const ucontext_t*>(context)->uc_mcontext;
#ifdef __x86_64__
  return static_cast<std::uintptr_t>(state.gregs[REG_RIP]);
#else
  return state.pc;
#endif
}

// Writes the source line of an instruction, and the lines in which its function was inlined, each as
// FILE:LINE, or as ??:0 without a table of lines. Nothing if addr2line (binutils) is not installed.
void report_source_lines(std::uintptr_t instruction) {
  char program[PATH_MAX] = {};
  if (readlink("/proc/self/exe", program, sizeof(program) - 1) < 0) return;
  char offset[32];
  std::snprintf(offset, sizeof(offset), "%#zx",
                instruction - reinterpret_cast<std::uintptr_t>(&__executable_start));
  const pid_t child = fork();
  if (child == 0) {
    dup2(STDERR_FILENO, STDOUT_FILENO);
    execlp("addr2line", "addr2line", "--inlines", "--basenames", "--exe", program, offset, nullptr);
    _exit(1);
  }
  if (child > 0) waitpid(child, nullptr, 0);
}

void pass_on(int signal, siginfo_t* info, void* context) {
  if ((previous_action.sa_flags & SA_SIGINFO) != 0) {
    previous_action.sa_sigaction(signal, info, context);
  } else {
    sigaction(signal, &previous_action, nullptr);  // the access is repeated, with the previous handler
  }
}

void on_fault(int signal, siginfo_t* info, void* context) {
  if (const char* description = description_of_fault(info->si_addr)) {
    while (has_reported.test_and_set()) pause();  // another OS thread reports its fault and ends the program
    report(description, info->si_addr);
    report_source_lines(instruction_of(context));
    std::abort();
  }
  if (in_kernel()) {
    report("accessed an invalid address", info->si_addr);
    report_source_lines(instruction_of(context));
  }
  pass_on(signal, info, context);
}

}  // namespace

void explain_memory_faults(const DeviceMemory& memory) {
  watched_memory = &memory;
  struct sigaction action = {};
  action.sa_sigaction = on_fault;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  sigemptyset(&action.sa_mask);
  check(sigaction(SIGSEGV, &action, &previous_action) == 0, "sigaction failed");
}

SignalStack::SignalStack() {
  stack_t stack = {};
  if (sigaltstack(nullptr, &stack) != 0 || (stack.ss_flags & SS_DISABLE) == 0) return;
  memory_ = std::make_unique<char[]>(kSignalStackBytes);
  stack = {.ss_sp = memory_.get(), .ss_flags = 0, .ss_size = kSignalStackBytes};
  sigaltstack(&stack, nullptr);
}

SignalStack::~SignalStack() {
  if (memory_ == nullptr) return;
  stack_t stack = {};
  stack.ss_flags = SS_DISABLE;
  sigaltstack(&stack, nullptr);
}

}  // namespace stagegpt::gpu::emulation
