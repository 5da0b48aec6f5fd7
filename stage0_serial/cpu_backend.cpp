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

// Calls run<T>() with T the element type of a tensor of activations: float or Bf16.
template <class Run>
void by_type(const Tensor& activations, const Run& run) {
  if (activations.dtype() == DType::bf16) return run.template operator()<Bf16>();
  run.template operator()<float>();
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
  CpuBackend(int threads, CpuMatmul matmul, std::unique_ptr<MemorySource> memory, const PackedKernels& halves)
      : HostBackend(std::move(memory)),
        parallel_(threads),
        matmul_(matmul_function(matmul)),
        is_fast_(matmul != CpuMatmul::naive && matmul != CpuMatmul::tiled),
        factors_(matmul == CpuMatmul::packed_bf16 ? Factors::bf16 : Factors::f32),
        halves_(halves) {}

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
    by_type(a, [&]<class T>() {
      vectorised::add(parallel_, out.data<T>(), a.data<T>(), b.data<T>(), a.numel());
    });
  }

  void do_cast(const Tensor& out, const Tensor& in) override {
    if (in.dtype() == DType::bf16)
      return vectorised::widen(parallel_, out.data<float>(), in.data<Bf16>(), in.numel());
    vectorised::to_bf16(parallel_, out.data<Bf16>(), in.data<float>(), in.numel());
  }

  void do_quantise_rows(const Tensor& out, const Tensor& in) override {
    vectorised::quantise(parallel_, out.data<std::int8_t>(), in.data<float>(), in.shape()[0], in.shape()[1]);
  }

  void do_ids_in_part(const Tensor& out, const Tensor& in, std::int64_t first, std::int64_t count,
                      std::int64_t absent) override {
    naive::ids_in_part(out.data<std::int32_t>(), in.data<std::int32_t>(), in.numel(), first, count, absent);
  }

  void do_embedding_forward(const Tensor& out, const Tensor& ids, const Tensor& wte,
                            const Tensor& wpe) override {
    const auto from = [&]<class T>(T* y, const auto* rows) {
      vectorised::embedding_forward(parallel_, y, ids.data<std::int32_t>(), rows, optional_data<T>(wpe),
                                    embedding_size(out, wte, wpe));
    };
    if (out.dtype() == DType::bf16) return from(out.data<Bf16>(), wte.data<Bf16>());
    if (wte.dtype() == DType::i8) return from(out.data<float>(), wte.data<std::int8_t>());
    by_type(wte, [&]<class Weight>() { from(out.data<float>(), wte.data<Weight>()); });
  }

  void do_embedding_backward(const Grad& dwte, const Grad& dwpe, const Tensor& dout,
                             const Tensor& ids) override {
    by_type(dout, [&]<class T>() {
      vectorised::embedding_backward(parallel_, GradOut<float>(dwte), GradOut<float>(dwpe), dout.data<T>(),
                                     ids.data<std::int32_t>(),
                                     embedding_size(dout, dwte.tensor, dwpe.tensor));
    });
  }

  void do_linear_forward(const Tensor& out, const Tensor& x, const Tensor& w, const Tensor& bias) override {
    do_linear_activation_forward(out, out, x, w, bias, Activation::none);
  }

  void do_linear_activation_forward(const Tensor& out, const Tensor& pre, const Tensor& x, const Tensor& w,
                                    const Tensor& bias, Activation activation) override {
    const LinearSize s = linear_size(x, w);
    if (x.dtype() == DType::bf16) return halves_forward(out, pre, x, w, bias, activation);
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
    if (x.dtype() == DType::bf16) {
      halves_backward(dw, dbias, dout, x, w);
      return halves_backward(dx, dout, w, {});
    }
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
    if (x.dtype() == DType::bf16)
      return halves_backward(
          out, dout, w,
          {.kind = packed::Finish::Kind::slope, .activation = activation, .pre = pre.data<Bf16>()});
    do_linear_backward(out, {}, {}, dout, x, w);
    do_activation_backward(out, dpre, pre, activation);
  }

  void do_activation_forward(const Tensor& out, const Tensor& x, Activation activation) override {
    by_type(x, [&]<class T>() {
      vectorised::activation_forward(parallel_, out.data<T>(), x.data<T>(), activation, x.numel());
    });
  }

  void do_activation_backward(const Grad& dx, const Tensor& dout, const Tensor& x,
                              Activation activation) override {
    by_type(x, [&]<class T>() {
      vectorised::activation_backward(parallel_, GradOut<T>(dx), dout.data<T>(), x.data<T>(), activation,
                                      x.numel());
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
    by_type(x, [&]<class T>() {
      vectorised::layernorm_backward(parallel_, GradOut<T>(dx), GradOut<float>(dw), GradOut<float>(dbias),
                                     dout.data<T>(), x.data<T>(), w.data<float>(), mean.data<float>(),
                                     rstd.data<float>(), mean.numel(), w.numel());
    });
  }

  void do_attention_forward(const Tensor& out, const Tensor& lse, const Tensor& qkv, int n_head, double scale,
                            const Dropout& dropout) override {
    by_type(qkv, [&]<class T>() {
      vectorised::attention_forward(parallel_, out.data<T>(), lse.data<float>(), qkv.data<T>(),
                                    placed(dropout), attention_size(qkv, n_head, scale));
    });
  }

  void do_attention_backward(const Grad& dqkv, const Tensor& dout, const Tensor& out, const Tensor& lse,
                             const Tensor& qkv, int n_head, double scale, const Dropout& dropout) override {
    by_type(qkv, [&]<class T>() {
      vectorised::attention_backward(parallel_, GradOut<T>(dqkv), dout.data<T>(), out.data<T>(),
                                     lse.data<float>(), qkv.data<T>(), placed(dropout),
                                     attention_size(qkv, n_head, scale));
    });
  }

  void do_cached_attention_forward(const Tensor& out, const Tensor& cache, const Tensor& qkv, int n_head,
                                   double scale, std::int64_t first) override {
    const CachedAttentionSize s = cached_attention_size(cache, qkv, n_head, scale, first);
    by_type(qkv, [&]<class T>() {
      cached::store_rows(cache.data<T>(), qkv.data<T>(), s);
      if (first > 0)
        return cached::attention_forward(parallel_, out.data<T>(), cache.data<T>(), qkv.data<T>(), s);
      std::vector<float> lse(static_cast<std::size_t>(s.B * s.NH * s.T));
      vectorised::attention_forward(parallel_, out.data<T>(), lse.data(), qkv.data<T>(), {},
                                    attention_size(qkv, n_head, scale));
    });
  }

  void do_dropout_forward(const Tensor& out, const Tensor& x, const Dropout& dropout) override {
    do_dropout_backward({out, GradMode::overwrite}, x, dropout);
  }

  void do_dropout_backward(const Grad& dx, const Tensor& dout, const Dropout& dropout) override {
    by_type(dout, [&]<class T>() {
      vectorised::dropout(parallel_, GradOut<T>(dx), dout.data<T>(), placed(dropout), dout.numel());
    });
  }

  void do_cross_entropy_forward(const Tensor& loss, const Tensor& lse, const Tensor& logits,
                                const Tensor& targets, std::int64_t vocab_size) override {
    by_type(logits, [&]<class T>() {
      vectorised::cross_entropy_forward(parallel_, loss.data<float>(), lse.data<float>(), logits.data<T>(),
                                        targets.data<std::int32_t>(), cross_entropy_size(logits, vocab_size));
    });
  }

  void do_cross_entropy_backward(const Tensor& dlogits, const Tensor& dloss, const Tensor& logits,
                                 const Tensor& lse, const Tensor& targets, std::int64_t vocab_size) override {
    by_type(logits, [&]<class T>() {
      vectorised::cross_entropy_backward(parallel_, dlogits.data<T>(), *dloss.data<float>(), logits.data<T>(),
                                         lse.data<float>(), targets.data<std::int32_t>(),
                                         cross_entropy_size(logits, vocab_size));
    });
  }

  void do_cross_entropy_forward_backward(const Tensor& loss, const Tensor& dlogits, const Tensor& rows,
                                         const Tensor& dloss, const Tensor& logits, const Tensor& targets,
                                         std::int64_t vocab_size) override {
    by_type(logits, [&]<class T>() {
      vectorised::cross_entropy_forward_backward(
          parallel_, loss.data<float>(), dlogits.data<T>(), rows.data<float>(), *dloss.data<float>(),
          logits.data<T>(), targets.data<std::int32_t>(), cross_entropy_size(logits, vocab_size));
    });
  }

  void do_cross_entropy_part_forward(const Tensor& lse, const Tensor& picked, const Tensor& logits,
                                     const Tensor& targets, std::int64_t vocab_size) override {
    const CrossEntropySize s = cross_entropy_size(logits, vocab_size);
    by_type(logits, [&]<class T>() {
      vectorised::row_lses(parallel_, lse.data<float>(), logits.data<T>(), s);
      naive::pick_targets(picked.data<float>(), logits.data<T>(), targets.data<std::int32_t>(), s);
    });
  }

  void do_cross_entropy_of_parts(const Tensor& loss, const Tensor& lse, const Tensor& parts) override {
    naive::cross_entropy_of_parts(loss.data<float>(), lse.data<float>(), parts.data<float>(),
                                  parts.shape()[0], lse.numel());
  }

  void do_count_correct(const Tensor& count, const Tensor& logits, const Tensor& targets,
                        std::int64_t vocab_size) override {
    by_type(logits, [&]<class T>() {
      *count.data<std::int32_t>() = vectorised::count_correct(
          parallel_, logits.data<T>(), targets.data<std::int32_t>(), cross_entropy_size(logits, vocab_size));
    });
  }

  void do_squared_norm(const Tensor& out, const Tensor& x) override {
    if (out.numel() == norm_blocks(x.numel()))
      return vectorised::squared_norms(parallel_, out.data<double>(), x.data<float>(), x.numel());
    std::vector<double> sums(static_cast<std::size_t>(norm_blocks(x.numel())));
    vectorised::squared_norms(parallel_, sums.data(), x.data<float>(), x.numel());
    *out.data<double>() = naive::sum(sums.data(), std::ssize(sums));
  }
  std::int64_t norm_block() const override { return kElementGrain; }

  void do_add_norm_blocks(const Tensor& out, const Tensor& blocks) override { do_sum(out, blocks); }

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

  // If `residual` is undefined, out = layernorm(x), and there is no `sum`.
  void normalise(const Tensor& sum, const Tensor& out, const Tensor& mean, const Tensor& rstd,
                 const Tensor& x, const Tensor& residual, const Tensor& w, const Tensor& bias, double eps) {
    by_type(x, [&]<class T>() {
      vectorised::layernorm_forward(parallel_, out.data<T>(), optional_data<T>(sum), mean.data<float>(),
                                    rstd.data<float>(), x.data<T>(), optional_data<T>(residual),
                                    w.data<float>(), bias.data<float>(), eps, mean.numel(), w.numel());
    });
  }

  // do_linear_activation_forward() in bf16; `pre` may be `out`, then there is no activation.
  void halves_forward(const Tensor& out, const Tensor& pre, const Tensor& x, const Tensor& w,
                      const Tensor& bias, Activation activation) {
    const LinearSize s = linear_size(x, w);
    packed::Finish finish{.bias = optional_data<Bf16>(bias)};
    if (!out.same_memory(pre)) {
      finish.kind = packed::Finish::Kind::activation;
      finish.activation = activation;
      finish.pre = pre.data<Bf16>();
    }
    if (s.N == 1) {
      const Tensor sums = allocate(DType::f32, {s.O});
      vectorised::matvec(parallel_, sums.data<float>(), x.data<Bf16>(), w.data<Bf16>(), s.O, s.I);
      return packed::finish_row(out.data<Bf16>(), sums.data<float>(), s.O, finish);
    }
    packed::matmul(halves_, parallel_, out.data<Bf16>(), row_major(x.data<Bf16>(), s.I),
                   row_major(w.data<Bf16>(), s.I).transposed(), {s.N, s.O, s.I}, finish);
  }

  // The gradients of the weight and of the bias, in f32.
  void halves_backward(const Grad& dw, const Grad& dbias, const Tensor& dout, const Tensor& x,
                       const Tensor& w) {
    const LinearSize s = linear_size(x, w);
    if (const GradOut<float> out(dw); out) {
      packed::matmul(halves_, parallel_, out.data, s.I, row_major(dout.data<Bf16>(), s.O).transposed(),
                     row_major(x.data<Bf16>(), s.I), {s.O, s.I, s.N}, out.accumulate);
    }
    vectorised::bias_backward(parallel_, GradOut<float>(dbias), dout.data<Bf16>(), s);
  }

  // The gradient of x, finished.
  void halves_backward(const Grad& dx, const Tensor& dout, const Tensor& w, packed::Finish finish) {
    const GradOut<Bf16> out(dx);
    if (!out) return;
    finish.accumulate = out.accumulate;
    const LinearSize s = linear_size(dx.tensor, w);
    packed::matmul(halves_, parallel_, out.data, row_major(dout.data<Bf16>(), s.O),
                   row_major(w.data<Bf16>(), s.I), {s.N, s.I, s.O}, finish);
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
  const PackedKernels& halves_;  // for activations in bf16
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

std::unique_ptr<Backend> make_cpu_backend(int threads, CpuMatmul matmul, std::unique_ptr<MemorySource> memory,
                                          const PackedKernels& halves) {
  check(threads > 0, "cpu backend: expected at least one thread, not ", threads);
  return std::make_unique<CpuBackend>(threads, matmul, std::move(memory), halves);
}

}  // namespace stagegpt
