#include "stage0_serial/cpu_backend.h"

#include <algorithm>
#include <chrono>
#include <utility>
#include <vector>

#include "common/autograd/ops/attention.h"
#include "common/autograd/ops/cross_entropy.h"
#include "common/autograd/ops/dropout.h"
#include "common/autograd/ops/embedding.h"
#include "common/autograd/ops/layernorm.h"
#include "common/autograd/ops/linear.h"
#include "common/backend/ops/activation.h"
#include "common/backend/ops/adamw.h"
#include "common/backend/ops/elementwise.h"
#include "common/backend/ops/sums.h"
#include "common/backend/texts_together.h"
#include "common/base/seconds_since.h"
#include "stage0_serial/blas/openblas.h"
#include "stage0_serial/host_backend.h"
#include "stage0_serial/kernels/activation.h"
#include "stage0_serial/kernels/adamw.h"
#include "stage0_serial/kernels/attention_blocked.h"
#include "stage0_serial/kernels/attention_cached.h"
#include "stage0_serial/kernels/cross_entropy.h"
#include "stage0_serial/kernels/draw_tokens.h"
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
  CpuBackend(int threads, CpuMatmul matmul, std::unique_ptr<MemorySource> memory,
             const PackedKernels& bf16_kernels)
      : HostBackend(std::move(memory)),
        parallel_(threads),
        matmul_(matmul_function(matmul)),
        is_fast_(matmul != CpuMatmul::naive && matmul != CpuMatmul::tiled),
        factors_(matmul == CpuMatmul::packed_bf16 ? Factors::bf16 : Factors::f32),
        bf16_kernels_(bf16_kernels) {}

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
  void compute(const Fill& op) override {
    if (op.out.dtype() == DType::f32) {
      vectorised::fill(parallel_, op.out.data<float>(), static_cast<float>(op.value), op.out.numel());
    } else if (op.out.dtype() == DType::f64) {
      naive::fill(op.out.data<double>(), op.value, op.out.numel());
    } else if (op.out.dtype() == DType::bf16) {
      naive::fill(op.out.data<Bf16>(), Bf16{bf16_of_float(static_cast<float>(op.value))}, op.out.numel());
    } else {
      naive::fill(op.out.data<std::int32_t>(), static_cast<std::int32_t>(op.value), op.out.numel());
    }
  }

  void compute(const Add& op) override {
    by_type(op.a, [&]<class T>() {
      vectorised::add(parallel_, op.out.data<T>(), op.a.data<T>(), op.b.data<T>(), op.a.numel());
    });
  }

  void compute(const Cast& op) override {
    if (op.in.dtype() == DType::bf16)
      return vectorised::widen(parallel_, op.out.data<float>(), op.in.data<Bf16>(), op.in.numel());
    vectorised::to_bf16(parallel_, op.out.data<Bf16>(), op.in.data<float>(), op.in.numel());
  }

  void compute(const QuantiseRows& op) override {
    vectorised::quantise(parallel_, op.out.data<std::int8_t>(), op.in.data<float>(), op.in.shape()[0],
                         op.in.shape()[1]);
  }

  void compute(const DrawTokens& op) override { draw_tokens(parallel_, op); }

  void compute(const EmbeddingForward& op) override {
    const auto from = [&]<class T>(T* y, const auto* rows) {
      vectorised::embedding_forward(parallel_, y, op.ids.data<std::int32_t>(), rows,
                                    rows_from<T>(op.position, op.wpe),
                                    embedding_size(op.out, op.wte, op.wpe));
    };
    if (op.out.dtype() == DType::bf16) return from(op.out.data<Bf16>(), op.wte.data<Bf16>());
    if (op.wte.dtype() == DType::i8) return from(op.out.data<float>(), op.wte.data<std::int8_t>());
    by_type(op.wte, [&]<class Weight>() { from(op.out.data<float>(), op.wte.data<Weight>()); });
  }

  void compute(const EmbeddingBackward& op) override {
    by_type(op.dout, [&]<class T>() {
      vectorised::embedding_backward(parallel_, GradOut<float>(op.dwte), GradOut<float>(op.dwpe),
                                     op.dout.data<T>(), op.ids.data<std::int32_t>(),
                                     embedding_size(op.dout, op.dwte.tensor, op.dwpe.tensor));
    });
  }

  void compute(const LinearForward& op) override {
    // `out` as `pre`, too: no activation.
    compute(LinearActivationForward{op.out, op.out, op.x, op.w, op.bias, Activation::none});
  }

  void compute(const LinearActivationForward& op) override {
    const LinearSize s = linear_size(op.x, op.w);
    if (op.x.dtype() == DType::bf16) return bf16_forward(op);
    if (op.w.dtype() == DType::bf16) {
      narrow_product(op.pre.data<float>(), op.x, op.w.data<Bf16>(), s.I, s);
    } else if (op.w.dtype() == DType::i8) {
      narrow_product(op.pre.data<float>(), op.x, op.w.data<std::int8_t>(), quantised_width(s.I), s);
    } else if (is_fast_ && has_few_rows(op.x)) {
      vectorised::matvec(parallel_, op.pre.data<float>(), op.x.data<float>(), op.w.data<float>(), s);
    } else {
      matmul_(parallel_, op.pre.data<float>(), s.O, row_major(op.x.data<float>(), s.I),
              row_major(op.w.data<float>(), s.I).transposed(), {s.N, s.O, s.I}, false);
    }
    vectorised::bias_activation(parallel_, op.out.data<float>(), op.pre.data<float>(),
                                optional_data<float>(op.bias), op.activation, s);
  }

  void compute(const LinearBackward& op) override {
    if (op.x.dtype() == DType::bf16) {
      bf16_backward_parameters(op.dw, op.dbias, op.dout, op.x, op.w);
      return bf16_backward_input(op.dx, op.dout, op.w, {});
    }
    const LinearSize s = linear_size(op.x, op.w);
    const MatrixView<float> d = row_major(op.dout.data<float>(), s.O);
    if (const GradOut<float> out(op.dx); out) {
      matmul_(parallel_, out.data, s.I, d, row_major(op.w.data<float>(), s.I), {s.N, s.I, s.O},
              out.accumulate);
    }
    if (const GradOut<float> out(op.dw); out) {
      matmul_(parallel_, out.data, s.I, d.transposed(), row_major(op.x.data<float>(), s.I), {s.O, s.I, s.N},
              out.accumulate);
    }
    vectorised::bias_backward(parallel_, GradOut<float>(op.dbias), op.dout.data<float>(), s);
  }

  void compute(const ActivationLinearBackward& op) override {
    const Grad out{op.dpre, GradMode::overwrite};
    // First: it reads x, and dpre may be x.
    compute(LinearBackward{{}, op.dw, op.dbias, op.dout, op.x, op.w});
    if (op.x.dtype() == DType::bf16)
      return bf16_backward_input(
          out, op.dout, op.w,
          {.kind = packed::Finish::Kind::slope, .activation = op.activation, .pre = op.pre.data<Bf16>()});
    compute(LinearBackward{out, {}, {}, op.dout, op.x, op.w});
    compute(ActivationBackward{out, op.dpre, op.pre, op.activation});
  }

  void compute(const ActivationForward& op) override {
    by_type(op.x, [&]<class T>() {
      vectorised::activation_forward(parallel_, op.out.data<T>(), op.x.data<T>(), op.activation,
                                     op.x.numel());
    });
  }

  void compute(const ActivationBackward& op) override {
    by_type(op.x, [&]<class T>() {
      vectorised::activation_backward(parallel_, GradOut<T>(op.dx), op.dout.data<T>(), op.x.data<T>(),
                                      op.activation, op.x.numel());
    });
  }

  void compute(const LayernormForward& op) override {
    compute(ResidualLayernormForward{{}, op.out, op.mean, op.rstd, op.x, {}, op.w, op.bias, op.eps});
  }

  // Without a residual, the layernorm of x.
  void compute(const ResidualLayernormForward& op) override {
    by_type(op.x, [&]<class T>() {
      vectorised::layernorm_forward(parallel_, op.out.data<T>(), optional_data<T>(op.sum),
                                    op.mean.data<float>(), op.rstd.data<float>(), op.x.data<T>(),
                                    optional_data<T>(op.residual), op.w.data<float>(), op.bias.data<float>(),
                                    op.eps, op.mean.numel(), op.w.numel());
    });
  }

  void compute(const LayernormBackward& op) override {
    by_type(op.x, [&]<class T>() {
      vectorised::layernorm_backward(parallel_, GradOut<T>(op.dx), GradOut<float>(op.dw),
                                     GradOut<float>(op.dbias), op.dout.data<T>(), op.x.data<T>(),
                                     op.w.data<float>(), op.mean.data<float>(), op.rstd.data<float>(),
                                     op.mean.numel(), op.w.numel());
    });
  }

  void compute(const AttentionForward& op) override {
    by_type(op.qkv, [&]<class T>() {
      vectorised::attention_forward(parallel_, op.out.data<T>(), op.lse.data<float>(), op.qkv.data<T>(),
                                    placed(op.dropout), attention_size(op.qkv, op.n_head, op.scale));
    });
  }

  void compute(const AttentionBackward& op) override {
    by_type(op.qkv, [&]<class T>() {
      vectorised::attention_backward(parallel_, GradOut<T>(op.dqkv), op.dout.data<T>(), op.out.data<T>(),
                                     op.lse.data<float>(), op.qkv.data<T>(), placed(op.dropout),
                                     attention_size(op.qkv, op.n_head, op.scale));
    });
  }

  void compute(const CachedAttentionForward& op) override {
    const CachedAttentionSize s = cached_attention_size(op.cache, op.qkv, op.n_head, op.scale, op.first);
    by_type(op.qkv, [&]<class T>() {
      cached::store_rows(op.cache.data<T>(), op.qkv.data<T>(), s);
      if (op.first > 0)
        return cached::attention_forward(parallel_, op.out.data<T>(), op.cache.data<T>(), op.qkv.data<T>(),
                                         s);
      std::vector<float> lse(static_cast<std::size_t>(s.B * s.NH * s.T));
      vectorised::attention_forward(parallel_, op.out.data<T>(), lse.data(), op.qkv.data<T>(), {},
                                    attention_size(op.qkv, op.n_head, op.scale));
    });
  }

  void compute(const DropoutBackward& op) override {
    by_type(op.dout, [&]<class T>() {
      vectorised::dropout(parallel_, GradOut<T>(op.dx), op.dout.data<T>(), placed(op.dropout),
                          op.dout.numel());
    });
  }

  void compute(const CrossEntropyForward& op) override {
    by_type(op.logits, [&]<class T>() {
      vectorised::cross_entropy_forward(parallel_, op.loss.data<float>(), op.lse.data<float>(),
                                        op.logits.data<T>(), op.targets.data<std::int32_t>(),
                                        cross_entropy_size(op.logits, op.vocab_size));
    });
  }

  void compute(const CrossEntropyBackward& op) override {
    by_type(op.logits, [&]<class T>() {
      vectorised::cross_entropy_backward(
          parallel_, op.dlogits.data<T>(), *op.dloss.data<float>(), op.logits.data<T>(), op.lse.data<float>(),
          op.targets.data<std::int32_t>(), cross_entropy_size(op.logits, op.vocab_size));
    });
  }

  void compute(const CrossEntropyForwardBackward& op) override {
    by_type(op.logits, [&]<class T>() {
      vectorised::cross_entropy_forward_backward(parallel_, op.loss.data<float>(), op.dlogits.data<T>(),
                                                 op.rows.data<float>(), *op.dloss.data<float>(),
                                                 op.logits.data<T>(), op.targets.data<std::int32_t>(),
                                                 cross_entropy_size(op.logits, op.vocab_size));
    });
  }

  void compute(const CrossEntropyPartForward& op) override {
    const CrossEntropySize s = cross_entropy_size(op.logits, op.vocab_size);
    by_type(op.logits, [&]<class T>() {
      vectorised::row_lses(parallel_, op.lse.data<float>(), op.logits.data<T>(), s);
      naive::pick_targets(op.picked.data<float>(), op.logits.data<T>(), op.targets.data<std::int32_t>(), s);
    });
  }

  void compute(const CrossEntropyOfParts& op) override {
    naive::cross_entropy_of_parts(op.loss.data<float>(), op.lse.data<float>(), op.parts.data<float>(),
                                  op.parts.shape()[0], op.lse.numel());
  }

  void compute(const CountCorrect& op) override {
    by_type(op.logits, [&]<class T>() {
      *op.count.data<std::int32_t>() =
          vectorised::count_correct(parallel_, op.logits.data<T>(), op.targets.data<std::int32_t>(),
                                    cross_entropy_size(op.logits, op.vocab_size));
    });
  }

  void compute(const SquaredNorm& op) override {
    if (op.out.numel() == norm_blocks(op.x.numel()))
      return vectorised::squared_norms(parallel_, op.out.data<double>(), op.x.data<float>(), op.x.numel());
    std::vector<double> sums(static_cast<std::size_t>(norm_blocks(op.x.numel())));
    vectorised::squared_norms(parallel_, sums.data(), op.x.data<float>(), op.x.numel());
    *op.out.data<double>() = naive::sum(sums.data(), std::ssize(sums));
  }
  std::int64_t norm_block() const override { return kElementGrain; }

  void compute(const AdamWUpdate& op) override {
    stagegpt::adamw(parallel_, op.weights.data<float>(),
                    op.shadow.defined() ? op.shadow.data<Bf16>() : nullptr, op.m.data<float>(),
                    op.v.data<float>(), op.grads.data<float>(), *op.squared_norm.data<double>(), op.ranges,
                    op.step);
  }

  // Computes a LinearActivationForward in bf16. `pre` may be `out`, then there is no activation.
  void bf16_forward(const LinearActivationForward& op) {
    const LinearSize s = linear_size(op.x, op.w);
    packed::Finish finish{.bias = optional_data<Bf16>(op.bias)};
    if (!op.out.same_memory(op.pre)) {
      finish.kind = packed::Finish::Kind::activation;
      finish.activation = op.activation;
      finish.pre = op.pre.data<Bf16>();
    }
    if (has_few_rows(op.x)) {
      const Tensor sums = allocate(DType::f32, {s.N, s.O});
      vectorised::matvec(parallel_, sums.data<float>(), op.x.data<Bf16>(), op.w.data<Bf16>(), s);
      for (std::int64_t at = 0; at < s.N * s.O; at += s.O)
        packed::finish_row(op.out.data<Bf16>() + at, sums.data<float>() + at, s.O, finish.from(at, 0));
      return;
    }
    packed::matmul(bf16_kernels_, parallel_, op.out.data<Bf16>(), row_major(op.x.data<Bf16>(), s.I),
                   row_major(op.w.data<Bf16>(), s.I).transposed(), {s.N, s.O, s.I}, finish);
  }

  // The gradients of the weight and of the bias, in f32.
  void bf16_backward_parameters(const Grad& dw, const Grad& dbias, const Tensor& dout, const Tensor& x,
                                const Tensor& w) {
    const LinearSize s = linear_size(x, w);
    if (const GradOut<float> out(dw); out) {
      packed::matmul(bf16_kernels_, parallel_, out.data, s.I, row_major(dout.data<Bf16>(), s.O).transposed(),
                     row_major(x.data<Bf16>(), s.I), {s.O, s.I, s.N}, out.accumulate);
    }
    vectorised::bias_backward(parallel_, GradOut<float>(dbias), dout.data<Bf16>(), s);
  }

  // The gradient of x, finished.
  void bf16_backward_input(const Grad& dx, const Tensor& dout, const Tensor& w, packed::Finish finish) {
    const GradOut<Bf16> out(dx);
    if (!out) return;
    finish.accumulate = out.accumulate;
    const LinearSize s = linear_size(dx.tensor, w);
    packed::matmul(bf16_kernels_, parallel_, out.data, row_major(dout.data<Bf16>(), s.O),
                   row_major(w.data<Bf16>(), s.I), {s.N, s.I, s.O}, finish);
  }

  // Whether matvec() multiplies x: a single row, or one token of each of a few texts.
  static bool has_few_rows(const Tensor& x) {
    const std::int64_t I = x.shape()[-1], N = x.numel() / I;
    return N == 1 || (N <= kMostTextsTogether && x.shape()[-2] == 1);
  }

  static constexpr std::int64_t kPanelElements = 1 << 20;  // of narrow_product(): 4 MiB in f32

  // out (N,O) = x (N,I) · wᵀ, w in bf16 or quantised, with rows of `width` elements. If N is not small, w is
  // converted to f32 panel by panel.
  template <class Weight>
  void narrow_product(float* out, const Tensor& rows_of_x, const Weight* w, std::int64_t width,
                      LinearSize s) {
    const float* x = rows_of_x.data<float>();
    if (has_few_rows(rows_of_x)) return vectorised::matvec(parallel_, out, x, w, s);
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
  const bool is_fast_;  // packed or blas: then matvec() multiplies few rows
  const Factors factors_;
  const PackedKernels& bf16_kernels_;  // for activations in bf16
};

}  // namespace

std::unique_ptr<Backend> make_cpu_backend(int threads, CpuMatmul matmul, std::unique_ptr<MemorySource> memory,
                                          const PackedKernels& bf16_kernels) {
  check(threads > 0, "cpu backend: expected at least one thread, not ", threads);
  return std::make_unique<CpuBackend>(threads, matmul, std::move(memory), bf16_kernels);
}

}  // namespace stagegpt
