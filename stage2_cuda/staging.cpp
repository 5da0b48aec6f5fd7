#include "stage2_cuda/staging.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <vector>

#include "common/base/error.h"

namespace stagegpt::gpu {

namespace {

// Throws std::runtime_error if there is no memory left.
std::byte* pinned(std::size_t bytes) {
  void* const memory = allocate_pinned(bytes);
  if (memory == nullptr) {
    throw std::runtime_error(
        concat("out of memory: ", bytes, " bytes of pinned memory for copies to the device and from it"));
  }
  return static_cast<std::byte*>(memory);
}

}  // namespace

Staging::~Staging() {
  for (const Slot& slot : slots_) {
    if (slot.memory) deallocate_pinned(slot.memory);
  }
  if (to_host_) deallocate_pinned(to_host_);
}

Staging::Slot& Staging::slot_with_room() {
  if (slots_[current_].filled == kSlotBytes) {
    current_ = (current_ + 1) % slots_.size();
    Slot& slot = slots_[current_];
    if (!is_done(slot.done)) wait_for(slot.done);
    slot.filled = 0;
  }
  Slot& slot = slots_[current_];
  if (slot.memory == nullptr) slot.memory = pinned(kSlotBytes);
  return slot;
}

void Staging::copy_to_device(void* out, const void* in, std::size_t bytes) {
  for (std::size_t begin = 0; begin < bytes;) {
    Slot& slot = slot_with_room();
    const std::size_t part = std::min(kSlotBytes - slot.filled, bytes - begin);
    std::byte* const memory = slot.memory + slot.filled;
    std::memcpy(memory, static_cast<const std::byte*>(in) + begin, part);
    gpu::copy_to_device(static_cast<std::byte*>(out) + begin, memory, part, stream_);
    record(slot.done, stream_);
    slot.filled += part;
    begin += part;
  }
}

void Staging::copy_to_host(std::span<const CopyToHost> copies) {
  if (to_host_ == nullptr) to_host_ = pinned(kSlotBytes);
  struct Part {
    std::byte* out;
    std::size_t begin, bytes;  // in to_host_
  };
  std::vector<Part> parts;
  std::size_t filled = 0;
  const auto finish = [&] {
    synchronize(stream_);
    for (const Part& part : parts) std::memcpy(part.out, to_host_ + part.begin, part.bytes);
    parts.clear();
    filled = 0;
  };
  for (const auto& [out, in, bytes] : copies) {
    for (std::size_t begin = 0; begin < bytes;) {
      if (filled == kSlotBytes) finish();
      const std::size_t part = std::min(kSlotBytes - filled, bytes - begin);
      gpu::copy_to_host(to_host_ + filled, static_cast<const std::byte*>(in) + begin, part, stream_);
      parts.push_back({static_cast<std::byte*>(out) + begin, filled, part});
      filled += part;
      begin += part;
    }
  }
  finish();
}

}  // namespace stagegpt::gpu
