#include "stage0_serial/naive_backend.h"

#include <span>
#include <vector>

#include "stage0_serial/host_backend.h"
#include "stage0_serial/kernels/activation.h"
#include "stage0_serial/kernels/adamw.h"
#include "stage0_serial/kernels/attention.h"
#include "stage0_serial/kernels/cross_entropy.h"
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
  void do_fill(const Tensor& out, double value) override {
    if (out.dtype() == DType::i32)
      return naive::fill(out.data<std::int32_t>(), static_cast<std::int32_t>(value), out.numel());
    if (out.dtype() == DType::bf16)
      return naive::fill(out.data<Bf16>(), Bf16{bf16_of_float(static_cast<float>(value))}, out.numel());
    with_real(out.dtype(), [&](auto t) {
      using T = decltype(t);
      naive::fill(out.data<T>(), static_cast<T>(value), out.numel());
    });
  }

  void do_add(const Tensor& out, const Tensor& a, const Tensor& b) override {
    with_real(a.dtype(), [&](auto t) {
      using T = decltype(t);
      naive::add(out.data<T>(), a.data<T>(), b.data<T>(), a.numel());
    });
  }

  void do_cast(const Tensor& out, const Tensor& in) override {
    for (std::int64_t i = 0; i < in.numel(); ++i) {
      if (in.dtype() == DType::bf16) {
        out.data<float>()[i] = as_float(in.data<Bf16>()[i]);
      } else {
        out.data<Bf16>()[i] = {bf16_of_float(in.data<float>()[i])};
      }
    }
  }

  void do_quantise_rows(const Tensor& out, const Tensor& in) override {
    const std::int64_t O = in.shape()[0], I = in.shape()[1];
    for (std::int64_t o = 0; o < O; ++o)
      quantise_row(out.data<std::int8_t>() + o * quantised_width(I), in.data<float>() + o * I, I);
  }

  void do_ids_in_part(const Tensor& out, const Tensor& in, std::int64_t first, std::int64_t count,
                      std::int64_t absent) override {
    naive::ids_in_part(out.data<std::int32_t>(), in.data<std::int32_t>(), in.numel(), first, count, absent);
  }

  void do_embedding_forward(const Tensor& out, const Tensor& ids, const Tensor& wte,
                            const Tensor& wpe) override {
    with_real(out.dtype(), [&](auto t) {
      using T = decltype(t);
      const Matrix<T> rows(wte);
      naive::embedding_forward(out.data<T>(), ids.data<std::int32_t>(), rows.data(), optional_data<T>(wpe),
                               embedding_size(out, wte, wpe));
    });
  }

  void do_embedding_backward(const Grad& dwte, const Grad& dwpe, const Tensor& dout,
                             const Tensor& ids) override {
    with_real(dout.dtype(), [&](auto t) {
      using T = decltype(t);
      naive::embedding_backward(GradOut<T>(dwte), GradOut<T>(dwpe), dout.data<T>(), ids.data<std::int32_t>(),
                                embedding_size(dout, dwte.tensor, dwpe.tensor));
    });
  }

  void do_linear_forward(const Tensor& out, const Tensor& x, const Tensor& w, const Tensor& bias) override {
    with_real(out.dtype(), [&](auto t) {
      using T = decltype(t);
      const Matrix<T> rows(w);
      naive::linear_forward(out.data<T>(), x.data<T>(), rows.data(), optional_data<T>(bias),
                            linear_size(x, w));
    });
  }

  void do_linear_activation_forward(const Tensor& out, const Tensor& pre, const Tensor& x, const Tensor& w,
                                    const Tensor& bias, Activation activation) override {
    do_linear_forward(pre, x, w, bias);
    do_activation_forward(out, pre, activation);
  }

  void do_linear_backward(const Grad& dx, const Grad& dw, const Grad& dbias, const Tensor& dout,
                          const Tensor& x, const Tensor& w) override {
    with_real(dout.dtype(), [&](auto t) {
      using T = decltype(t);
      naive::linear_backward(GradOut<T>(dx), GradOut<T>(dw), GradOut<T>(dbias), dout.data<T>(), x.data<T>(),
                             w.data<T>(), linear_size(x, w));
    });
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
    with_real(out.dtype(), [&](auto t) {
      using T = decltype(t);
      naive::activation_forward(out.data<T>(), x.data<T>(), activation, x.numel());
    });
  }

  void do_activation_backward(const Grad& dx, const Tensor& dout, const Tensor& x,
                              Activation activation) override {
    with_real(x.dtype(), [&](auto t) {
      using T = decltype(t);
      if (const GradOut<T> out(dx); out) {
        naive::activation_backward(out, dout.data<T>(), x.data<T>(), activation, x.numel());
      }
    });
  }

  void do_layernorm_forward(const Tensor& out, const Tensor& mean, const Tensor& rstd, const Tensor& x,
                            const Tensor& w, const Tensor& bias, double eps) override {
    with_real(x.dtype(), [&](auto t) {
      using T = decltype(t);
      naive::layernorm_forward(out.data<T>(), mean.data<T>(), rstd.data<T>(), x.data<T>(), w.data<T>(),
                               bias.data<T>(), eps, mean.numel(), w.numel());
    });
  }

  void do_residual_layernorm_forward(const Tensor& sum, const Tensor& out, const Tensor& mean,
                                     const Tensor& rstd, const Tensor& x, const Tensor& residual,
                                     const Tensor& w, const Tensor& bias, double eps) override {
    do_add(sum, x, residual);
    do_layernorm_forward(out, mean, rstd, sum, w, bias, eps);
  }

  void do_layernorm_backward(const Grad& dx, const Grad& dw, const Grad& dbias, const Tensor& dout,
                             const Tensor& x, const Tensor& w, const Tensor& mean,
                             const Tensor& rstd) override {
    with_real(x.dtype(), [&](auto t) {
      using T = decltype(t);
      naive::layernorm_backward(GradOut<T>(dx), GradOut<T>(dw), GradOut<T>(dbias), dout.data<T>(),
                                x.data<T>(), w.data<T>(), mean.data<T>(), rstd.data<T>(), mean.numel(),
                                w.numel());
    });
  }

  void do_attention_forward(const Tensor& out, const Tensor& lse, const Tensor& qkv, int n_head, double scale,
                            const Dropout& dropout) override {
    with_real(qkv.dtype(), [&](auto t) {
      using T = decltype(t);
      naive::attention_forward(out.data<T>(), lse.data<T>(), qkv.data<T>(), placed(dropout),
                               attention_size(qkv, n_head, scale));
    });
  }

  void do_attention_backward(const Grad& dqkv, const Tensor& dout, const Tensor& out, const Tensor& lse,
                             const Tensor& qkv, int n_head, double scale, const Dropout& dropout) override {
    with_real(qkv.dtype(), [&](auto t) {
      using T = decltype(t);
      naive::attention_backward(GradOut<T>(dqkv), dout.data<T>(), out.data<T>(), lse.data<T>(), qkv.data<T>(),
                                placed(dropout), attention_size(qkv, n_head, scale));
    });
  }

  void do_cached_attention_forward(const Tensor& out, const Tensor& cache, const Tensor& qkv, int n_head,
                                   double scale, std::int64_t first) override {
    with_real(out.dtype(), [&](auto t) {
      using T = decltype(t);
      const CachedAttentionSize s = cached_attention_size(cache, qkv, n_head, scale, first);
      cached::store_rows(cache.data<T>(), qkv.data<T>(), s);
      cached::attention_forward(Parallel(1), out.data<T>(), cache.data<T>(), qkv.data<T>(), s);
    });
  }

  void do_dropout_forward(const Tensor& out, const Tensor& x, const Dropout& dropout) override {
    do_dropout_backward({out, GradMode::overwrite}, x, dropout);
  }

  void do_dropout_backward(const Grad& dx, const Tensor& dout, const Dropout& dropout) override {
    with_real(dout.dtype(), [&](auto t) {
      using T = decltype(t);
      naive::dropout(GradOut<T>(dx), dout.data<T>(), placed(dropout), dout.numel());
    });
  }

  void do_cross_entropy_forward(const Tensor& loss, const Tensor& lse, const Tensor& logits,
                                const Tensor& targets, std::int64_t vocab_size) override {
    with_real(logits.dtype(), [&](auto t) {
      using T = decltype(t);
      naive::cross_entropy_forward(loss.data<T>(), lse.data<T>(), logits.data<T>(),
                                   targets.data<std::int32_t>(), cross_entropy_size(logits, vocab_size));
    });
  }

  void do_cross_entropy_backward(const Tensor& dlogits, const Tensor& dloss, const Tensor& logits,
                                 const Tensor& lse, const Tensor& targets, std::int64_t vocab_size) override {
    with_real(logits.dtype(), [&](auto t) {
      using T = decltype(t);
      naive::cross_entropy_backward(dlogits.data<T>(), *dloss.data<T>(), logits.data<T>(), lse.data<T>(),
                                    targets.data<std::int32_t>(), cross_entropy_size(logits, vocab_size));
    });
  }

  void do_cross_entropy_forward_backward(const Tensor& loss, const Tensor& dlogits, const Tensor& rows,
                                         const Tensor& dloss, const Tensor& logits, const Tensor& targets,
                                         std::int64_t vocab_size) override {
    with_real(logits.dtype(), [&](auto t) {
      using T = decltype(t);
      naive::cross_entropy_forward_backward(loss.data<T>(), dlogits.data<T>(), rows.data<T>(),
                                            *dloss.data<T>(), logits.data<T>(), targets.data<std::int32_t>(),
                                            cross_entropy_size(logits, vocab_size));
    });
  }

  void do_cross_entropy_part_forward(const Tensor& lse, const Tensor& picked, const Tensor& logits,
                                     const Tensor& targets, std::int64_t vocab_size) override {
    with_real(logits.dtype(), [&](auto t) {
      using T = decltype(t);
      const CrossEntropySize s = cross_entropy_size(logits, vocab_size);
      for (std::int64_t n = 0; n < s.N; ++n)
        lse.data<T>()[n] = naive::row_lse(logits.data<T>() + n * s.Vp, s);
      naive::pick_targets(picked.data<T>(), logits.data<T>(), targets.data<std::int32_t>(), s);
    });
  }

  void do_cross_entropy_of_parts(const Tensor& loss, const Tensor& lse, const Tensor& parts) override {
    with_real(parts.dtype(), [&](auto t) {
      using T = decltype(t);
      naive::cross_entropy_of_parts(loss.data<T>(), lse.data<T>(), parts.data<T>(), parts.shape()[0],
                                    lse.numel());
    });
  }

  void do_count_correct(const Tensor& count, const Tensor& logits, const Tensor& targets,
                        std::int64_t vocab_size) override {
    with_real(logits.dtype(), [&](auto t) {
      using T = decltype(t);
      *count.data<std::int32_t>() = naive::count_correct(logits.data<T>(), targets.data<std::int32_t>(),
                                                         cross_entropy_size(logits, vocab_size));
    });
  }

  void do_squared_norm(const Tensor& out, const Tensor& x) override {
    with_real(x.dtype(), [&](auto t) {
      using T = decltype(t);
      std::vector<double> sums(static_cast<std::size_t>(norm_blocks(x.numel())));
      naive::squared_norms(sums.data(), x.data<T>(), x.numel(), norm_block());
      if (out.numel() == 1) {
        *out.data<double>() = naive::sum(sums.data(), std::ssize(sums));
      } else {
        std::ranges::copy(sums, out.data<double>());
      }
    });
  }

  void do_add_norm_blocks(const Tensor& out, const Tensor& blocks) override { do_sum(out, blocks); }

  void do_sum(const Tensor& out, const Tensor& x) override {
    *out.data<double>() = naive::sum(x.data<double>(), x.numel());
  }

  void do_adamw(const Tensor& weights, const Tensor& shadow, const Tensor& m, const Tensor& v,
                const Tensor& grads, const Tensor& squared_norm, std::span<const DecayRange> ranges,
                const AdamWStep& step) override {
    with_real(weights.dtype(), [&](auto t) {
      using T = decltype(t);
      stagegpt::adamw(Parallel(1), weights.data<T>(), shadow.defined() ? shadow.data<Bf16>() : nullptr,
                      m.data<T>(), v.data<T>(), grads.data<T>(), *squared_norm.data<double>(), ranges, step);
    });
  }
};

}  // namespace

std::unique_ptr<Backend> make_naive_backend() { return std::make_unique<NaiveBackend>(); }

}  // namespace stagegpt
