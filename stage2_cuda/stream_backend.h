// CudaBackend on one stream: each op is one or more launches, and the host waits only for copies to the host.
// With the same shapes all kernels add in the same order, so that reproducible mode needs nothing else.
//
// The ops are in ops/, by the name of the op in each backend, those of generation in ops/decoding.cu; the
// others are in cuda_backend.cu.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "common/autograd/ops/attention.h"
#include "common/autograd/ops/cross_entropy.h"
#include "common/autograd/ops/dropout.h"
#include "common/autograd/ops/embedding.h"
#include "common/autograd/ops/layernorm.h"
#include "common/autograd/ops/linear.h"
#include "common/autograd/ops/norm_linear.h"
#include "common/backend/ops/activation.h"
#include "common/backend/ops/adamw.h"
#include "common/backend/ops/draw_tokens.h"
#include "common/backend/ops/elementwise.h"
#include "common/backend/ops/largest_logits.h"
#include "common/backend/ops/sums.h"
#include "stage2_cuda/copy_ahead.h"
#include "stage2_cuda/cuda_backend.h"
#include "stage2_cuda/device_memory_source.h"
#include "stage2_cuda/device_objects.h"
#include "stage2_cuda/event_timer.h"
#include "stage2_cuda/kernels/real.cuh"
#include "stage2_cuda/repeated_work.h"
#include "stage2_cuda/staging.h"

namespace stagegpt::gpu {

struct AttentionSize;
struct EmbeddingSize;
template <class T>
struct RowInput;

inline float* floats(const Tensor& tensor) { return tensor.data<float>(); }
// Null if the tensor is undefined.
template <class T>
T* optional(const Tensor& tensor) {
  return tensor.defined() ? tensor.data<T>() : nullptr;
}
// The elements of a gradient; null if it is not wanted.
inline float* floats(const Grad& grad) { return grad.wanted() ? grad.tensor.data<float>() : nullptr; }

// Calls run<T>() with T the element type of a tensor of activations: float or Bf16.
template <class Run>
void by_type(const Tensor& activations, const Run& run) {
  if (activations.dtype() == DType::bf16) return run.template operator()<Bf16>();
  run.template operator()<float>();
}
inline const std::int32_t* ids_of(const Tensor& tensor) { return tensor.data<std::int32_t>(); }

class StreamBackend final : public CudaBackend {
 public:
  explicit StreamBackend(const CudaOptions& options);
  // Waits for queued work, which uses memory that is freed now.
  ~StreamBackend() override;

  void synchronize() override { gpu::synchronize(stream_); }
  StreamHandle stream() const override { return stream_; }
  bool records() const override { return graph_; }
  bool must_record() const override { return must_graph_; }
  bool reads_quantised_rows() const override { return false; }
  bool norms_in_product(const Tensor& x) const override { return is_row(x); }
  std::unique_ptr<WorkTimer> make_timer() override { return std::make_unique<EventTimer>(stream_); }

 private:
  void compute(const Fill& op) override;
  void compute(const Copy& op) override {
    gpu::copy_on_device(op.out.raw(), op.in.raw(), op.in.bytes(), stream_);
  }
  void do_copy_from_host(void* out, const void* in, std::size_t bytes) override {
    staging_.copy_to_device(out, in, bytes);
  }
  void do_send_ahead(const Tensor& buffer, std::span<const std::byte> in) override {
    ahead_.send(buffer, in);
  }
  void do_receive(const Tensor& out, const Tensor&) override { ahead_.receive(out); }
  void do_repeat(Recording& recording, const std::function<void()>& work) override {
    graph_ ? gpu::repeat(recording, allocator(), stream_, work) : work();
  }
  void do_copy_to_host(std::span<const HostCopy> copies) override {
    std::vector<Staging::CopyToHost> raw;
    for (const auto& [out, in] : copies) raw.push_back({out.data(), in.raw(), out.size()});
    staging_.copy_to_host(raw);
  }
  void compute(const Add& op) override;
  void compute(const Cast& op) override;
  // Quantised matrices are for processors; --weights int8 is refused before.
  void compute(const QuantiseRows&) override { check(false, "quantise_rows on a GPU"); }
  void compute(const IdsInPart& op) override;
  void compute(const EmbeddingForward& op) override;
  void compute(const EmbeddingBackward& op) override;
  void compute(const LinearForward& op) override;
  void compute(const LinearActivationForward& op) override;
  void compute(const LinearBackward& op) override;
  void compute(const ActivationLinearBackward& op) override;
  void compute(const ActivationForward& op) override;
  void compute(const ActivationBackward& op) override;
  void compute(const LayernormForward& op) override;
  void compute(const ResidualLayernormForward& op) override;
  void compute(const LayernormBackward& op) override;
  void compute(const AttentionForward& op) override;
  void compute(const AttentionBackward& op) override;
  void compute(const CachedAttentionForward& op) override;
  void compute(const NormLinearForward& op) override;
  void compute(const DropoutForward& op) override;
  void compute(const DropoutBackward& op) override;
  void compute(const CrossEntropyForward& op) override;
  void compute(const CrossEntropyBackward& op) override;
  void compute(const CrossEntropyForwardBackward& op) override;
  void compute(const CrossEntropyPartForward& op) override;
  void compute(const CrossEntropyOfParts& op) override;
  void compute(const CountCorrect& op) override;
  void compute(const SquaredNorm& op) override;
  std::int64_t norm_block() const override;
  void compute(const AddNormBlocks& op) override;
  void compute(const Sum& op) override;
  void compute(const LargestLogits& op) override;
  void compute(const DrawTokens& op) override;
  void compute(const AdamWUpdate& op) override;

  Tensor on_device(const AdamWRates& rates);
  // A table is copied when it is new, and kept. It does not come from the allocator: a block that stays in
  // use would be missing from the free blocks of the next step.
  const DecayRange* table_on_device(std::span<const DecayRange> ranges);
  template <class T>
  void add_token_gradients(const Tensor& dwte, const Tensor& dout, const Tensor& ids, EmbeddingSize size);
  bool fits_flash(const AttentionSize& size) const;
  // Whether a prompt's attention is computed as in training.
  bool is_flash_prompt(const AttentionSize& size) const;
  // Throws UserError for heads that no implementation computes in this dtype.
  bool is_flash(const AttentionSize& size, DType dtype) const;
  // Throws UserError for an attention that wgmma does not compute, if the user has chosen it.
  bool is_wgmma(const AttentionSize& size, DType dtype) const;
  // dw (O,I) and, if it is wanted, dbias (O), which is in the epilogue of dw's product if the GEMM can
  // compute it. The epilogue overwrites.
  template <class T>
  void weight_gradients(const Grad& dw, const Grad& dbias, const Tensor& dout, const Tensor& x);
  // out = the sums of the first C columns of a matrix, rest = those of its other columns.
  void sum_columns(const Grad& out, const Grad& rest, const Tensor& matrix, std::int64_t C);
  // n counters, all zero between kernels.
  std::int32_t* counters(std::int64_t n);
  // Whether kernels/matrix_vector.cuh can multiply x: it is one token of each of up to `most` texts, (B,1,I),
  // a row is not too long, and the user has not asked for a GEMM of ours in f32.
  bool is_row(const Tensor& x, std::int64_t most = 1) const;
  // Computes a linear layer of one row, or of a few rows that would need the weight in f32, or returns false.
  // `pre` may be undefined.
  bool multiplied_rows(const Tensor& out, const Tensor& pre, const Tensor& x, const Tensor& w,
                       const Tensor& bias, Activation activation);
  // out = activation(pre), pre = row · wᵀ + bias.
  template <class T>
  void multiply_row(const Tensor& out, const Tensor& pre, const RowInput<T>& row, const Tensor& w,
                    const Tensor& bias, Activation activation);
  // The tensor itself if it is f32; a bf16 tensor converted to f32.
  Tensor in_f32(const Tensor& tensor);

  Stream stream_;
  Staging staging_;
  CopyAhead ahead_;
  std::unique_ptr<Gemm> gemm_;
  GpuAttention attention_;
  Precision precision_;
  bool wgmma_;           // attention is computed by wgmma.h, where it can
  bool is_7_5_;          // the device has less shared memory than those of compute capability 8.0
  bool rows_by_vector_;  // see is_row()
  bool graph_, must_graph_;
  // Counters of blocks that have finished, all zero between kernels. The last ones are used, and earlier ones
  // may be used by a graph.
  std::vector<Tensor> counters_;
  struct Table {
    std::vector<DecayRange> ranges;
    DeviceBlock copy;
  };
  std::vector<Table> tables_;
};

}  // namespace stagegpt::gpu
