// The ladder of LayerNorm forward, kernels/layernorm_ladder.cuh.
#include <cmath>
#include <span>
#include <utility>
#include <vector>

#include "common/base/error.h"
#include "stage2_cuda/device_objects.h"
#include "stage2_cuda/kernels/layernorm_ladder.cuh"
#include "stage2_cuda/ladders/ladder_tensors.h"

namespace stagegpt::gpu {
namespace {

constexpr float kEps = 1e-5f;

struct LayernormTensors {
  Tensor out, mean, rstd, x, w, bias;  // (N,C), (N), (N), (N,C), (C), (C)
};

// out, mean and rstd, with values in f64.
std::vector<CheckedOutput> layernorm_outputs(Backend& backend, const LayernormTensors& t) {
  const std::int64_t N = t.x.shape()[0], C = t.x.shape()[1];
  const std::vector<float> x = to_host<float>(backend, t.x), w = to_host<float>(backend, t.w),
                           bias = to_host<float>(backend, t.bias);
  const std::vector<std::int64_t> rows = sampled_rows(N, 1000);
  CheckedOutput out{t.out, C, rows}, mean{t.mean, 1, rows}, rstd{t.rstd, 1, rows};
  for (const std::int64_t row : rows) {
    const std::span values(x.data() + row * C, static_cast<std::size_t>(C));
    double m = 0, variance = 0;
    for (const double v : values) m += v / static_cast<double>(C);
    for (const double v : values) variance += (v - m) * (v - m) / static_cast<double>(C);
    mean.values.push_back(m);
    rstd.values.push_back(1 / std::sqrt(variance + kEps));
    for (std::size_t c = 0; c < values.size(); ++c) {
      out.values.push_back((values[c] - m) * rstd.values.back() * w[c] + bias[c]);
    }
  }
  return {std::move(out), std::move(mean), std::move(rstd)};
}

// Rate of a device-to-device copy of `in` to `out`, in bytes per second.
double copy_rate(const Tensor& out, const Tensor& in) {
  const Stream stream;
  const std::size_t bytes = static_cast<std::size_t>(in.numel()) * sizeof(float);
  const auto copy = [&](StreamHandle s) { copy_on_device(out.data<float>(), in.data<float>(), bytes, s); };
  return 2.0 * static_cast<double>(bytes) / (median_microseconds(copy, stream) / 1e6);
}

}  // namespace

Ladder layernorm_ladder(Backend& backend, const LadderOptions& options) {
  const std::int64_t N = options.large ? 65536 : 64, C = options.large ? 768 : 192;
  RandomInputs random(backend);
  std::vector<LayernormTensors> sets;
  std::vector<std::vector<CheckedOutput>> outputs;
  const double moved = 8.0 * static_cast<double>(N * C);  // bytes: x is read, out is written
  for (int i = 0; i < number_of_sets(options, static_cast<std::size_t>(moved)); ++i) {
    sets.push_back({backend.allocate(DType::f32, {N, C}), backend.allocate(DType::f32, {N}),
                    backend.allocate(DType::f32, {N}), random.make(DType::f32, {N, C}),
                    random.make(DType::f32, {C}), random.make(DType::f32, {C})});
    outputs.push_back(layernorm_outputs(backend, sets.back()));
  }
  Ladder ladder = ladder_of(concat("layernorm (", N, ',', C, ')'), backend, std::move(outputs));
  const auto version = [&](const char* name, void (*run)(StreamHandle, const LayernormCall&)) {
    ladder.versions.push_back({name, [sets, N, C, run](StreamHandle stream, int set) {
                                 const LayernormTensors& t = sets[static_cast<std::size_t>(set)];
                                 run(stream, {t.out.data<float>(), t.mean.data<float>(), t.rstd.data<float>(),
                                              t.x.data<float>(), t.w.data<float>(), t.bias.data<float>(),
                                              kEps, N, C});
                               }});
  };
  version("v1 thread per row", layernorm_v1);
  version("v2 block per row", layernorm_v2);
  version("v3 warp per row", layernorm_warps<1>);
  version("v4 four floats", layernorm_warps<4>);
  ladder.work = moved;
  ladder.unit = "GB/s";
  ladder.bound = copy_rate(sets[0].out, sets[0].x);
  ladder.bound_name = "a copy on the device";
  return ladder;
}

}  // namespace stagegpt::gpu
