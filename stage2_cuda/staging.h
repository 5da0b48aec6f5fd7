// Copies between the host and the device through pinned memory. The source of a copy to the device may be
// changed or freed as soon as the call returns, while the copy is still queued in the stream.
#pragma once

#include <array>
#include <cstddef>
#include <span>

#include "stage2_cuda/device_objects.h"

namespace stagegpt::gpu {

class Staging {
 public:
  explicit Staging(StreamHandle stream) : stream_(stream) {}
  ~Staging();
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;

  // Returns when `in` has been read. The copy to the device is in stream order.
  void copy_to_device(void* out, const void* in, std::size_t bytes);
  // A copy of `bytes` bytes from the device.
  struct CopyToHost {
    void* out;
    const void* in;
    std::size_t bytes;
  };
  // Returns when all copies are complete. Waits once for 4 MiB of them.
  void copy_to_host(std::span<const CopyToHost> copies);

 private:
  // A buffer of pinned memory, which is filled by one copy to the device after the other, and an event at the
  // end of the last one.
  struct Slot {
    std::byte* memory = nullptr;
    std::size_t filled = 0;
    Event done;
  };
  static constexpr std::size_t kSlotBytes = std::size_t{4} << 20;

  // The slot that is being filled or, if it is full, the least recently used one, after its last copy is
  // complete.
  Slot& slot_with_room();

  StreamHandle stream_;
  std::array<Slot, 4> slots_;
  std::size_t current_ = 0;
  std::byte* to_host_ = nullptr;  // pinned, kSlotBytes
};

}  // namespace stagegpt::gpu
