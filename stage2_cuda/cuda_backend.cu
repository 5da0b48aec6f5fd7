#include <algorithm>
#include <array>
#include <exception>
#include <utility>
#include <vector>

#include "stage2_cuda/copy_ahead.h"
#include "stage2_cuda/cuda_backend.h"
#include "stage2_cuda/device_memory_source.h"
#include "stage2_cuda/device_objects.h"
#include "stage2_cuda/event_timer.h"
#include "stage2_cuda/kernels/activation.cuh"
#include "stage2_cuda/kernels/adamw.cuh"
#include "stage2_cuda/kernels/attention_cached.cuh"
#include "stage2_cuda/kernels/attention_flash_backward.cuh"
#include "stage2_cuda/kernels/attention_materialised.cuh"
#include "stage2_cuda/kernels/column_sums.cuh"
#include "stage2_cuda/kernels/cross_entropy.cuh"
#include "stage2_cuda/kernels/elementwise.cuh"
#include "stage2_cuda/kernels/embedding.cuh"
#include "stage2_cuda/kernels/layernorm.cuh"
#include "stage2_cuda/kernels/layernorm_backward.cuh"
#include "stage2_cuda/kernels/matmul.cuh"
#include "stage2_cuda/kernels/squared_norm.cuh"
#include "stage2_cuda/repeated_work.h"
#include "stage2_cuda/staging.h"

namespace stagegpt::gpu {
namespace {

// A hand-written GEMM (kernels/matmul.cuh).
template <void (*matmul)(StreamHandle, const Product&)>
class HandGemm final : public Gemm {
 public:
  using Gemm::run;
  void run(const Product& product, StreamHandle stream) override { matmul(stream, product); }
};

std::unique_ptr<Gemm> make_gemm(const CudaOptions& options) {
  switch (options.matmul) {
    case GpuMatmul::naive:
      return std::make_unique<HandGemm<matmul_naive>>();
    case GpuMatmul::tiled:
      return std::make_unique<HandGemm<matmul_tiled>>();
    case GpuMatmul::vectorised:
      return std::make_unique<HandGemm<matmul_vectorised>>();
    case GpuMatmul::cublaslt:
      break;
  }
  return make_library_gemm(options.precision, options.plans);
}

float* floats(const Tensor& tensor) { return tensor.data<float>(); }
// Null if the tensor is undefined.
template <class T>
T* optional(const Tensor& tensor) {
  return tensor.defined() ? tensor.data<T>() : nullptr;
}
// The elements of a gradient; null if it is not wanted.
float* floats(const Grad& grad) { return grad.wanted() ? grad.tensor.data<float>() : nullptr; }

// Calls run<T>() with T the element type of a tensor of activations: float or Bf16.
template <class Run>
void by_type(const Tensor& activations, const Run& run) {
  if (activations.dtype() == DType::bf16) return run.template operator()<Bf16>();
  run.template operator()<float>();
}
const std::int32_t* ids_of(const Tensor& tensor) { return tensor.data<std::int32_t>(); }

// A tensor as a row-major matrix with rows of `columns` elements.
template <class T>
MatrixOf<T> row_major(const Tensor& tensor, std::int64_t columns) {
  return {tensor.data<T>(), columns};
}

// out (N,O) = x (N,I) · wᵀ + bias, w (O,I).
template <class T>
ProductOf<T, T> forward_product(const Tensor& out, const Tensor& x, const Tensor& w, const Tensor& bias) {
  const std::int64_t O = w.shape()[0], I = w.shape()[1];
  return {.c = out.data<T>(),
          .ldc = O,
          .a = row_major<T>(x, I),
          .b = transposed(row_major<T>(w, I)),
          .m = x.numel() / I,
          .n = O,
          .k = I,
          .bias = optional<T>(bias)};
}

// dx (N,I) = dout (N,O) · w (O,I).
template <class T>
ProductOf<T, T> backward_product(const Grad& dx, const Tensor& dout, const Tensor& w) {
  const std::int64_t O = w.shape()[0], I = w.shape()[1];
  return {.c = dx.tensor.data<T>(),
          .ldc = I,
          .a = row_major<T>(dout, O),
          .b = row_major<T>(w, I),
          .m = dout.numel() / O,
          .n = I,
          .k = O,
          .accumulate = dx.accumulates()};
}

// dw (O,I) = doutᵀ · x, dout (N,O), x (N,I).
template <class T>
ProductOf<T, float> weight_product(const Grad& dw, const Tensor& dout, const Tensor& x) {
  const std::int64_t O = dw.tensor.shape()[0], I = dw.tensor.shape()[1];
  return {.c = dw.tensor.data<float>(),
          .ldc = I,
          .a = transposed(row_major<T>(dout, O)),
          .b = row_major<T>(x, I),
          .m = O,
          .n = I,
          .k = x.numel() / I,
          .accumulate = dw.accumulates()};
}

CrossEntropySize cross_entropy_size(const Tensor& logits, std::int64_t vocab_size) {
  const std::int64_t padded = logits.shape()[-1];
  return {logits.numel() / padded, vocab_size, padded};
}

AttentionSize attention_size(const Tensor& qkv, int n_head, double scale) {
  const Shape& s = qkv.shape();
  return {s[0], s[1], n_head, s[2] / 3 / n_head, static_cast<float>(scale)};
}

// Every op is one or more launches on one stream. The host waits only for copies to the host. With the same
// shapes all kernels add in the same order, so that reproducible mode needs nothing else.
class StreamBackend final : public CudaBackend {
 public:
  explicit StreamBackend(const CudaOptions& options)
      : CudaBackend(std::make_unique<DeviceMemorySource>()),
        staging_(stream_),
        ahead_(stream_),
        gemm_(make_gemm(options)),
        attention_(options.attention),
        graph_(options.graph) {
    if (graph_ && !allocator().keeps_blocks())
      user_error("--gpu-graph: on cannot be combined with STAGEGPT_ALLOCATOR=direct");
  }
  // Waits for queued work, which uses memory that is freed now.
  ~StreamBackend() override {
    try {
      gpu::synchronize(stream_);
      ahead_.synchronize();
    } catch (const std::exception&) {
      // A destructor cannot throw; a caller that waits for results gets the error from synchronize().
    }
  }

  void synchronize() override { gpu::synchronize(stream_); }
  StreamHandle stream() const override { return stream_; }
  bool records() const override { return graph_; }
  bool reads_quantised_rows() const override { return false; }
  std::unique_ptr<WorkTimer> make_timer() override { return std::make_unique<EventTimer>(stream_); }

 private:
  void do_fill(const Tensor& out, double value) override {
    const std::int64_t n = out.numel();
    switch (out.dtype()) {
      case DType::f32:
        return gpu::fill(stream_, floats(out), static_cast<float>(value), n);
      case DType::f64:
        return gpu::fill(stream_, out.data<double>(), value, n);
      case DType::i32:
        return gpu::fill(stream_, out.data<std::int32_t>(), static_cast<std::int32_t>(value), n);
      case DType::bf16:
        return gpu::fill(stream_, out.data<Bf16>(), Bf16{bf16_of_float(static_cast<float>(value))}, n);
      case DType::i8:
        check(false, "fill: i8");
    }
  }

  void do_copy(const Tensor& out, const Tensor& in) override {
    gpu::copy_on_device(out.raw(), in.raw(), in.bytes(), stream_);
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

  void do_add(const Tensor& out, const Tensor& a, const Tensor& b) override {
    by_type(out,
            [&]<class T>() { gpu::add<T>(stream_, out.data<T>(), a.data<T>(), b.data<T>(), a.numel()); });
  }

  void do_cast(const Tensor& out, const Tensor& in) override {
    if (in.dtype() == DType::bf16) return gpu::cast(stream_, floats(out), in.data<Bf16>(), in.numel());
    gpu::cast(stream_, out.data<Bf16>(), floats(in), in.numel());
  }

  // Quantised matrices are for processors; --weights int8 is refused before.
  void do_quantise_rows(const Tensor&, const Tensor&) override { check(false, "quantise_rows on a GPU"); }

  void do_ids_in_part(const Tensor& out, const Tensor& in, std::int64_t first, std::int64_t count,
                      std::int64_t absent) override {
    launch_elements<ids_in_part_kernel>(stream_, in.numel(), out.data<std::int32_t>(), ids_of(in), first,
                                        count, absent);
  }

  void do_embedding_forward(const Tensor& out, const Tensor& ids, const Tensor& wte,
                            const Tensor& wpe) override {
    const Shape& s = out.shape();
    const EmbeddingSize size{s[0], s[1], s[2], wte.shape()[0]};
    by_type(out, [&]<class T>() {
      by_type(wte, [&]<class Weight>() {
        gpu::embedding_forward<T, Weight>(stream_, out.data<T>(), ids_of(ids), wte.data<Weight>(),
                                          optional<T>(wpe), size);
      });
    });
  }

  void do_embedding_backward(const Grad& dwte, const Grad& dwpe, const Tensor& dout,
                             const Tensor& ids) override {
    const Shape& shape = dout.shape();
    const EmbeddingSize size{shape[0], shape[1], shape[2], dwte.wanted() ? dwte.tensor.shape()[0] : 0};
    if (dwte.mode == GradMode::overwrite) gpu::set_zero(dwte.tensor.raw(), dwte.tensor.bytes(), stream_);
    by_type(dout, [&]<class T>() {
      if (dwpe.wanted()) {
        gpu::embedding_backward_positions<T>(stream_, floats(dwpe), dwpe.accumulates(),
                                             dwpe.tensor.shape()[0], dout.data<T>(), size);
      }
      if (dwte.wanted() && size.tokens() > 0) add_token_gradients<T>(dwte.tensor, dout, ids, size);
    });
  }

  void do_linear_forward(const Tensor& out, const Tensor& x, const Tensor& w, const Tensor& bias) override {
    const Tensor weight = x.dtype() == DType::f32 ? in_f32(w) : w;
    by_type(x, [&]<class T>() { gemm_->run(forward_product<T>(out, x, weight, bias), stream_); });
  }

  void do_linear_activation_forward(const Tensor& out, const Tensor& pre, const Tensor& x, const Tensor& w,
                                    const Tensor& bias, Activation activation) override {
    const Tensor weight = x.dtype() == DType::f32 ? in_f32(w) : w;
    by_type(x, [&]<class T>() {
      ProductOf<T, T> product = forward_product<T>(out, x, weight, bias);
      product.epilogue = Epilogue::gelu;
      product.pre = pre.data<T>();
      if (activation == Activation::gelu_new && gemm_->has_epilogue(product))
        return gemm_->run(product, stream_);
      do_linear_forward(pre, x, weight, bias);
      do_activation_forward(out, pre, activation);
    });
  }

  void do_linear_backward(const Grad& dx, const Grad& dw, const Grad& dbias, const Tensor& dout,
                          const Tensor& x, const Tensor& w) override {
    by_type(dout, [&]<class T>() {
      if (dx.wanted()) gemm_->run(backward_product<T>(dx, dout, w), stream_);
      if (dw.wanted()) return weight_gradients<T>(dw, dbias, dout, x);
      if (dbias.wanted()) sum_columns(dbias, {}, dout, w.shape()[0]);
    });
  }

  void do_activation_linear_backward(const Tensor& dpre, const Grad& dw, const Grad& dbias,
                                     const Tensor& dout, const Tensor& x, const Tensor& pre, const Tensor& w,
                                     Activation activation) override {
    const Grad out{dpre, GradMode::overwrite};
    do_linear_backward({}, dw, dbias, dout, x, w);  // first, because dpre may be x
    by_type(dout, [&]<class T>() {
      ProductOf<T, T> product = backward_product<T>(out, dout, w);
      product.epilogue = Epilogue::gelu_backward;
      product.pre = pre.data<T>();
      if (activation == Activation::gelu_new && gemm_->has_epilogue(product))
        return gemm_->run(product, stream_);
      do_linear_backward(out, {}, {}, dout, x, w);
      do_activation_backward(out, dpre, pre, activation);
    });
  }

  void do_activation_forward(const Tensor& out, const Tensor& x, Activation activation) override {
    by_type(x, [&]<class T>() {
      gpu::activation_forward<T>(stream_, out.data<T>(), x.data<T>(), activation, x.numel());
    });
  }

  void do_activation_backward(const Grad& dx, const Tensor& dout, const Tensor& x,
                              Activation activation) override {
    if (!dx.wanted()) return;
    by_type(x, [&]<class T>() {
      gpu::activation_backward<T>(stream_, dx.tensor.data<T>(), dx.accumulates(), dout.data<T>(), x.data<T>(),
                                  activation, x.numel());
    });
  }

  void do_layernorm_forward(const Tensor& out, const Tensor& mean, const Tensor& rstd, const Tensor& x,
                            const Tensor& w, const Tensor& bias, double eps) override {
    normalise({}, out, mean, rstd, x, {}, w, bias, eps);
  }

  void do_residual_layernorm_forward(const Tensor& sum, const Tensor& out, const Tensor& mean,
                                     const Tensor& rstd, const Tensor& x, const Tensor& residual,
                                     const Tensor& w, const Tensor& bias, double eps) override {
    normalise(sum, out, mean, rstd, x, residual, w, bias, eps);
  }

  void do_layernorm_backward(const Grad& dx, const Grad& dw, const Grad& dbias, const Tensor& dout,
                             const Tensor& x, const Tensor& w, const Tensor& mean,
                             const Tensor& rstd) override {
    const std::int64_t N = mean.numel(), C = w.numel();
    Tensor block_sums;  // (blocks,2C)
    if (dw.wanted() || dbias.wanted()) block_sums = allocate(DType::f32, {LayernormBlocks(N).blocks, 2 * C});
    by_type(x, [&]<class T>() {
      gpu::layernorm_backward<T>(stream_, dx.wanted() ? dx.tensor.data<T>() : nullptr, dx.accumulates(),
                                 optional<float>(block_sums), dout.data<T>(), x.data<T>(), floats(w),
                                 floats(mean), floats(rstd), N, C);
    });
    if (block_sums.defined()) sum_columns(dbias, dw, block_sums, C);
  }

  void do_attention_forward(const Tensor& out, const Tensor& lse, const Tensor& qkv, int n_head, double scale,
                            const Dropout& dropout) override {
    const AttentionSize s = attention_size(qkv, n_head, scale);
    if (is_flash(s, qkv.dtype())) {
      return by_type(qkv, [&]<class T>() {
        flash_forward<T>(stream_, out.data<T>(), floats(lse), qkv.data<T>(), dropout, s);
      });
    }
    const Tensor scores = allocate(DType::f32, {s.scores()});  // (NH,T,T)
    materialised_forward(*gemm_, stream_, floats(out), floats(lse), floats(qkv), dropout, s, floats(scores));
  }

  void do_attention_backward(const Grad& dqkv, const Tensor& dout, const Tensor& out, const Tensor& lse,
                             const Tensor& qkv, int n_head, double scale, const Dropout& dropout) override {
    const AttentionSize s = attention_size(qkv, n_head, scale);
    if (is_flash(s, qkv.dtype())) {
      const Tensor dots = allocate(DType::f32, {s.rows()});  // D, (B,NH,T)
      return by_type(qkv, [&]<class T>() {
        flash_backward<T>(stream_, dqkv.tensor.data<T>(), dqkv.accumulates(), dout.data<T>(), out.data<T>(),
                          floats(lse), qkv.data<T>(), dropout, s, floats(dots));
      });
    }
    const Tensor scores = allocate(DType::f32, {2 * s.scores()});  // (2,NH,T,T)
    materialised_backward(*gemm_, stream_, floats(dqkv), dqkv.accumulates(), floats(dout), floats(out),
                          floats(lse), floats(qkv), dropout, s, floats(scores));
  }

  void do_cached_attention_forward(const Tensor& out, const Tensor& cache, const Tensor& qkv, int n_head,
                                   double scale, std::int64_t first) override {
    const Shape& s = qkv.shape();
    by_type(qkv, [&]<class T>() {
      gpu::cached_attention_forward<T>(
          stream_, out.data<T>(), cache.data<T>(), qkv.data<T>(),
          {s[0], s[1], n_head, s[2] / 3 / n_head, cache.shape()[1], first, static_cast<float>(scale)});
    });
  }

  void do_dropout_forward(const Tensor& out, const Tensor& x, const Dropout& dropout) override {
    by_type(x, [&]<class T>() {
      gpu::dropout<T>(stream_, out.data<T>(), false, x.data<T>(), dropout, x.numel());
    });
  }

  void do_dropout_backward(const Grad& dx, const Tensor& dout, const Dropout& dropout) override {
    by_type(dout, [&]<class T>() {
      gpu::dropout<T>(stream_, dx.tensor.data<T>(), dx.accumulates(), dout.data<T>(), dropout, dout.numel());
    });
  }

  void do_cross_entropy_forward(const Tensor& loss, const Tensor& lse, const Tensor& logits,
                                const Tensor& targets, std::int64_t vocab_size) override {
    by_type(logits, [&]<class T>() {
      gpu::cross_entropy_forward<T>(stream_, floats(loss), floats(lse), logits.data<T>(), ids_of(targets),
                                    cross_entropy_size(logits, vocab_size));
    });
  }

  void do_cross_entropy_backward(const Tensor& dlogits, const Tensor& dloss, const Tensor& logits,
                                 const Tensor& lse, const Tensor& targets, std::int64_t vocab_size) override {
    by_type(logits, [&]<class T>() {
      gpu::cross_entropy_backward<T>(stream_, dlogits.data<T>(), floats(dloss), logits.data<T>(), floats(lse),
                                     ids_of(targets), cross_entropy_size(logits, vocab_size));
    });
  }

  void do_cross_entropy_forward_backward(const Tensor& loss, const Tensor& dlogits, const Tensor& rows,
                                         const Tensor& dloss, const Tensor& logits, const Tensor& targets,
                                         std::int64_t vocab_size) override {
    by_type(logits, [&]<class T>() {
      gpu::cross_entropy_forward_backward<T>(stream_, floats(loss), dlogits.data<T>(), floats(rows),
                                             floats(dloss), logits.data<T>(), ids_of(targets),
                                             cross_entropy_size(logits, vocab_size));
    });
  }

  void do_cross_entropy_part_forward(const Tensor& lse, const Tensor& picked, const Tensor& logits,
                                     const Tensor& targets, std::int64_t vocab_size) override {
    by_type(logits, [&]<class T>() {
      gpu::cross_entropy_part_forward<T>(stream_, floats(lse), floats(picked), logits.data<T>(),
                                         ids_of(targets), cross_entropy_size(logits, vocab_size));
    });
  }

  void do_cross_entropy_of_parts(const Tensor& loss, const Tensor& lse, const Tensor& parts) override {
    const Tensor rows = allocate(DType::f32, lse.shape());
    gpu::cross_entropy_of_parts(stream_, floats(loss), floats(lse), floats(rows), floats(parts),
                                static_cast<int>(parts.shape()[0]), lse.numel());
  }

  void do_count_correct(const Tensor& count, const Tensor& logits, const Tensor& targets,
                        std::int64_t vocab_size) override {
    by_type(logits, [&]<class T>() {
      gpu::count_correct<T>(stream_, count.data<std::int32_t>(), logits.data<T>(), ids_of(targets),
                            cross_entropy_size(logits, vocab_size));
    });
  }

  void do_squared_norm(const Tensor& out, const Tensor& x) override {
    const bool to_be_added = out.numel() == 1;
    const Tensor sums = to_be_added ? allocate(DType::f64, {norm_blocks(x.numel())}) : out;
    gpu::squared_norms(stream_, sums.data<double>(), floats(x), x.numel());
    if (to_be_added) do_add_norm_blocks(out, sums);
  }
  std::int64_t norm_block() const override { return kNormPart; }

  void do_add_norm_blocks(const Tensor& out, const Tensor& sums) override {
    add_sums(stream_, out.data<double>(), sums.data<double>(), sums.numel());
  }

  void do_sum(const Tensor& out, const Tensor& x) override {
    gpu::sum(stream_, out.data<double>(), x.data<double>(), x.numel());
  }

  void do_adamw(const Tensor& weights, const Tensor& shadow, const Tensor& m, const Tensor& v,
                const Tensor& grads, const Tensor& squared_norm, std::span<const DecayRange> ranges,
                const AdamWStep& step) override {
    const Tensor rates = step.rates.defined() ? step.rates : on_device(step.host_rates());
    gpu::adamw(stream_, floats(weights), optional<Bf16>(shadow), floats(m), floats(v), floats(grads),
               squared_norm.data<double>(), rates.data<double>(), table_on_device(ranges),
               static_cast<int>(ranges.size()), step, weights.numel());
  }

  Tensor on_device(const AdamWRates& rates) {
    const Tensor copy = allocate(DType::f64, {sizeof(AdamWRates) / sizeof(double)});
    staging_.copy_to_device(copy.raw(), &rates, sizeof(AdamWRates));
    return copy;
  }
  // A table is copied when it is new, and kept. It does not come from the allocator: a block that stays in
  // use would be missing from the free blocks of the next step.
  const DecayRange* table_on_device(std::span<const DecayRange> ranges) {
    for (const auto& [known, copy] : tables_) {
      if (std::ranges::equal(known, ranges)) return static_cast<const DecayRange*>(copy.get());
    }
    DeviceBlock copy = device_block(ranges.size_bytes());
    staging_.copy_to_device(copy.get(), ranges.data(), ranges.size_bytes());
    tables_.push_back({{ranges.begin(), ranges.end()}, std::move(copy)});
    return static_cast<const DecayRange*>(tables_.back().copy.get());
  }

  template <class T>
  void add_token_gradients(const Tensor& dwte, const Tensor& dout, const Tensor& ids, EmbeddingSize size) {
    const std::int64_t n = size.tokens();
    const Tensor scratch = allocate(DType::i32, {SortTiles(n).scratch_size(n)}),
                 parts = allocate(DType::f32, {size.parts_size()});
    const std::int32_t* order =
        sort_tokens(stream_, ids_of(ids), n, dwte.shape()[0] + 1, scratch.data<std::int32_t>());
    embedding_backward_tokens<T>(stream_, floats(dwte), dout.data<T>(), ids_of(ids), order, floats(parts),
                                 size);
  }

  // Throws UserError for heads that no implementation computes in this dtype.
  bool is_flash(const AttentionSize& size, DType dtype) const {
    const bool fits = size.HS <= kFlashHeadSize;
    if (dtype == DType::bf16 && !fits)
      user_error("--precision: bf16 needs heads of at most ", kFlashHeadSize, " channels, got ", size.HS);
    return fits && (attention_ == GpuAttention::flash || dtype == DType::bf16);
  }

  // LayerNorm of x or, if `residual` is defined, of sum = x + residual.
  void normalise(const Tensor& sum, const Tensor& out, const Tensor& mean, const Tensor& rstd,
                 const Tensor& x, const Tensor& residual, const Tensor& w, const Tensor& bias, double eps) {
    by_type(x, [&]<class T>() {
      gpu::layernorm_forward<T>(stream_, out.data<T>(), optional<T>(sum), floats(mean), floats(rstd),
                                x.data<T>(), optional<T>(residual), floats(w), floats(bias),
                                static_cast<float>(eps), mean.numel(), w.numel());
    });
  }

  // dw (O,I) and, if it is wanted, dbias (O), which is in the epilogue of dw's product if the GEMM can
  // compute it. The epilogue overwrites.
  template <class T>
  void weight_gradients(const Grad& dw, const Grad& dbias, const Tensor& dout, const Tensor& x) {
    ProductOf<T, float> product = weight_product<T>(dw, dout, x);
    if (!dbias.wanted()) return gemm_->run(product, stream_);
    const std::int64_t O = product.m;
    const Tensor sums = dbias.accumulates() ? allocate(DType::f32, {O}) : dbias.tensor;
    ProductOf<T, float> with_sums = product;
    with_sums.epilogue = Epilogue::row_sums;
    with_sums.row_sums = floats(sums);
    if (!gemm_->has_epilogue(with_sums)) {
      gemm_->run(product, stream_);
      return sum_columns(dbias, {}, dout, O);
    }
    gemm_->run(with_sums, stream_);
    if (dbias.accumulates()) gpu::add<float>(stream_, floats(dbias), floats(dbias.tensor), floats(sums), O);
  }

  // out = the sums of the first C columns of a matrix, rest = those of its other columns.
  void sum_columns(const Grad& out, const Grad& rest, const Tensor& matrix, std::int64_t C) {
    const std::int64_t columns = matrix.shape()[-1], N = matrix.numel() / columns;
    const Tensor scratch = allocate(DType::f32, {ColumnSums(N).scratch_size(columns)});
    if (counters_.empty() || counters_.back().numel() < ColumnSums::counters(columns))
      counters_.push_back(zeros(DType::i32, {ColumnSums::counters(columns)}));
    by_type(matrix, [&]<class T>() {
      gpu::column_sums<T>(stream_, floats(out), out.accumulates(), floats(rest), rest.accumulates(),
                          matrix.data<T>(), N, C, columns, floats(scratch),
                          counters_.back().data<std::int32_t>());
    });
  }

  // The tensor itself if it is f32; a bf16 tensor converted to f32.
  Tensor in_f32(const Tensor& tensor) {
    if (tensor.dtype() == DType::f32) return tensor;
    const Tensor wide = allocate(DType::f32, tensor.shape());
    gpu::cast(stream_, floats(wide), tensor.data<Bf16>(), tensor.numel());
    return wide;
  }

  Stream stream_;
  Staging staging_;
  CopyAhead ahead_;
  std::unique_ptr<Gemm> gemm_;
  GpuAttention attention_;
  bool graph_;
  // Of blocks that have finished, all zero between kernels. The last ones are used, and earlier ones may be
  // used by a graph.
  std::vector<Tensor> counters_;
  struct Table {
    std::vector<DecayRange> ranges;
    DeviceBlock copy;
  };
  std::vector<Table> tables_;
};

constexpr std::array<std::pair<GpuMatmul, std::string_view>, 4> kMatmulNames = {{
    {GpuMatmul::naive, "naive"},
    {GpuMatmul::tiled, "tiled"},
    {GpuMatmul::vectorised, "vectorised"},
    {GpuMatmul::cublaslt, "cublaslt"},
}};

}  // namespace

std::optional<GpuMatmul> gpu_matmul_named(std::string_view name) {
  for (const auto& [matmul, known] : kMatmulNames) {
    if (known == name) return matmul;
  }
  return std::nullopt;
}

std::unique_ptr<CudaBackend> make_cuda_backend(const CudaOptions& options) {
  return std::make_unique<StreamBackend>(options);
}

}  // namespace stagegpt::gpu
