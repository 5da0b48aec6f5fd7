// Copies between the host and the device through pinned memory: what is copied to the device may be forgotten
// at once, while the copy waits for its turn in the stream.
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

  // Returns when `in` has been read; the device has it when the stream gets there.
  void copy_to_device(void* out, const void* in, std::size_t bytes);
  // Returns when `out` is there.
  void copy_to_host(void* out, const void* in, std::size_t bytes);

 private:
  // A piece of pinned memory, and the end of the last copy that used it.
  struct Slot {
    void* memory = nullptr;
    Event done;
  };
  static constexpr std::size_t kSlotBytes = std::size_t{4} << 20;

  // The slot that was used longest ago, free again.
  Slot& next_slot();

  StreamHandle stream_;
  std::array<Slot, 4> slots_;
  std::size_t next_ = 0;
};

}  // namespace stagegpt::gpu
