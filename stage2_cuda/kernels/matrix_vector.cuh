// A linear layer of one row x (I), for the next token: out[o] = Σ_i w[o][i]·x[i] + bias[o], w (O,I). The row
// may be the layernorm of a sum (layernorm.cuh), which every block computes for itself, once for all of its
// rows of w.
//
// A weight is read once and used once, so the time is that of reading w. A warp reads a row of w as one
// stream: each lane starts kAhead loads of 16 bytes before it multiplies, the first ones before x is there. A
// longer row is divided among several warps of a block, whose sums one thread adds. The order of a sum
// depends only on I, on the types, and on whether rows are aligned.
#pragma once

#include <algorithm>
#include <bit>

#include "stage2_cuda/kernels/activation.cuh"
#include "stage2_cuda/kernels/reduce.cuh"

namespace stagegpt::gpu {

inline constexpr int kRowWarps = 8, kRowThreads = kRowWarps * kWarp;  // of a block
inline constexpr int kAhead = 4;
inline constexpr int kRowBlocks = 3;               // on a multiprocessor, for 72 registers of a thread
inline constexpr std::int64_t kLongestRow = 8192;  // as floats in the shared memory of a block

// How rows of w are divided among warps.
struct MatrixVectorSize {
  std::int64_t O, I;
  std::int64_t length;  // elements of a row that a warp multiplies
  int warps;            // of a row: a power of two, at most kRowWarps

  // Of w (outputs,inputs), of which a lane reads V elements at once.
  MatrixVectorSize(std::int64_t outputs, std::int64_t inputs, int V)
      : O(outputs),
        I(inputs),
        length(parts(inputs, warps_of(inputs, V) * V * kWarp) * V * kWarp),
        warps(warps_of(inputs, V)) {}

  __host__ __device__ int rows() const { return kRowWarps / warps; }  // of a block

 private:
  static int warps_of(std::int64_t inputs, int V) {
    const std::int64_t full = std::clamp<std::int64_t>(parts(inputs, kAhead * kWarp * V), 1, kRowWarps);
    return static_cast<int>(std::bit_ceil(static_cast<std::uint64_t>(full)));
  }
};

// V elements of w, which no other thread reads.
template <int V, class Weight>
__device__ auto load_weights(const Weight* w, std::int64_t i) {
  if constexpr (V == 1) {
    return load<1>(w, i);
  } else {
    return load_once(w, i);
  }
}
__device__ inline Floats<1> floats_of(const Floats<1>& one) { return one; }

// Some groups of a lane's part of a row of w: those that it reads ahead.
template <class Weight, int V>
struct RowStream {
  static constexpr int kStep = kWarp * V;

  const Weight* w;
  std::int64_t at, end;  // the first element that is not multiplied yet, and the end of the part
  decltype(load_weights<V>(static_cast<const Weight*>(nullptr), 0)) ahead[kAhead] = {};

  __device__ void start() {
    STAGEGPT_UNROLL for (int k = 0; k < kAhead; ++k) {
      if (at + k * kStep < end) ahead[k] = load_weights<V>(w, at + k * kStep);
    }
  }
  // Adds the products of what has been started with the row x.
  template <class Row>
  __device__ void multiply(Floats<V>& sum, const Row& x) {
    STAGEGPT_UNROLL for (int k = 0; k < kAhead; ++k) {
      if (at + k * kStep >= end) break;
      const Floats<V> weights = floats_of(ahead[k]), in = load_floats<V>(x, at + k * kStep);
      STAGEGPT_UNROLL for (int j = 0; j < V; ++j) sum.v[j] = fmaf(weights.v[j], in.v[j], sum.v[j]);
    }
    at += kAhead * kStep;
  }
};

// What a row is made of: x (I), or layernorm(x + residual). The sum is written to `sum`. Without a layernorm,
// norm_w and norm_bias are null; without a residual, `residual` and `sum` are.
template <class T>
struct RowInput {
  const T* x;
  T* sum = nullptr;
  const T* residual = nullptr;
  const float *norm_w = nullptr, *norm_bias = nullptr;
  float eps = 0;
};

// Writes the row to shared memory, and the sum, from the first block, to memory.
template <int V, class T, class Row>
__device__ void make_row(Row& row, const RowInput<T>& in, std::int64_t I) {
  constexpr int kStep = kRowThreads * V;
  const std::int64_t first = static_cast<std::int64_t>(threadIdx.x) * V;
  float total = 0;
  for (std::int64_t i = first; i < I; i += kStep) {
    Floats<V> f = load<V>(in.x, i);
    if (in.residual) {
      const Floats<V> r = load<V>(in.residual, i);
      STAGEGPT_UNROLL for (int j = 0; j < V; ++j) f.v[j] = as_float(rounded_to<T>(f.v[j] + r.v[j]));
      if (blockIdx.x == 0) store<V>(in.sum, i, f);
    }
    STAGEGPT_UNROLL for (int j = 0; j < V; ++j) total += f.v[j];
    store_floats(row, i, f);
  }
  if (in.norm_w) {
    const float mean = block_sum<kRowThreads>(total) / static_cast<float>(I);
    float squares = 0;
    for (std::int64_t i = first; i < I; i += kStep) {
      const Floats<V> f = load_floats<V>(row, i);
      STAGEGPT_UNROLL for (int j = 0; j < V; ++j) squares += (f.v[j] - mean) * (f.v[j] - mean);
    }
    __syncthreads();  // all have read the first sum
    const float rstd = 1 / sqrtf(block_sum<kRowThreads>(squares) / static_cast<float>(I) + in.eps);
    for (std::int64_t i = first; i < I; i += kStep) {
      Floats<V> f = load_floats<V>(row, i);
      const Floats<V> w = load<V>(in.norm_w, i), bias = load<V>(in.norm_bias, i);
      STAGEGPT_UNROLL for (int j = 0; j < V; ++j) f.v[j] =
          as_float(rounded_to<T>((f.v[j] - mean) * rstd * w.v[j] + bias.v[j]));
      store_floats(row, i, f);
    }
  }
  __syncthreads();
}

// This warp's part of the rows of w that a block multiplies together: those of group 0, 1, … Nothing beyond
// the last row.
template <class Weight, int V>
__device__ RowStream<Weight, V> rows_of_warp(const Weight* w, std::int64_t group, const MatrixVectorSize& s) {
  const std::int64_t warp = threadIdx.x / kWarp, o = group * s.rows() + warp / s.warps,
                     begin = warp % s.warps * s.length, left = s.I - begin;
  const std::int64_t own = o >= s.O || left < 0 ? 0 : left < s.length ? left : s.length;
  return {w + o * s.I, begin + lane_index() * V, begin + own};
}

// pre = w·row + bias, if it is not null, and out = activation(pre). Blocks take groups of rows in turns.
template <class T, class Weight, int V>
static __global__ void matrix_vector_kernel(T* out, T* pre, T* sum, const T* x, const T* residual,
                                            const float* norm_w, const float* norm_bias, float eps,
                                            const Weight* w, const T* bias, Activation activation,
                                            MatrixVectorSize s) {
  STAGEGPT_SHARED(float, sums, kRowWarps);
  STAGEGPT_DYNAMIC_SHARED(float, row);  // (I)
  const auto write = [&](std::int64_t o, float value) {
    if (o >= s.O) return;
    if (bias) value += as_float(bias[o]);
    if (pre) pre[o] = rounded_to<T>(value);
    out[o] = rounded_to<T>(activate(value, activation).value);
  };
  const int warp = static_cast<int>(threadIdx.x) / kWarp, thread = static_cast<int>(threadIdx.x);
  RowStream<Weight, V> stream = rows_of_warp<Weight, V>(w, blockIdx.x, s);
  stream.start();
  make_row<V>(row, RowInput<T>{x, sum, residual, norm_w, norm_bias, eps}, s.I);
  for (std::int64_t group = blockIdx.x; group * s.rows() < s.O; group += gridDim.x) {
    Floats<V> products = {};
    while (stream.at < stream.end) {
      stream.multiply(products, row);
      stream.start();
    }
    const float total = warp_sum(in_pairs(products, [](float a, float b) { return a + b; }));
    stream = rows_of_warp<Weight, V>(w, group + gridDim.x, s);
    stream.start();
    if (s.warps == 1) {
      if (lane_index() == 0) write(group * s.rows() + warp, total);
      continue;
    }
    if (lane_index() == 0) sums[warp] = total;
    __syncthreads();
    if (thread < s.rows()) {
      float value = 0;
      for (int i = 0; i < s.warps; ++i) value += sums[thread * s.warps + i];
      write(group * s.rows() + thread, value);
    }
    __syncthreads();
  }
}

// I is at most kLongestRow. Without an activation, it is Activation::none and `pre` is null.
template <class T, class Weight>
void matrix_vector(StreamHandle stream, T* out, T* pre, const RowInput<T>& in, const Weight* w, const T* bias,
                   Activation activation, std::int64_t O, std::int64_t I) {
  if (O == 0) return;
  const auto launch_rows = [&]<int V>(std::integral_constant<int, V>) {
    const MatrixVectorSize size(O, I, V);
    // No more blocks than multiprocessors have room for: each makes the row once for all of its rows of w.
    const std::int64_t needed = parts(O, size.rows()), room = std::int64_t{kRowBlocks} * multiprocessors();
    launch<matrix_vector_kernel<T, Weight, V>>(dim3(static_cast<unsigned>(std::min(needed, room))),
                                               dim3(kRowThreads), static_cast<std::size_t>(I) * sizeof(float),
                                               stream, out, pre, in.sum, in.x, in.residual, in.norm_w,
                                               in.norm_bias, in.eps, w, bias, activation, size);
  };
  constexpr int kV = kVector<Weight>;
  if (in_vectors<kV>(I, w, in.sum, in.x, in.residual, in.norm_w, in.norm_bias))
    return launch_rows(std::integral_constant<int, kV>());
  launch_rows(std::integral_constant<int, 1>());
}

}  // namespace stagegpt::gpu
