#include "stage2_cuda/staging.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>

#include "common/base/error.h"

namespace stagegpt::gpu {

Staging::~Staging() {
  for (const Slot& slot : slots_) {
    if (slot.memory) deallocate_pinned(slot.memory);
  }
}

Staging::Slot& Staging::next_slot() {
  Slot& slot = slots_[next_];
  next_ = (next_ + 1) % slots_.size();
  if (slot.memory == nullptr) slot.memory = allocate_pinned(kSlotBytes);
  if (slot.memory == nullptr) {
    throw std::runtime_error(
        concat("out of memory: ", kSlotBytes, " bytes of pinned memory for copies to the device"));
  }
  wait_for(slot.done);
  return slot;
}

void Staging::copy_to_device(void* out, const void* in, std::size_t bytes) {
  for (std::size_t begin = 0; begin < bytes; begin += kSlotBytes) {
    const std::size_t part = std::min(kSlotBytes, bytes - begin);
    const Slot& slot = next_slot();
    std::memcpy(slot.memory, static_cast<const std::byte*>(in) + begin, part);
    gpu::copy_to_device(static_cast<std::byte*>(out) + begin, slot.memory, part, stream_);
    record(slot.done, stream_);
  }
}

void Staging::copy_to_host(void* out, const void* in, std::size_t bytes) {
  for (std::size_t begin = 0; begin < bytes; begin += kSlotBytes) {
    const std::size_t part = std::min(kSlotBytes, bytes - begin);
    const Slot& slot = next_slot();
    gpu::copy_to_host(slot.memory, static_cast<const std::byte*>(in) + begin, part, stream_);
    synchronize(stream_);
    std::memcpy(static_cast<std::byte*>(out) + begin, slot.memory, part);
  }
}

}  // namespace stagegpt::gpu
