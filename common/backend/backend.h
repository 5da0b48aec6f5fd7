// Computes ops on tensors, for training and for inference: run() takes an op (op.h), checks its arguments and
// calls its kernel, one of those that each backend implements (kernels.h).
//
// The caller allocates the outputs. A method may return before its op has finished: synchronize() waits for
// all ops.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>

#include "common/backend/device_work.h"
#include "common/backend/kernels.h"
#include "common/backend/op.h"
#include "common/backend/recording.h"
#include "common/backend/work_timer.h"
#include "common/tensor/caching_allocator.h"
#include "common/tensor/tensor.h"

namespace stagegpt {

class OpObserver;

// A copy of a whole tensor to host memory of the same size.
struct HostCopy {
  std::span<std::byte> out;
  Tensor in;
};

class Backend {
 public:
  // `kernels` is usually the derived class itself. Without kernels, ops check their arguments and compute
  // nothing: see planning_backend.h.
  Backend(std::unique_ptr<MemorySource> memory, Kernels* kernels);
  virtual ~Backend() = default;
  Backend(const Backend&) = delete;
  Backend& operator=(const Backend&) = delete;

  // Without fusion, a fused op calls the primitive ops that it combines. This is slower; tests compare the
  // fused kernels with it.
  void set_fused(bool fused) { fused_ = fused; }
  // Makes results independent of the number of threads, bit for bit. Some kernels become slower.
  virtual void set_reproducible(bool /*reproducible*/) {}

  // ---- Memory -------------------------------------------------------------------------------------------
  Tensor allocate(DType dtype, Shape shape);  // contents undefined
  Tensor zeros(DType dtype, Shape shape);
  MemoryStats memory_stats() const { return allocator_->stats(); }
  // Sets the peak to the memory that is in use now.
  void forget_memory_peak() { allocator_->forget_peak(); }
  // Gives memory that is kept for reuse back to the system.
  void release_free_memory() { allocator_->release(); }
  void fill(const Tensor& out, double value);
  void copy(const Tensor& out, const Tensor& in);  // same dtype and number of elements
  // Copy a whole tensor between the backend and host memory of the same size. The first returns when `in` has
  // been read, the second when `out` has been written.
  void copy_from_host(const Tensor& out, std::span<const std::byte> in);
  void copy_to_host(std::span<std::byte> out, const Tensor& in);
  // The second for several tensors, with one wait for all of them.
  void copy_to_host(std::span<const HostCopy> copies);
  // Sends host memory ahead of its use: if the backend is a device, beside the ops that it computes. Returns
  // when `in` has been read. receive() then copies to `out` what was sent last, in the order of the ops.
  void send_ahead(std::span<const std::byte> in);
  void receive(const Tensor& out);
  virtual void synchronize() = 0;
  // A clock for this backend's work; it may not outlive the backend.
  virtual std::unique_ptr<WorkTimer> make_timer() { return std::make_unique<HostTimer>(); }
  // Does `work`, or what it did at an earlier call with the same recording. Therefore it must always call the
  // same ops with the same arguments, and may not wait for them; what differs is in the contents of tensors
  // that exist before it. Without records() it is called every time, and also while ops are observed.
  void repeat(Recording& recording, const std::function<void()>& work);
  virtual bool records() const { return false; }
  // Whether a training that can repeat none of its passes is to be refused.
  virtual bool must_record() const { return false; }
  // What the process has asked of its device so far; nothing if there is none.
  virtual std::optional<DeviceWork> device_work() const { return std::nullopt; }
  // FLOP/s of fused multiply-adds on values in registers, by all threads: measured, in about 10 ms. Nothing
  // if this backend cannot measure it.
  virtual std::optional<double> multiply_add_rate() { return std::nullopt; }

  // ---- Ops ----------------------------------------------------------------------------------------------
  template <class Op>
  void run(const Op& op);
  // Whether this backend has kernels for quantised matrices.
  virtual bool reads_quantised_rows() const { return true; }
  // Whether NormLinearForward of x (B,T,C) is faster than the ops that it combines.
  virtual bool norms_in_product(const Tensor& /*x*/) const { return false; }
  // SquaredNorm adds blocks of norm_block() elements.
  virtual std::int64_t norm_block() const { return 1 << 14; }
  std::int64_t norm_blocks(std::int64_t n) const { return (n + norm_block() - 1) / norm_block(); }

 protected:
  CachingAllocator& allocator() { return *allocator_; }

 private:
  friend class OpObserver;

  virtual void do_copy_from_host(void* out, const void* in, std::size_t bytes) = 0;
  // `buffer` is empty before, and is used for this only.
  virtual void do_send_ahead(const Tensor& buffer, std::span<const std::byte> in) {
    do_copy_from_host(buffer.raw(), in.data(), in.size());
  }
  virtual void do_receive(const Tensor& out, const Tensor& buffer);
  virtual void do_repeat(Recording&, const std::function<void()>& work) { work(); }
  // None of the tensors is empty.
  virtual void do_copy_to_host(std::span<const HostCopy> copies) = 0;

  using Operands = std::span<const Tensor* const>;
  // Calls `function`, through the observer if there is one.
  template <class Function>
  void observe(const char* op, const Work& work, Operands operands, const Function& function);
  // Calls `kernel` through the observer.
  void show(const char* op, const Work& work, Operands operands, const std::function<void()>& kernel);

  std::shared_ptr<CachingAllocator> allocator_;
  Kernels* kernels_;
  Tensor sent_;  // i32, by send_ahead()
  bool fused_ = true;
  OpObserver* observer_ = nullptr;
};

template <class Op>
void Backend::run(const Op& op) {
  op.check(Checks(Op::kName, *this));
  if constexpr (requires { op.composed(*this); }) {
    if (!fused_) return op.composed(*this);
  }
  if constexpr (requires { op.is_wanted(); }) {
    if (!op.is_wanted()) return;
  }
  const auto kernel = [&] {
    if (kernels_ != nullptr) kernels_->compute(op);
  };
  observer_ == nullptr ? kernel() : show(Op::kName, op.work(), op.operands(), std::cref(kernel));
}

// Copy whole tensors between the host and a backend.
template <class T>
void upload(Backend& backend, const Tensor& out, std::span<const T> in) {
  check(out.dtype() == kDTypeOf<T>, "upload: ", kDTypeOf<T>, " into ", out.dtype());
  backend.copy_from_host(out, std::as_bytes(in));
}

template <class T>
Tensor to_device(Backend& backend, Shape shape, std::span<const T> in) {
  Tensor out = backend.allocate(kDTypeOf<T>, shape);
  upload(backend, out, in);
  return out;
}

template <class T>
std::vector<T> to_host(Backend& backend, const Tensor& in) {
  check(in.dtype() == kDTypeOf<T>, "to_host: ", in.dtype(), " as ", kDTypeOf<T>);
  std::vector<T> out(static_cast<std::size_t>(in.numel()));
  backend.copy_to_host(std::as_writable_bytes(std::span(out)), in);
  return out;
}

// A copy into `out`, one element for each of the tensor.
template <class T>
HostCopy host_copy(std::span<T> out, const Tensor& in) {
  check(in.dtype() == kDTypeOf<T>, "host_copy: ", in.dtype(), " as ", kDTypeOf<T>);
  return {std::as_writable_bytes(out), in};
}

// The elements of an f32 or bf16 tensor.
std::vector<float> floats_to_host(Backend& backend, const Tensor& in);

}  // namespace stagegpt
