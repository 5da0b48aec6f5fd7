#include "common/io/mapping_faults.h"

#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstring>

#include "common/base/error.h"

namespace stagegpt {
namespace {

// In static memory, because a signal handler reads it.
struct Slot {
  std::atomic<bool> taken = false;
  std::atomic<const std::byte*> begin = nullptr;  // null until the other fields are set
  std::size_t bytes = 0;
  char path[512] = {};
};
constexpr int kSlots = 256;
Slot slots[kSlots];

const char* program_name = "";
struct sigaction previous_action;

const Slot* slot_of(const void* address) {
  for (const Slot& slot : slots) {
    const std::byte* begin = slot.begin;
    const auto* at = static_cast<const std::byte*>(address);
    if (begin != nullptr && at >= begin && at < begin + slot.bytes) return &slot;
  }
  return nullptr;
}

void on_fault(int, siginfo_t* info, void*) {
  const Slot* slot = slot_of(info->si_addr);
  if (slot == nullptr) {
    sigaction(SIGBUS, &previous_action, nullptr);  // the access is repeated and faults again
    return;
  }
  char line[1024];
  std::snprintf(line, sizeof line,
                "%s: cannot read \"%s\": it was truncated after it was opened, or its disk failed\n",
                program_name, slot->path);
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, line, std::strlen(line));
  _exit(1);
}

}  // namespace

void explain_mapping_faults(const char* program) {
  program_name = program;
  struct sigaction action = {};
  action.sa_sigaction = on_fault;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  sigemptyset(&action.sa_mask);
  check(sigaction(SIGBUS, &action, &previous_action) == 0, "sigaction failed");
}

void note_mapping(std::span<const std::byte> bytes, const std::filesystem::path& path) {
  for (Slot& slot : slots) {
    if (slot.taken.exchange(true)) continue;
    slot.bytes = bytes.size();
    std::snprintf(slot.path, sizeof slot.path, "%s", path.c_str());
    slot.begin = bytes.data();
    return;
  }
}

void forget_mapping(std::span<const std::byte> bytes) {
  for (Slot& slot : slots) {
    if (slot.begin != bytes.data()) continue;
    slot.begin = nullptr;
    slot.taken = false;
  }
}

}  // namespace stagegpt
