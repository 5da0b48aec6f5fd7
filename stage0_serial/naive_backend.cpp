#include "stage0_serial/naive_backend.h"

#include <span>
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
#include "common/tensor/quantised_rows.h"
#include "stage0_serial/host_backend.h"
#include "stage0_serial/kernels/activation.h"
#include "stage0_serial/kernels/adamw.h"
#include "stage0_serial/kernels/attention.h"
#include "stage0_serial/kernels/cross_entropy.h"
#include "stage0_serial/kernels/draw_tokens.h"
#include "stage0_serial/kernels/dropout.h"
#include "stage0_serial/kernels/elementwise.h"
#include "stage0_serial/kernels/embedding.h"
#include "stage0_serial/kernels/layernorm.h"
#include "stage0_serial/kernels/linear.h"
#include "stage0_serial/sizes.h"

namespace stagegpt {
namespace {

// Calls `kernel` with a value of the dtype's C++ type, float or double.
template <class Kernel>
void with_real(DType dtype, const Kernel& kernel) {
  dtype == DType::f64 ? kernel(double{}) : kernel(float{});
}

// The elements of a weight as T; those of a bf16 or quantised weight are converted.
template <class T>
class Matrix {
 public:
  explicit Matrix(const Tensor& weight) {
    if (weight.dtype() != DType::bf16 && weight.dtype() != DType::i8) {
      data_ = weight.data<T>();
      return;
    }
    weight.dtype() == DType::i8 ? widen_rows(weight) : widen_halves(weight);
    data_ = widened_.data();
  }
  const T* data() const { return data_; }

 private:
  void widen_rows(const Tensor& weight) {
    const std::int64_t I = columns_of(weight);
    std::vector<float> row(static_cast<std::size_t>(I));
    for (std::int64_t o = 0; o < weight.shape()[0]; ++o) {
      widen_row(row.data(), weight.data<std::int8_t>() + o * quantised_width(I), I);
      widened_.insert(widened_.end(), row.begin(), row.end());
    }
  }
  void widen_halves(const Tensor& weight) {
    const std::span elements(weight.data<Bf16>(), static_cast<std::size_t>(weight.numel()));
    for (const Bf16 element : elements) widened_.push_back(as_float(element));
  }

  const T* data_ = nullptr;
  std::vector<T> widened_;
};

class NaiveBackend final : public HostBackend {
  void compute(const Fill& op) override {
    if (op.out.dtype() == DType::i32)
      return naive::fill(op.out.data<std::int32_t>(), static_cast<std::int32_t>(op.value), op.out.numel());
    if (op.out.dtype() == DType::bf16)
      return naive::fill(op.out.data<Bf16>(), Bf16{bf16_of_float(static_cast<float>(op.value))},
                         op.out.numel());
    with_real(op.out.dtype(), [&](auto t) {
      using T = decltype(t);
      naive::fill(op.out.data<T>(), static_cast<T>(op.value), op.out.numel());
    });
  }

  void compute(const Add& op) override {
    with_real(op.a.dtype(), [&](auto t) {
      using T = decltype(t);
      naive::add(op.out.data<T>(), op.a.data<T>(), op.b.data<T>(), op.a.numel());
    });
  }

  void compute(const Cast& op) override {
    for (std::int64_t i = 0; i < op.in.numel(); ++i) {
      if (op.in.dtype() == DType::bf16) {
        op.out.data<float>()[i] = as_float(op.in.data<Bf16>()[i]);
      } else {
        op.out.data<Bf16>()[i] = {bf16_of_float(op.in.data<float>()[i])};
      }
    }
  }

  void compute(const QuantiseRows& op) override {
    const std::int64_t O = op.in.shape()[0], I = op.in.shape()[1];
    for (std::int64_t o = 0; o < O; ++o)
      quantise_row(op.out.data<std::int8_t>() + o * quantised_width(I), op.in.data<float>() + o * I, I);
  }

  void compute(const DrawTokens& op) override { draw_tokens(Parallel(1), op); }

  void compute(const EmbeddingForward& op) override {
    with_real(op.out.dtype(), [&](auto t) {
      using T = decltype(t);
      const Matrix<T> rows(op.wte);
      naive::embedding_forward(op.out.data<T>(), op.ids.data<std::int32_t>(), rows.data(),
                               rows_from<T>(op.position, op.wpe), embedding_size(op.out, op.wte, op.wpe));
    });
  }

  void compute(const EmbeddingBackward& op) override {
    with_real(op.dout.dtype(), [&](auto t) {
      using T = decltype(t);
      naive::embedding_backward(GradOut<T>(op.dwte), GradOut<T>(op.dwpe), op.dout.data<T>(),
                                op.ids.data<std::int32_t>(),
                                embedding_size(op.dout, op.dwte.tensor, op.dwpe.tensor));
    });
  }

  void compute(const LinearForward& op) override {
    with_real(op.out.dtype(), [&](auto t) {
      using T = decltype(t);
      const Matrix<T> rows(op.w);
      naive::linear_forward(op.out.data<T>(), op.x.data<T>(), rows.data(), optional_data<T>(op.bias),
                            linear_size(op.x, op.w));
    });
  }

  void compute(const LinearActivationForward& op) override {
    compute(LinearForward{op.pre, op.x, op.w, op.bias});
    compute(ActivationForward{op.out, op.pre, op.activation});
  }

  void compute(const LinearBackward& op) override {
    with_real(op.dout.dtype(), [&](auto t) {
      using T = decltype(t);
      naive::linear_backward(GradOut<T>(op.dx), GradOut<T>(op.dw), GradOut<T>(op.dbias), op.dout.data<T>(),
                             op.x.data<T>(), op.w.data<T>(), linear_size(op.x, op.w));
    });
  }

  void compute(const ActivationLinearBackward& op) override {
    const Grad out{op.dpre, GradMode::overwrite};
    compute(LinearBackward{{}, op.dw, op.dbias, op.dout, op.x, op.w});  // first, because dpre may be x
    compute(LinearBackward{out, {}, {}, op.dout, op.x, op.w});
    compute(ActivationBackward{out, op.dpre, op.pre, op.activation});
  }

  void compute(const ActivationForward& op) override {
    with_real(op.out.dtype(), [&](auto t) {
      using T = decltype(t);
      naive::activation_forward(op.out.data<T>(), op.x.data<T>(), op.activation, op.x.numel());
    });
  }

  void compute(const ActivationBackward& op) override {
    with_real(op.x.dtype(), [&](auto t) {
      using T = decltype(t);
      if (const GradOut<T> out(op.dx); out) {
        naive::activation_backward(out, op.dout.data<T>(), op.x.data<T>(), op.activation, op.x.numel());
      }
    });
  }

  void compute(const LayernormForward& op) override {
    with_real(op.x.dtype(), [&](auto t) {
      using T = decltype(t);
      naive::layernorm_forward(op.out.data<T>(), op.mean.data<T>(), op.rstd.data<T>(), op.x.data<T>(),
                               op.w.data<T>(), op.bias.data<T>(), op.eps, op.mean.numel(), op.w.numel());
    });
  }

  void compute(const ResidualLayernormForward& op) override {
    compute(Add{op.sum, op.x, op.residual});
    compute(LayernormForward{op.out, op.mean, op.rstd, op.sum, op.w, op.bias, op.eps});
  }

  void compute(const LayernormBackward& op) override {
    with_real(op.x.dtype(), [&](auto t) {
      using T = decltype(t);
      naive::layernorm_backward(GradOut<T>(op.dx), GradOut<T>(op.dw), GradOut<T>(op.dbias), op.dout.data<T>(),
                                op.x.data<T>(), op.w.data<T>(), op.mean.data<T>(), op.rstd.data<T>(),
                                op.mean.numel(), op.w.numel());
    });
  }

  void compute(const AttentionForward& op) override {
    with_real(op.qkv.dtype(), [&](auto t) {
      using T = decltype(t);
      naive::attention_forward(op.out.data<T>(), op.lse.data<T>(), op.qkv.data<T>(), placed(op.dropout),
                               attention_size(op.qkv, op.n_head, op.scale));
    });
  }

  void compute(const AttentionBackward& op) override {
    with_real(op.qkv.dtype(), [&](auto t) {
      using T = decltype(t);
      naive::attention_backward(GradOut<T>(op.dqkv), op.dout.data<T>(), op.out.data<T>(), op.lse.data<T>(),
                                op.qkv.data<T>(), placed(op.dropout),
                                attention_size(op.qkv, op.n_head, op.scale));
    });
  }

  void compute(const CachedAttentionForward& op) override {
    with_real(op.out.dtype(), [&](auto t) {
      using T = decltype(t);
      const CachedAttentionSize s = cached_attention_size(op.cache, op.qkv, op.n_head, op.scale, op.first);
      cached::store_rows(op.cache.data<T>(), op.qkv.data<T>(), s);
      cached::attention_forward(Parallel(1), op.out.data<T>(), op.cache.data<T>(), op.qkv.data<T>(), s);
    });
  }

  void compute(const DropoutBackward& op) override {
    with_real(op.dout.dtype(), [&](auto t) {
      using T = decltype(t);
      naive::dropout(GradOut<T>(op.dx), op.dout.data<T>(), placed(op.dropout), op.dout.numel());
    });
  }

  void compute(const CrossEntropyForward& op) override {
    with_real(op.logits.dtype(), [&](auto t) {
      using T = decltype(t);
      naive::cross_entropy_forward(op.loss.data<T>(), op.lse.data<T>(), op.logits.data<T>(),
                                   op.targets.data<std::int32_t>(),
                                   cross_entropy_size(op.logits, op.vocab_size));
    });
  }

  void compute(const CrossEntropyBackward& op) override {
    with_real(op.logits.dtype(), [&](auto t) {
      using T = decltype(t);
      naive::cross_entropy_backward(op.dlogits.data<T>(), *op.dloss.data<T>(), op.logits.data<T>(),
                                    op.lse.data<T>(), op.targets.data<std::int32_t>(),
                                    cross_entropy_size(op.logits, op.vocab_size));
    });
  }

  void compute(const CrossEntropyForwardBackward& op) override {
    with_real(op.logits.dtype(), [&](auto t) {
      using T = decltype(t);
      naive::cross_entropy_forward_backward(
          op.loss.data<T>(), op.dlogits.data<T>(), op.rows.data<T>(), *op.dloss.data<T>(),
          op.logits.data<T>(), op.targets.data<std::int32_t>(), cross_entropy_size(op.logits, op.vocab_size));
    });
  }

  void compute(const CrossEntropyPartForward& op) override {
    with_real(op.logits.dtype(), [&](auto t) {
      using T = decltype(t);
      const CrossEntropySize s = cross_entropy_size(op.logits, op.vocab_size);
      for (std::int64_t n = 0; n < s.N; ++n)
        op.lse.data<T>()[n] = naive::row_lse(op.logits.data<T>() + n * s.Vp, s);
      naive::pick_targets(op.picked.data<T>(), op.logits.data<T>(), op.targets.data<std::int32_t>(), s);
    });
  }

  void compute(const CrossEntropyOfParts& op) override {
    with_real(op.parts.dtype(), [&](auto t) {
      using T = decltype(t);
      naive::cross_entropy_of_parts(op.loss.data<T>(), op.lse.data<T>(), op.parts.data<T>(),
                                    op.parts.shape()[0], op.lse.numel());
    });
  }

  void compute(const CountCorrect& op) override {
    with_real(op.logits.dtype(), [&](auto t) {
      using T = decltype(t);
      *op.count.data<std::int32_t>() = naive::count_correct(
          op.logits.data<T>(), op.targets.data<std::int32_t>(), cross_entropy_size(op.logits, op.vocab_size));
    });
  }

  void compute(const SquaredNorm& op) override {
    with_real(op.x.dtype(), [&](auto t) {
      using T = decltype(t);
      std::vector<double> sums(static_cast<std::size_t>(norm_blocks(op.x.numel())));
      naive::squared_norms(sums.data(), op.x.data<T>(), op.x.numel(), norm_block());
      if (op.out.numel() == 1) {
        *op.out.data<double>() = naive::sum(sums.data(), std::ssize(sums));
      } else {
        std::ranges::copy(sums, op.out.data<double>());
      }
    });
  }

  void compute(const AdamWUpdate& op) override {
    with_real(op.weights.dtype(), [&](auto t) {
      using T = decltype(t);
      stagegpt::adamw(Parallel(1), op.weights.data<T>(),
                      op.shadow.defined() ? op.shadow.data<Bf16>() : nullptr, op.m.data<T>(), op.v.data<T>(),
                      op.grads.data<T>(), *op.squared_norm.data<double>(), op.ranges, op.step);
    });
  }
};

}  // namespace

std::unique_ptr<Backend> make_naive_backend() { return std::make_unique<NaiveBackend>(); }

}  // namespace stagegpt
