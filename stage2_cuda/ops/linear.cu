// Linear layers, with their activations.
#include "stage2_cuda/kernels/activation.cuh"
#include "stage2_cuda/kernels/column_sums.cuh"
#include "stage2_cuda/kernels/elementwise.cuh"
#include "stage2_cuda/stream_backend.h"

namespace stagegpt::gpu {
namespace {

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

}  // namespace

void StreamBackend::do_linear_forward(const Tensor& out, const Tensor& x, const Tensor& w,
                                      const Tensor& bias) {
  const Tensor weight = x.dtype() == DType::f32 ? in_f32(w) : w;
  by_type(x, [&]<class T>() { gemm_->run(forward_product<T>(out, x, weight, bias), stream_); });
}

void StreamBackend::do_linear_activation_forward(const Tensor& out, const Tensor& pre, const Tensor& x,
                                                 const Tensor& w, const Tensor& bias, Activation activation) {
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

void StreamBackend::do_linear_backward(const Grad& dx, const Grad& dw, const Grad& dbias, const Tensor& dout,
                                       const Tensor& x, const Tensor& w) {
  by_type(dout, [&]<class T>() {
    if (dx.wanted()) gemm_->run(backward_product<T>(dx, dout, w), stream_);
    if (dw.wanted()) return weight_gradients<T>(dw, dbias, dout, x);
    if (dbias.wanted()) sum_columns(dbias, {}, dout, w.shape()[0]);
  });
}

void StreamBackend::do_activation_linear_backward(const Tensor& dpre, const Grad& dw, const Grad& dbias,
                                                  const Tensor& dout, const Tensor& x, const Tensor& pre,
                                                  const Tensor& w, Activation activation) {
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

void StreamBackend::do_activation_forward(const Tensor& out, const Tensor& x, Activation activation) {
  by_type(x, [&]<class T>() {
    gpu::activation_forward<T>(stream_, out.data<T>(), x.data<T>(), activation, x.numel());
  });
}

void StreamBackend::do_activation_backward(const Grad& dx, const Tensor& dout, const Tensor& x,
                                           Activation activation) {
  if (!dx.wanted()) return;
  by_type(x, [&]<class T>() {
    gpu::activation_backward<T>(stream_, dx.tensor.data<T>(), dx.accumulates(), dout.data<T>(), x.data<T>(),
                                activation, x.numel());
  });
}

template <class T>
void StreamBackend::weight_gradients(const Grad& dw, const Grad& dbias, const Tensor& dout, const Tensor& x) {
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

void StreamBackend::sum_columns(const Grad& out, const Grad& rest, const Tensor& matrix, std::int64_t C) {
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

Tensor StreamBackend::in_f32(const Tensor& tensor) {
  if (tensor.dtype() == DType::f32) return tensor;
  const Tensor wide = allocate(DType::f32, tensor.shape());
  gpu::cast(stream_, floats(wide), tensor.data<Bf16>(), tensor.numel());
  return wide;
}

}  // namespace stagegpt::gpu
