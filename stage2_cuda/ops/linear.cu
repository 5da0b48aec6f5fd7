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

void StreamBackend::compute(const LinearForward& op) {
  if (multiplied_rows(op.out, {}, op.x, op.w, op.bias, Activation::none)) return;
  const Tensor weight = op.x.dtype() == DType::f32 ? in_f32(op.w) : op.w;
  by_type(op.x, [&]<class T>() { gemm_->run(forward_product<T>(op.out, op.x, weight, op.bias), stream_); });
}

void StreamBackend::compute(const LinearActivationForward& op) {
  if (multiplied_rows(op.out, op.pre, op.x, op.w, op.bias, op.activation)) return;
  const Tensor weight = op.x.dtype() == DType::f32 ? in_f32(op.w) : op.w;
  by_type(op.x, [&]<class T>() {
    ProductOf<T, T> product = forward_product<T>(op.out, op.x, weight, op.bias);
    product.epilogue = Epilogue::gelu;
    product.pre = op.pre.data<T>();
    if (op.activation == Activation::gelu_new && gemm_->has_epilogue(product))
      return gemm_->run(product, stream_);
    compute(LinearForward{op.pre, op.x, weight, op.bias});
    compute(ActivationForward{op.out, op.pre, op.activation});
  });
}

void StreamBackend::compute(const LinearBackward& op) {
  by_type(op.dout, [&]<class T>() {
    if (op.dx.wanted()) gemm_->run(backward_product<T>(op.dx, op.dout, op.w), stream_);
    if (op.dw.wanted()) return weight_gradients<T>(op.dw, op.dbias, op.dout, op.x);
    if (op.dbias.wanted()) sum_columns(op.dbias, {}, op.dout, op.w.shape()[0]);
  });
}

void StreamBackend::compute(const ActivationLinearBackward& op) {
  const Grad out{op.dpre, GradMode::overwrite};
  compute(LinearBackward{{}, op.dw, op.dbias, op.dout, op.x, op.w});  // first, because dpre may be x
  by_type(op.dout, [&]<class T>() {
    ProductOf<T, T> product = backward_product<T>(out, op.dout, op.w);
    product.epilogue = Epilogue::gelu_backward;
    product.pre = op.pre.data<T>();
    if (op.activation == Activation::gelu_new && gemm_->has_epilogue(product))
      return gemm_->run(product, stream_);
    compute(LinearBackward{out, {}, {}, op.dout, op.x, op.w});
    compute(ActivationBackward{out, op.dpre, op.pre, op.activation});
  });
}

void StreamBackend::compute(const ActivationForward& op) {
  by_type(op.x, [&]<class T>() {
    gpu::activation_forward<T>(stream_, op.out.data<T>(), op.x.data<T>(), op.activation, op.x.numel());
  });
}

void StreamBackend::compute(const ActivationBackward& op) {
  if (!op.dx.wanted()) return;
  by_type(op.x, [&]<class T>() {
    gpu::activation_backward<T>(stream_, op.dx.tensor.data<T>(), op.dx.accumulates(), op.dout.data<T>(),
                                op.x.data<T>(), op.activation, op.x.numel());
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
  by_type(matrix, [&]<class T>() {
    gpu::column_sums<T>(stream_, floats(out), out.accumulates(), floats(rest), rest.accumulates(),
                        matrix.data<T>(), N, C, columns, floats(scratch),
                        counters(ColumnSums::counters(columns)));
  });
}

std::int32_t* StreamBackend::counters(std::int64_t n) {
  if (counters_.empty() || counters_.back().numel() < n) counters_.push_back(zeros(DType::i32, {n}));
  return counters_.back().data<std::int32_t>();
}

Tensor StreamBackend::in_f32(const Tensor& tensor) {
  if (tensor.dtype() == DType::f32) return tensor;
  const Tensor wide = allocate(DType::f32, tensor.shape());
  gpu::cast(stream_, floats(wide), tensor.data<Bf16>(), tensor.numel());
  return wide;
}

}  // namespace stagegpt::gpu
