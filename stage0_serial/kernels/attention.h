// Causal self-attention. For every sequence and head, with q, k, v rows of HS numbers inside qkv:
//   p[t][u] = exp(scale·q[t]·k[u] - lse[t]) for u <= t,  lse[t] = log Σ_u exp(scale·q[t]·k[u]),
//   out[t] = Σ_u f[t][u]·p[t][u]·v[u],  f the dropout factor (1 without dropout).
// The forward divides exponentials by their sum instead: lse, which the backward gets, is rounded.
// Backward, with D[t] = dout[t]·out[t], which equals Σ_u p·dp (Dao et al., arXiv:2205.14135, appendix B):
//   dv[u] = Σ_t f·p·dout[t],  dp = f·(dout[t]·v[u]),  ds = scale·p·(dp - D[t]),
//   dq[t] = Σ_u ds·k[u],  dk[u] = Σ_t ds·q[t].
// This file holds the plain loops; attention_blocked.h has the fast form.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "stage0_serial/kernels/dropout.h"
#include "stage0_serial/kernels/grad_out.h"

namespace stagegpt {

struct AttentionSize {
  std::int64_t B, T, NH, HS;
  double scale;  // of the scores, positive; GPT-2's is 1/√HS

  std::int64_t channels() const { return NH * HS; }
  std::int64_t row() const { return 3 * NH * HS; }  // elements of a row of qkv
  // Offset in qkv of the queries of head `head` = b·NH + h. Its keys and values are channels() and
  // 2·channels() elements further.
  std::int64_t qkv_offset(std::int64_t head) const { return head / NH * T * row() + head % NH * HS; }
  std::int64_t out_offset(std::int64_t head) const { return head / NH * T * channels() + head % NH * HS; }
};

namespace naive {

template <class T>
T dot(const T* a, const T* b, std::int64_t n) {
  T sum = 0;
  for (std::int64_t i = 0; i < n; ++i) sum += a[i] * b[i];
  return sum;
}

template <class T>
void attention_forward(T* out, T* lse, const T* qkv, const Dropout& dropout, AttentionSize s) {
  const T scale = static_cast<T>(s.scale);
  std::vector<T> p(static_cast<std::size_t>(s.T));
  for (std::int64_t head = 0; head < s.B * s.NH; ++head) {
    const T* q = qkv + s.qkv_offset(head);
    const T* k = q + s.channels();
    const T* v = k + s.channels();
    T* y = out + s.out_offset(head);
    for (std::int64_t t = 0; t < s.T; ++t) {
      for (std::int64_t u = 0; u <= t; ++u) p[u] = scale * dot(q + t * s.row(), k + u * s.row(), s.HS);
      const T max = *std::max_element(p.begin(), p.begin() + t + 1);
      T sum = 0;
      for (std::int64_t u = 0; u <= t; ++u) sum += std::exp(p[u] - max);
      lse[head * s.T + t] = max + std::log(sum);
      for (std::int64_t u = 0; u <= t; ++u) {
        p[u] = std::exp(p[u] - max) / sum;
        if (dropout.active()) p[u] *= dropout_factor<T>(dropout, (head * s.T + t) * s.T + u);
      }
      for (std::int64_t i = 0; i < s.HS; ++i) {
        T value = 0;
        for (std::int64_t u = 0; u <= t; ++u) value += p[u] * v[u * s.row() + i];
        y[t * s.channels() + i] = value;
      }
    }
  }
}

template <class T>
void attention_backward(GradOut<T> dqkv, const T* dout, const T* out, const T* lse, const T* qkv,
                        const Dropout& dropout, AttentionSize s) {
  const T scale = static_cast<T>(s.scale);
  if (!dqkv.accumulate) std::fill_n(dqkv.data, s.B * s.T * s.row(), T(0));
  for (std::int64_t head = 0; head < s.B * s.NH; ++head) {
    const T* q = qkv + s.qkv_offset(head);
    const T* k = q + s.channels();
    const T* v = k + s.channels();
    T* dq = dqkv.data + s.qkv_offset(head);
    T* dk = dq + s.channels();
    T* dv = dk + s.channels();
    for (std::int64_t t = 0; t < s.T; ++t) {
      const T* dy = dout + s.out_offset(head) + t * s.channels();
      const T D = dot(dy, out + s.out_offset(head) + t * s.channels(), s.HS);
      for (std::int64_t u = 0; u <= t; ++u) {
        const T p = std::exp(scale * dot(q + t * s.row(), k + u * s.row(), s.HS) - lse[head * s.T + t]);
        const T f = dropout.active() ? dropout_factor<T>(dropout, (head * s.T + t) * s.T + u) : T(1);
        const T ds = p * (f * dot(dy, v + u * s.row(), s.HS) - D) * scale;
        for (std::int64_t i = 0; i < s.HS; ++i) {
          dv[u * s.row() + i] += f * p * dy[i];
          dq[t * s.row() + i] += ds * k[u * s.row() + i];
          dk[u * s.row() + i] += ds * q[t * s.row() + i];
        }
      }
    }
  }
}

}  // namespace naive
}  // namespace stagegpt
