// What an op is: a struct of references to its arguments, outputs first. Backend::run() checks them, shows
// the op to the observer, and calls the backend's kernel. An op has
//
//   kName        its name, in messages and reports
//   check()      the conditions on shapes and element types. A violated one is an InternalError, because no
//                input of a user can cause it.
//   work()       the floating-point operations that it does and the bytes that it moves
//   operands()   its large tensors, for observers such as the profiler; an unwanted gradient is undefined
//   composed()   only for a fused op: without fusion, runs the ops that it combines in place of its kernel
//   is_wanted()  only where there may be nothing to do: if it is false, no kernel is called
//
// An op is made in the call of run(), and not kept: it refers to its arguments. Ops stand beside the function
// of the tape that they belong to, in autograd/ops/; those of none, or of several, are in backend/ops/.
//
// Dimensions: B batch, T time, C channels, NH heads, HS = C/NH head size, V vocabulary, Vp padded vocabulary,
// I and O inputs and outputs of a linear layer, P positions; lse is a log-sum-exp.
// N is any number of rows: where (N,C) is written, (B,T,C) is accepted. All floating-point tensors of one op
// have the same dtype, unless it says otherwise. Where activations are bf16, these are f32: statistics (mean,
// rstd, lse, loss), LayerNorm's parameters, and the gradients of all parameters.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "common/backend/op_types.h"

namespace stagegpt {

class Backend;

// Every +, -, ·, ÷, max and function call (exp, tanh, √) counts as one operation, so the product of an (N,K)
// and a (K,M) matrix has 2NKM. Bytes are the minimum: every operand is read once and every result is written
// once. A gradient that is accumulated is read and written; one that is skipped is neither.
struct Work {
  double flops = 0;
  double bytes = 0;
};

// Checks the arguments of one op. Every message begins with the op's name.
class Checks {
 public:
  Checks(const char* op, const Backend& backend) : op_(op), backend_(backend) {}

  const Backend& backend() const { return backend_; }
  void that(bool condition, const char* expected) const { check(condition, op_, ": expected ", expected); }
  void present(const Tensor& tensor, const char* what) const {
    check(tensor.defined(), op_, ": ", what, " is missing");
  }
  void dtype(const Tensor& tensor, DType dtype, const char* what) const {
    present(tensor, what);
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
    present(tensor, what);
    const bool narrow = tensor.dtype() == DType::bf16 || tensor.dtype() == DType::i8;
    if (!narrow || dtype != DType::f32) this->dtype(tensor, dtype, what);
  }
  void grad(const Grad& grad, DType dtype, const Shape& shape, const char* what) const {
    if (grad.wanted()) this->shape(grad.tensor, dtype, shape, what);
  }
  void real(const Tensor& tensor, const char* what) const {
    present(tensor, what);
    check(tensor.dtype() != DType::i32 && tensor.dtype() != DType::i8, op_, ": ", what, " is ",
          tensor.dtype(), ", expected real numbers");
  }

 private:
  const char* op_;
  const Backend& backend_;
};

}  // namespace stagegpt
