// The ladder of causal self-attention, kernels/attention_ladder.cuh.
#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "common/base/error.h"
#include "stage2_cuda/kernels/attention_ladder.cuh"
#include "stage2_cuda/ladders/ladder_tensors.h"

namespace stagegpt::gpu {
namespace {

// The output of v5 is rounded to bf16, and so are the probabilities that are multiplied by v.
constexpr double kTwoRoundings = 2 * kBf16Tolerance;

struct AttentionTensors {
  Tensor out, lse, qkv;  // (B,T,C), (B,NH,T), (B,T,3C)
};

// out of one query and head, in f64; returns its lse. `qkv` holds the rows of a sequence.
double attend(std::vector<double>& out, const float* qkv, const AttentionSize& s, std::int64_t h,
              std::int64_t t) {
  const std::int64_t C = s.channels();
  const float *q = qkv + t * 3 * C + h * s.HS, *k = qkv + C + h * s.HS, *v = k + C;
  std::vector<double> p;
  for (std::int64_t u = 0; u <= t; ++u) {
    double score = 0;
    for (std::int64_t i = 0; i < s.HS; ++i) score += static_cast<double>(q[i]) * k[u * 3 * C + i];
    p.push_back(s.scale * score);
  }
  const double max = *std::max_element(p.begin(), p.end());
  double sum = 0;
  for (double& score : p) sum += score = std::exp(score - max);
  for (std::int64_t i = 0; i < s.HS; ++i) {
    double o = 0;
    for (std::int64_t u = 0; u <= t; ++u) o += p[static_cast<std::size_t>(u)] / sum * v[u * 3 * C + i];
    out.push_back(o);
  }
  return max + std::log(sum);
}

// out and lse, with values in f64.
std::vector<CheckedOutput> attention_outputs(Backend& backend, const AttentionTensors& t,
                                             const AttentionSize& s) {
  const std::vector<float> qkv = floats_to_host(backend, t.qkv);
  CheckedOutput out{t.out, s.channels(), sampled_rows(s.B * s.T, 100)}, lse{t.lse, 1, {}};
  for (const std::int64_t row : out.rows) {
    const std::int64_t b = row / s.T, query = row % s.T;
    const float* sequence = qkv.data() + b * s.T * 3 * s.channels();
    for (std::int64_t h = 0; h < s.NH; ++h) {
      lse.rows.push_back((b * s.NH + h) * s.T + query);
      lse.values.push_back(attend(out.values, sequence, s, h, query));
    }
  }
  return {std::move(out), std::move(lse)};
}

template <class Real>
Ladder ladder_in(Backend& backend, const LadderOptions& options, const char* flash) {
  // With GPT-2's scale, 1/√HS, the scores of these small numbers would be almost equal.
  constexpr float kScale = 1;
  const AttentionSize s =
      options.large ? AttentionSize{8, 1024, 12, 64, kScale} : AttentionSize{1, 72, 2, 32, kScale};
  const std::int64_t C = s.channels();
  RandomInputs random(backend);
  std::vector<AttentionTensors> sets;
  std::vector<std::vector<CheckedOutput>> outputs;
  for (int i = 0; i < number_of_sets(options, static_cast<std::size_t>(s.B * s.T * 4 * C) * sizeof(Real));
       ++i) {
    sets.push_back({backend.allocate(kDTypeOf<Real>, {s.B, s.T, C}),
                    backend.allocate(DType::f32, {s.B, s.NH, s.T}),
                    random.make(kDTypeOf<Real>, {s.B, s.T, 3 * C})});
    outputs.push_back(attention_outputs(backend, sets.back(), s));
  }
  Ladder ladder =
      ladder_of(concat("attention (", s.B, ',', s.T, ',', s.NH, ',', s.HS, ')'), backend, std::move(outputs));
  const Tensor scores = backend.allocate(DType::f32, {s.B, s.NH, s.T, s.T});
  const auto version = [&](const char* name, void (*run)(StreamHandle, const AttentionCall<Real>&)) {
    ladder.versions.push_back({name, [sets, scores, s, run](StreamHandle stream, int set) {
                                 const AttentionTensors& t = sets[static_cast<std::size_t>(set)];
                                 run(stream, {t.out.data<Real>(), t.lse.data<float>(), scores.data<float>(),
                                              t.qkv.data<Real>(), s});
                               }});
  };
  version("v1 thread per query", attention_v1<Real>);
  version("v2 block per query", attention_v2<Real>);
  version("v3 tiles of keys", attention_v3<Real>);
  version(flash, attention_flash<Real>);
  const std::int64_t pairs = s.rows() * (s.T + 1) / 2;  // of a query and a key that it sees
  set_bound(ladder, 4.0 * static_cast<double>(pairs * s.HS), backend, options);
  return ladder;
}

}  // namespace

Ladder attention_ladder(Backend& backend, const LadderOptions& options) {
  if (options.precision != Precision::bf16) return ladder_in<float>(backend, options, "v4 flash");
  Ladder ladder = ladder_in<Bf16>(backend, options, "v5 tensor cores");
  ladder.tolerance = kTwoRoundings;
  return ladder;
}

}  // namespace stagegpt::gpu
