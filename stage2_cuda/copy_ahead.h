// Copies to the device by a stream of their own, so that they are done while ops are computed.
//
//   copies:  … wait for `taken` | host -> buffer | `arrived` …
//   ops:     … wait for `arrived` | buffer -> out | `taken` | ops that read `out` …
#pragma once

#include <span>

#include "common/tensor/tensor.h"
#include "stage2_cuda/device_objects.h"
#include "stage2_cuda/staging.h"

namespace stagegpt::gpu {

class CopyAhead {
 public:
  explicit CopyAhead(StreamHandle ops) : ops_(ops), staging_(copies_) {}
  CopyAhead(const CopyAhead&) = delete;
  CopyAhead& operator=(const CopyAhead&) = delete;

  // Starts to copy `in` to `buffer`. Returns when `in` has been read.
  void send(const Tensor& buffer, std::span<const std::byte> in) {
    if (!buffer.same_memory(buffer_)) {
      buffer_ = buffer;
      record(taken_, ops_);  // earlier ops may still use this memory
    }
    gpu::wait_for(copies_, taken_);
    staging_.copy_to_device(buffer.raw(), in.data(), in.size());
    record(arrived_, copies_);
  }
  // Copies what was sent to `out`, in the order of the ops.
  void receive(const Tensor& out) {
    gpu::wait_for(ops_, arrived_);
    copy_on_device(out.raw(), buffer_.raw(), out.bytes(), ops_);
    record(taken_, ops_);
  }
  void synchronize() { gpu::synchronize(copies_); }

 private:
  StreamHandle ops_;
  Stream copies_;
  Staging staging_;
  Tensor buffer_;
  Event arrived_, taken_;
};

}  // namespace stagegpt::gpu
