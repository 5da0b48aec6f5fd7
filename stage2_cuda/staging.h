// Copies between the host and the device through pinned memory. The source of a copy to the device may be
// changed or freed as soon as the call returns, while the copy is still queued in the stream.
#pragma once

#include <array>
#include <cstddef>

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
  // Returns when `out` is complete.
  void copy_to_host(void* out, const void* in, std::size_t bytes);

 private:
  // A buffer of pinned memory, and an event at the end of the last copy that used it.
  struct Slot {
    void* memory = nullptr;
    Event done;
  };
  static constexpr std::size_t kSlotBytes = std::size_t{4} << 20;

  // Returns the least recently used slot, after its last copy is complete.
  Slot& next_slot();

  StreamHandle stream_;
  std::array<Slot, 4> slots_;
  std::size_t next_ = 0;
};

}  // namespace stagegpt::gpu
