// Embedding: out[b][t] = wte[ids[b][t]] + wpe[t].
// Backward:  dwte[v] = Σ over (b,t) with ids[b][t] = v of dout[b][t],   dwpe[t] = Σ_b dout[b][t].
// An id past the last row is that of a token without a row, and wpe may be absent: both then count as zero.
//
// Vectorised: forward: rows are divided among threads. Backward: channels are, and each thread adds all
// tokens in order, so that no two threads write the same element and the order of each sum is fixed.
#pragma once

#include <algorithm>
#include <cstdint>

#include "common/tensor/quantised_rows.h"
#include "stage0_serial/kernels/grad_out.h"
#include "stage0_serial/parallel.h"

namespace stagegpt {

struct EmbeddingSize {
  std::int64_t B, T, C;
  std::int64_t vocab_rows, position_rows;  // of wte and wpe
};

namespace naive {

// out = in - first, or `absent` where that is not in [0, count).
inline void ids_in_part(std::int32_t* out, const std::int32_t* in, std::int64_t n, std::int64_t first,
                        std::int64_t count, std::int64_t absent) {
  for (std::int64_t i = 0; i < n; ++i) {
    const std::int64_t id = in[i] - first;
    out[i] = static_cast<std::int32_t>(id >= 0 && id < count ? id : absent);
  }
}

template <class T>
void embedding_forward(T* out, const std::int32_t* ids, const T* wte, const T* wpe, EmbeddingSize s) {
  for (std::int64_t row = 0; row < s.B * s.T; ++row) {
    for (std::int64_t c = 0; c < s.C; ++c) {
      const T token = ids[row] < s.vocab_rows ? wte[ids[row] * s.C + c] : T(0);
      out[row * s.C + c] = token + (wpe ? wpe[row % s.T * s.C + c] : T(0));
    }
  }
}

// Adds the gradient of channels [c0, c1) to dwte and dwpe.
template <class T, class Activation>
void embedding_scatter(T* dwte, T* dwpe, const Activation* dout, const std::int32_t* ids, EmbeddingSize s,
                       std::int64_t c0, std::int64_t c1) {
  for (std::int64_t row = 0; row < s.B * s.T; ++row) {
    const Activation* d = dout + row * s.C;
    if (dwte && ids[row] < s.vocab_rows) {
      for (std::int64_t c = c0; c < c1; ++c) dwte[ids[row] * s.C + c] += widened(d[c]);
    }
    if (dwpe) {
      for (std::int64_t c = c0; c < c1; ++c) dwpe[row % s.T * s.C + c] += widened(d[c]);
    }
  }
}

template <class T>
void embedding_backward(GradOut<T> dwte, GradOut<T> dwpe, const T* dout, const std::int32_t* ids,
                        EmbeddingSize s) {
  if (dwte && !dwte.accumulate) std::fill_n(dwte.data, s.vocab_rows * s.C, T(0));
  if (dwpe && !dwpe.accumulate) std::fill_n(dwpe.data, s.position_rows * s.C, T(0));
  embedding_scatter(dwte.data, dwpe.data, dout, ids, s, 0, s.C);
}

}  // namespace naive

namespace vectorised {

// y = row `id` of wte, in f32 or bf16, + position.
template <class T, class Weight>
void add_position(T* y, const Weight* wte, std::int64_t id, const T* position, std::int64_t C) {
  const Weight* token = wte + id * C;
#pragma omp simd
  for (std::int64_t c = 0; c < C; ++c) y[c] = rounded_to<T>(widened(token[c]) + widened(position[c]));
}
// Adds a row of a quantised wte and a position.
inline void add_position(float* y, const std::int8_t* wte, std::int64_t id, const float* position,
                         std::int64_t C) {
  widen_row(y, wte + id * quantised_width(C), C);
  for (std::int64_t c = 0; c < C; ++c) y[c] += position[c];
}

template <class T, class Weight>
void embedding_forward(const Parallel& parallel, T* out, const std::int32_t* ids, const Weight* wte,
                       const T* wpe, EmbeddingSize s) {
  parallel.each(s.B * s.T, [=](std::int64_t row) {
    T* y = out + row * s.C;
    const bool has_row = ids[row] < s.vocab_rows;
    if (has_row && wpe) return add_position(y, wte, ids[row], wpe + row % s.T * s.C, s.C);
    wpe ? std::copy_n(wpe + row % s.T * s.C, s.C, y) : std::fill_n(y, s.C, T());
    if (has_row) add_position(y, wte, ids[row], y, s.C);
  });
}

template <class T>
void embedding_backward(const Parallel& parallel, GradOut<float> dwte, GradOut<float> dwpe, const T* dout,
                        const std::int32_t* ids, EmbeddingSize s) {
  auto zero = [&](GradOut<float> grad, std::int64_t n) {
    if (!grad || grad.accumulate) return;
    parallel.ranges(n, kElementGrain, [=](std::int64_t begin, std::int64_t end) {
      std::fill(grad.data + begin, grad.data + end, 0.f);
    });
  };
  zero(dwte, s.vocab_rows * s.C);
  zero(dwpe, s.position_rows * s.C);
  constexpr std::int64_t kChannels = 64;
  parallel.ranges(s.C, kChannels, [=](std::int64_t c0, std::int64_t c1) {
    naive::embedding_scatter(dwte.data, dwpe.data, dout, ids, s, c0, c1);
  });
}

}  // namespace vectorised
}  // namespace stagegpt
