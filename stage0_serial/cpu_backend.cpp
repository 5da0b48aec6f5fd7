#include "stage0_serial/cpu_backend.h"

#include <algorithm>
#include <chrono>
#include <utility>
#include <vector>

#include "common/base/seconds_since.h"
#include "stage0_serial/blas/openblas.h"
#include "stage0_serial/host_backend.h"
#include "stage0_serial/kernels/activation.h"
#include "stage0_serial/kernels/adamw.h"
#include "stage0_serial/kernels/attention_blocked.h"
#include "stage0_serial/kernels/attention_cached.h"
#include "stage0_serial/kernels/cross_entropy.h"
#include "stage0_serial/kernels/dropout.h"
#include "stage0_serial/kernels/elementwise.h"
#include "stage0_serial/kernels/embedding.h"
#include "stage0_serial/kernels/layernorm.h"
#include "stage0_serial/kernels/linear.h"
#include "stage0_serial/kernels/matmul_blas.h"
#include "stage0_serial/kernels/matmul_packed.h"
#include "stage0_serial/kernels/matmul_tiled.h"
#include "stage0_serial/kernels/matvec.h"
#include "stage0_serial/sizes.h"

namespace stagegpt {
namespace {

using MatmulFunction = void (*)(const Parallel&, float* c, std::int64_t ldc, MatrixView<float> a,
                                MatrixView<float> b, MatmulSize size, bool accumulate);

// The naive GEMM; the rows of c are divided among threads.
void naive_matmul(const Parallel& parallel, float* c, std::int64_t ldc, MatrixView<float> a,
                  MatrixView<float> b, MatmulSize size, bool accumulate) {
  parallel.each(size.m, [&](std::int64_t m) {
    naive::matmul(c + m * ldc, ldc, {&a(m, 0), a.row_stride, a.column_stride}, b, {1, size.n, size.k},
                  accumulate);
  });
}

template <Factors kFactors>
void packed_matmul(const Parallel& parallel, float* c, std::int64_t ldc, MatrixView<float> a,
                   MatrixView<float> b, MatmulSize size, bool accumulate) {
  packed::matmul(packed_kernels(kFactors), parallel, c, ldc, a, b, size, accumulate);
}

MatmulFunction matmul_function(CpuMatmul matmul) {
  switch (matmul) {
    case CpuMatmul::naive:
      return naive_matmul;
    case CpuMatmul::tiled:
      return tiled::matmul;
    case CpuMatmul::packed:
      return packed_matmul<Factors::f32>;
    case CpuMatmul::packed_bf16:
      return packed_matmul<Factors::bf16>;
    case CpuMatmul::blas:
      OpenBlas::instance();  // loads the library, so that an error is reported before the first step
      return blas::matmul;
  }
  return nullptr;
}

class CpuBackend final : public HostBackend {
 public:
  CpuBackend(int threads, CpuMatmul matmul, std::unique_ptr<MemorySource> memory)
      : HostBackend(std::move(memory)),
        parallel_(threads),
        matmul_(matmul_function(matmul)),
        is_fast_(matmul != CpuMatmul::naive && matmul != CpuMatmul::tiled),
        factors_(matmul == CpuMatmul::packed_bf16 ? Factors::bf16 : Factors::f32) {}

  // OpenBLAS's GEMM is the only kernel whose sums depend on the number of threads.
  void set_reproducible(bool reproducible) override {
    if (matmul_ == blas::matmul || matmul_ == blas::reproducible_matmul)
      matmul_ = reproducible ? blas::reproducible_matmul : blas::matmul;
  }

  std::optional<double> multiply_add_rate() override {
    constexpr std::int64_t kCount = 1 << 16;  // 1 ms or less
    constexpr int kTries = 16;
    const PackedKernels& kernels = packed_kernels(factors_);
    const std::int64_t per_thread = 2 * kernels.steps * kernels.rows * kernels.columns * kCount;
    double best = 0;
    for (int i = 0; i < kTries; ++i) {
      const auto start = std::chrono::steady_clock::now();
      parallel_.each(parallel_.threads(), [&](std::int64_t) { kernels.multiply_adds(kCount); });
      best = std::max(best, static_cast<double>(per_thread * parallel_.threads()) / seconds_since(start));
    }
    return best;
  }

 private:
  void do_fill(const Tensor& out, double value) override {
    if (out.dtype() == DType::f32) {
      vectorised::fill(parallel_, out.data<float>(), static_cast<float>(value), out.numel());
    } else if (out.dtype() == DType::f64) {
      naive::fill(out.data<double>(), value, out.numel());
    } else if (out.dtype() == DType::bf16) {
      naive::fill(out.data<Bf16>(), Bf16{bf16_of_float(static_cast<float>(value))}, out.numel());
    } else {
      naive::fill(out.data<std::int32_t>(), static_cast<std::int32_t>(value), out.numel());
    }
  }

  void do_add(const Tensor& out, const Tensor& a, const Tensor& b) override {
    vectorised::add(parallel_, out.data<float>(), a.data<float>(), b.data<float>(), a.numel());
  }

  void do_cast(const Tensor& out, const Tensor& in) override {
    if (in.dtype() == DType::bf16)
      return vectorised::widen(parallel_, out.data<float>(), in.data<Bf16>(), in.numel());
    vectorised::to_bf16(parallel_, out.data<Bf16>(), in.data<float>(), in.numel());
  }

  void do_quantise_rows(const Tensor& out, const Tensor& in) override {
    vectorised::quantise(parallel_, out.data<std::int8_t>(), in.data<float>(), in.shape()[0], in.shape()[1]);
  }

  void do_embedding_forward(const Tensor& out, const Tensor& ids, const Tensor& wte,
                            const Tensor& wpe) override {
    const auto from = [&](const auto* rows) {
      vectorised::embedding_forward(parallel_, out.data<float>(), ids.data<std::int32_t>(), rows,
                                    wpe.data<float>(), embedding_size(out, wte, wpe));
    };
    if (wte.dtype() == DType::i8) return from(wte.data<std::int8_t>());
    wte.dtype() == DType::bf16 ? from(wte.data<Bf16>()) : from(wte.data<float>());
  }

  void do_embedding_backward(const Grad& dwte, const Grad& dwpe, const Tensor& dout,
                             const Tensor& ids) override {
    vectorised::embedding_backward(parallel_, GradOut<float>(dwte), GradOut<float>(dwpe), dout.data<float>(),
                                   ids.data<std::int32_t>(), embedding_size(dout, dwte.tensor, dwpe.tensor));
  }

  void do_linear_forward(const Tensor& out, const Tensor& x, const Tensor& w, const Tensor& bias) override {
    do_linear_activation_forward(out, out, x, w, bias, Activation::none);
  }

  void do_linear_activation_forward(const Tensor& out, const Tensor& pre, const Tensor& x, const Tensor& w,
                                    const Tensor& bias, Activation activation) override {
    const LinearSize s = linear_size(x, w);
    if (w.dtype() == DType::bf16) {
      narrow_product(pre.data<float>(), x.data<float>(), w.data<Bf16>(), s.I, s);
    } else if (w.dtype() == DType::i8) {
      narrow_product(pre.data<float>(), x.data<float>(), w.data<std::int8_t>(), quantised_width(s.I), s);
    } else if (s.N == 1 && is_fast_) {
      vectorised::matvec(parallel_, pre.data<float>(), x.data<float>(), w.data<float>(), s.O, s.I);
    } else {
      matmul_(parallel_, pre.data<float>(), s.O, row_major(x.data<float>(), s.I),
              row_major(w.data<float>(), s.I).transposed(), {s.N, s.O, s.I}, false);
    }
    vectorised::bias_activation(parallel_, out.data<float>(), pre.data<float>(), optional_data<float>(bias),
                                activation, s);
  }

  void do_linear_backward(const Grad& dx, const Grad& dw, const Grad& dbias, const Tensor& dout,
                          const Tensor& x, const Tensor& w) override {
    const LinearSize s = linear_size(x, w);
    const MatrixView<float> d = row_major(dout.data<float>(), s.O);
    if (const GradOut<float> out(dx); out) {
      matmul_(parallel_, out.data, s.I, d, row_major(w.data<float>(), s.I), {s.N, s.I, s.O}, out.accumulate);
    }
    if (const GradOut<float> out(dw); out) {
      matmul_(parallel_, out.data, s.I, d.transposed(), row_major(x.data<float>(), s.I), {s.O, s.I, s.N},
              out.accumulate);
    }
    vectorised::bias_backward(parallel_, GradOut<float>(dbias), dout.data<float>(), s);
  }

  void do_activation_linear_backward(const Tensor& dpre, const Grad& dw, const Grad& dbias,
                                     const Tensor& dout, const Tensor& x, const Tensor& pre, const Tensor& w,
                                     Activation activation) override {
    const Grad out{dpre, GradMode::overwrite};
    do_linear_backward({}, dw, dbias, dout, x, w);  // first, because dpre may be x
    do_linear_backward(out, {}, {}, dout, x, w);
    do_activation_backward(out, dpre, pre, activation);
  }

  void do_activation_forward(const Tensor& out, const Tensor& x, Activation activation) override {
    vectorised::activation_forward(parallel_, out.data<float>(), x.data<float>(), activation, x.numel());
  }

  void do_activation_backward(const Grad& dx, const Tensor& dout, const Tensor& x,
                              Activation activation) override {
    vectorised::activation_backward(parallel_, GradOut<float>(dx), dout.data<float>(), x.data<float>(),
                                    activation, x.numel());
  }

  void do_layernorm_forward(const Tensor& out, const Tensor& mean, const Tensor& rstd, const Tensor& x,
                            const Tensor& w, const Tensor& bias, double eps) override {
    vectorised::layernorm_forward(parallel_, out.data<float>(), nullptr, mean.data<float>(),
                                  rstd.data<float>(), x.data<float>(), nullptr, w.data<float>(),
                                  bias.data<float>(), eps, mean.numel(), w.numel());
  }

  void do_residual_layernorm_forward(const Tensor& sum, const Tensor& out, const Tensor& mean,
                                     const Tensor& rstd, const Tensor& x, const Tensor& residual,
                                     const Tensor& w, const Tensor& bias, double eps) override {
    vectorised::layernorm_forward(parallel_, out.data<float>(), sum.data<float>(), mean.data<float>(),
                                  rstd.data<float>(), x.data<float>(), residual.data<float>(),
                                  w.data<float>(), bias.data<float>(), eps, mean.numel(), w.numel());
  }

  void do_layernorm_backward(const Grad& dx, const Grad& dw, const Grad& dbias, const Tensor& dout,
                             const Tensor& x, const Tensor& w, const Tensor& mean,
                             const Tensor& rstd) override {
    vectorised::layernorm_backward(parallel_, GradOut<float>(dx), GradOut<float>(dw), GradOut<float>(dbias),
                                   dout.data<float>(), x.data<float>(), w.data<float>(), mean.data<float>(),
                                   rstd.data<float>(), mean.numel(), w.numel());
  }

  void do_attention_forward(const Tensor& out, const Tensor& lse, const Tensor& qkv, int n_head, double scale,
                            const Dropout& dropout) override {
    vectorised::attention_forward(parallel_, out.data<float>(), lse.data<float>(), qkv.data<float>(),
                                  placed(dropout), attention_size(qkv, n_head, scale));
  }

  void do_attention_backward(const Grad& dqkv, const Tensor& dout, const Tensor& out, const Tensor& lse,
                             const Tensor& qkv, int n_head, double scale, const Dropout& dropout) override {
    vectorised::attention_backward(parallel_, GradOut<float>(dqkv), dout.data<float>(), out.data<float>(),
                                   lse.data<float>(), qkv.data<float>(), placed(dropout),
                                   attention_size(qkv, n_head, scale));
  }

  void do_cached_attention_forward(const Tensor& out, const Tensor& cache, const Tensor& qkv, int n_head,
                                   double scale, std::int64_t first) override {
    const CachedAttentionSize s = cached_attention_size(cache, qkv, n_head, scale, first);
    cached::store_rows(cache.data<float>(), qkv.data<float>(), s);
    if (first > 0) {
      return cached::attention_forward(parallel_, out.data<float>(), cache.data<float>(), qkv.data<float>(),
                                       s);
    }
    std::vector<float> lse(static_cast<std::size_t>(s.B * s.NH * s.T));
    vectorised::attention_forward(parallel_, out.data<float>(), lse.data(), qkv.data<float>(), {},
                                  attention_size(qkv, n_head, scale));
  }

  void do_dropout_forward(const Tensor& out, const Tensor& x, const Dropout& dropout) override {
    do_dropout_backward({out, GradMode::overwrite}, x, dropout);
  }

  void do_dropout_backward(const Grad& dx, const Tensor& dout, const Dropout& dropout) override {
    vectorised::dropout(parallel_, GradOut<float>(dx), dout.data<float>(), placed(dropout), dout.numel());
  }

  void do_cross_entropy_forward(const Tensor& loss, const Tensor& lse, const Tensor& logits,
                                const Tensor& targets, std::int64_t vocab_size) override {
    vectorised::cross_entropy_forward(parallel_, loss.data<float>(), lse.data<float>(), logits.data<float>(),
                                      targets.data<std::int32_t>(), cross_entropy_size(logits, vocab_size));
  }

  void do_cross_entropy_backward(const Tensor& dlogits, const Tensor& dloss, const Tensor& logits,
                                 const Tensor& lse, const Tensor& targets, std::int64_t vocab_size) override {
    vectorised::cross_entropy_backward(parallel_, dlogits.data<float>(), *dloss.data<float>(),
                                       logits.data<float>(), lse.data<float>(), targets.data<std::int32_t>(),
                                       cross_entropy_size(logits, vocab_size));
  }

  void do_cross_entropy_forward_backward(const Tensor& loss, const Tensor& dlogits, const Tensor& rows,
                                         const Tensor& dloss, const Tensor& logits, const Tensor& targets,
                                         std::int64_t vocab_size) override {
    vectorised::cross_entropy_forward_backward(
        parallel_, loss.data<float>(), dlogits.data<float>(), rows.data<float>(), *dloss.data<float>(),
        logits.data<float>(), targets.data<std::int32_t>(), cross_entropy_size(logits, vocab_size));
  }

  void do_count_correct(const Tensor& count, const Tensor& logits, const Tensor& targets,
                        std::int64_t vocab_size) override {
    *count.data<std::int32_t>() =
        vectorised::count_correct(parallel_, logits.data<float>(), targets.data<std::int32_t>(),
                                  cross_entropy_size(logits, vocab_size));
  }

  void do_squared_norm(const Tensor& out, const Tensor& x) override {
    *out.data<double>() = vectorised::squared_norm(parallel_, x.data<float>(), x.numel());
  }

  void do_sum(const Tensor& out, const Tensor& x) override {
    *out.data<double>() = naive::sum(x.data<double>(), x.numel());
  }

  void do_adamw(const Tensor& weights, const Tensor& shadow, const Tensor& m, const Tensor& v,
                const Tensor& grads, const Tensor& squared_norm, std::span<const DecayRange> ranges,
                const AdamWStep& step) override {
    stagegpt::adamw(parallel_, weights.data<float>(), shadow.defined() ? shadow.data<Bf16>() : nullptr,
                    m.data<float>(), v.data<float>(), grads.data<float>(), *squared_norm.data<double>(),
                    ranges, step);
  }

  static constexpr std::int64_t kPanelElements = 1 << 20;  // of narrow_product(): 4 MiB in f32

  // out (N,O) = x (N,I) · wᵀ, w in bf16 or quantised, with rows of `width` elements. If N > 1, w is converted
  // to f32 panel by panel.
  template <class Weight>
  void narrow_product(float* out, const float* x, const Weight* w, std::int64_t width, LinearSize s) {
    if (s.N == 1) return vectorised::matvec(parallel_, out, x, w, s.O, s.I);
    const std::int64_t rows = std::min(s.O, std::max<std::int64_t>(1, kPanelElements / s.I));
    const Tensor panel = allocate(DType::f32, {rows, s.I});
    for (std::int64_t o = 0; o < s.O; o += rows) {
      const std::int64_t n = std::min(rows, s.O - o);
      vectorised::widen_rows(parallel_, panel.data<float>(), w + o * width, n, s.I);
      matmul_(parallel_, out + o, s.O, row_major(x, s.I), row_major(panel.data<float>(), s.I).transposed(),
              {s.N, n, s.I}, false);
    }
  }

  Parallel parallel_;
  MatmulFunction matmul_;
  const bool is_fast_;  // not a GEMM that is there to be compared with: a single row has its own kernel
  const Factors factors_;
};

}  // namespace

std::optional<CpuMatmul> cpu_matmul_named(std::string_view name) {
  if (name == "naive") return CpuMatmul::naive;
  if (name == "tiled") return CpuMatmul::tiled;
  if (name == "packed") return CpuMatmul::packed;
  if (name == "packed-bf16") return CpuMatmul::packed_bf16;
  if (name == "blas") return CpuMatmul::blas;
  return std::nullopt;
}

std::unique_ptr<Backend> make_cpu_backend(int threads, CpuMatmul matmul,
                                          std::unique_ptr<MemorySource> memory) {
  check(threads > 0, "cpu backend: expected at least one thread, not ", threads);
  return std::make_unique<CpuBackend>(threads, matmul, std::move(memory));
}

}  // namespace stagegpt
