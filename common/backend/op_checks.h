// Checks of the arguments of ops: their shapes and element types. A failed check is an InternalError.
#pragma once

#include <cstdint>

#include "common/backend/op_types.h"
#include "common/tensor/quantised_rows.h"

namespace stagegpt {

// Checks the arguments of one op. Every message begins with the op's name.
class Checks {
 public:
  explicit Checks(const char* op) : op_(op) {}

  void that(bool condition, const char* expected) const { check(condition, op_, ": expected ", expected); }
  void dtype(const Tensor& tensor, DType dtype, const char* what) const {
    check(tensor.defined(), op_, ": ", what, " is missing");
    check(tensor.dtype() == dtype, op_, ": ", what, " is ", tensor.dtype(), ", expected ", dtype);
  }
  void elements(const Tensor& tensor, DType dtype, std::int64_t numel, const char* what) const {
    this->dtype(tensor, dtype, what);
    check(tensor.numel() == numel, op_, ": ", what, " has shape ", tensor.shape(), ", expected ", numel,
          " elements");
  }
  void shape(const Tensor& tensor, DType dtype, const Shape& shape, const char* what) const {
    this->dtype(tensor, dtype, what);
    check(tensor.shape() == shape, op_, ": ", what, " has shape ", tensor.shape(), ", expected ", shape);
  }
  // A weight that is only read may be bf16 or quantised while the other tensors are f32.
  void weight(const Tensor& tensor, DType dtype, const char* what) const {
    check(tensor.defined(), op_, ": ", what, " is missing");
    const bool narrow = tensor.dtype() == DType::bf16 || tensor.dtype() == DType::i8;
    if (!narrow || dtype != DType::f32) this->dtype(tensor, dtype, what);
  }
  void grad(const Grad& grad, DType dtype, const Shape& shape, const char* what) const {
    if (grad.wanted()) this->shape(grad.tensor, dtype, shape, what);
  }
  void real(const Tensor& tensor, const char* what) const {
    check(tensor.defined(), op_, ": ", what, " is missing");
    check(tensor.dtype() != DType::i32 && tensor.dtype() != DType::i8, op_, ": ", what, " is ",
          tensor.dtype(), ", expected real numbers");
  }

 private:
  const char* op_;
};

// Rows of a tensor seen as (N, columns).
inline std::int64_t rows(const Tensor& tensor, std::int64_t columns) {
  return columns == 0 ? 0 : tensor.numel() / columns;
}

inline void check_layernorm(const Checks& checks, const Tensor& like, const Tensor& x, const Tensor& w,
                            const Tensor& mean, const Tensor& rstd) {
  checks.real(x, "x");
  const std::int64_t channels = x.shape()[-1], n = rows(x, channels);
  checks.shape(like, x.dtype(), x.shape(), "out");
  const DType statistics = statistics_dtype(x.dtype());
  checks.shape(w, statistics, {channels}, "weight");
  checks.elements(mean, statistics, n, "mean");
  checks.elements(rstd, statistics, n, "rstd");
}

inline void check_attention(const Checks& checks, const Tensor& out, const Tensor& lse, const Tensor& qkv,
                            int n_head, double scale) {
  checks.real(qkv, "qkv");
  checks.that(qkv.shape().rank() == 3 && qkv.shape()[2] % 3 == 0, "qkv of shape (B,T,3C)");
  const std::int64_t B = qkv.shape()[0], T = qkv.shape()[1], C = qkv.shape()[2] / 3;
  checks.that(n_head > 0 && C % n_head == 0, "a number of heads that divides the channels");
  checks.that(scale > 0, "a positive scale");
  checks.shape(out, qkv.dtype(), {B, T, C}, "out");
  checks.shape(lse, statistics_dtype(qkv.dtype()), {B, n_head, T}, "lse");
}

inline void check_classes(const Checks& checks, const Tensor& logits, const Tensor& targets,
                          std::int64_t vocab_size) {
  checks.real(logits, "logits");
  const std::int64_t padded = logits.shape()[-1], n = rows(logits, padded);
  checks.that(vocab_size > 0 && vocab_size <= padded, "a vocabulary no larger than the logits' columns");
  checks.that(n > 0, "at least one row");
  checks.elements(targets, DType::i32, n, "targets");
}

inline void check_cross_entropy(const Checks& checks, const Tensor& logits, const Tensor& lse,
                                const Tensor& targets, std::int64_t vocab_size) {
  check_classes(checks, logits, targets, vocab_size);
  checks.elements(lse, statistics_dtype(logits.dtype()), rows(logits, logits.shape()[-1]), "lse");
}

inline void check_linear(const Checks& checks, const Tensor& out, const Tensor& x, const Tensor& w) {
  checks.real(x, "x");
  checks.weight(w, x.dtype(), "weight");
  checks.that(w.shape().rank() == 2, "a weight of shape (O,I)");
  checks.that(x.shape()[-1] == columns_of(w), "x with as many columns as the weight");
  checks.elements(out, x.dtype(), rows(x, columns_of(w)) * w.shape()[0], "out");
  checks.that(out.shape()[-1] == w.shape()[0], "out with as many columns as the weight has rows");
}

inline void check_optional_bias(const Checks& checks, const Tensor& bias, const Tensor& x, const Tensor& w) {
  if (bias.defined()) checks.shape(bias, x.dtype(), {w.shape()[0]}, "bias");
}

}  // namespace stagegpt
