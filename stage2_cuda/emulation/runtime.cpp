// The runtime of the emulated GPU. Work of a stream is done at once, so there is never anything to wait for.
#include "stage2_cuda/runtime.h"

#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <optional>

#include "common/error.h"
#include "stage2_cuda/emulation/device_memory.h"
#include "stage2_cuda/emulation/settings.h"

namespace stagegpt::gpu {
namespace {

using Clock = std::chrono::steady_clock;

struct Stream {};
struct Event {
  std::optional<Clock::time_point> time;
};

constexpr std::size_t kPinnedAlignment = 4096;

Clock::time_point time_of(EventHandle event) {
  const auto& time = static_cast<const Event*>(event)->time;
  check(time.has_value(), "an event was asked for its time before it was recorded");
  return *time;
}

}  // namespace

int device_count() { return emulation::device_count(); }

DeviceInfo open_device(int index) {
  const int count = device_count();
  if (index < 0 || index >= count) {
    user_error("--device: ", index, ": ", count, count == 1 ? " GPU is" : " GPUs are",
               " emulated, numbered from 0 (STAGEGPT_EMULATOR_DEVICES)");
  }
  emulation::thread_order();  // complains of the environment now rather than in a launch
  return {.name = "emulated GPU",
          .id = concat("emulated ", index),
          .major = 8,
          .minor = 0,
          .multiprocessors = emulation::threads(),
          .memory_bytes = memory_info().total};
}

void* allocate(std::size_t bytes) { return emulation::device_memory().allocate(bytes); }

void deallocate(void* block) noexcept { emulation::device_memory().deallocate(block); }

MemoryInfo memory_info() { return emulation::device_memory().info(); }

void* host_view(void* device) noexcept { return emulation::device_memory().view(device); }

void* allocate_pinned(std::size_t bytes) {
  const std::size_t rounded = (bytes + kPinnedAlignment - 1) / kPinnedAlignment * kPinnedAlignment;
  void* block = std::aligned_alloc(kPinnedAlignment, rounded);
  if (block == nullptr) throw std::runtime_error(concat("out of memory: ", bytes, " bytes of pinned memory"));
  return block;
}

void deallocate_pinned(void* block) noexcept { std::free(block); }

StreamHandle make_stream() { return new Stream; }

void destroy_stream(StreamHandle stream) noexcept { delete static_cast<Stream*>(stream); }

void synchronize(StreamHandle) {}

void copy_to_device(void* out, const void* in, std::size_t bytes, StreamHandle) {
  const emulation::DeviceMemory& memory = emulation::device_memory();
  if (bytes == 0) return;
  memory.check_host_range(in, bytes, "copy_to_device");
  std::memcpy(memory.copied_range(out, bytes, "copy_to_device"), in, bytes);
}

void copy_to_host(void* out, const void* in, std::size_t bytes, StreamHandle) {
  const emulation::DeviceMemory& memory = emulation::device_memory();
  if (bytes == 0) return;
  memory.check_host_range(out, bytes, "copy_to_host");
  std::memcpy(out, memory.copied_range(in, bytes, "copy_to_host"), bytes);
}

void copy_on_device(void* out, const void* in, std::size_t bytes, StreamHandle) {
  const emulation::DeviceMemory& memory = emulation::device_memory();
  if (bytes == 0) return;
  std::memmove(memory.copied_range(out, bytes, "copy_on_device"),
               memory.copied_range(in, bytes, "copy_on_device"), bytes);
}

void set_zero(void* out, std::size_t bytes, StreamHandle) {
  if (bytes == 0) return;
  std::memset(emulation::device_memory().copied_range(out, bytes, "set_zero"), 0, bytes);
}

EventHandle make_event() { return new Event; }

void destroy_event(EventHandle event) noexcept { delete static_cast<Event*>(event); }

void record(EventHandle event, StreamHandle) { static_cast<Event*>(event)->time = Clock::now(); }

void wait_for(EventHandle) {}

void wait_for(StreamHandle, EventHandle) {}

bool is_done(EventHandle) { return true; }

float milliseconds_between(EventHandle begin, EventHandle end) {
  return std::chrono::duration<float, std::milli>(time_of(end) - time_of(begin)).count();
}

}  // namespace stagegpt::gpu
