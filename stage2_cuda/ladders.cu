#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

#include "common/base/error.h"
#include "common/measure/random_tensor.h"
#include "stage2_cuda/device_objects.h"
#include "stage2_cuda/kernels/layernorm_ladder.cuh"
#include "stage2_cuda/kernels/matmul.cuh"
#include "stage2_cuda/ladders.h"

namespace stagegpt::gpu {
namespace {

constexpr double kTolerance = 1e-5, kTf32Tolerance = 2e-3;

// An output, and the expected values of some of its rows.
struct Reference {
  Tensor out;  // (rows, columns), written by a kernel
  std::int64_t columns = 0;
  std::vector<std::int64_t> rows;
  std::vector<double> values;  // (rows.size(), columns)
};

double relative_error(Backend& backend, const Reference& reference) {
  const std::vector<float> values = to_host<float>(backend, reference.out);
  double squares = 0, norm = 0;
  std::size_t i = 0;
  for (const std::int64_t row : reference.rows) {
    for (std::int64_t column = 0; column < reference.columns; ++column, ++i) {
      const double right = reference.values[i];
      const double wrong = values[static_cast<std::size_t>(row * reference.columns + column)] - right;
      squares += wrong * wrong;
      norm += right * right;
    }
  }
  return std::sqrt(squares / norm);
}

// `references` has one entry per output.
Ladder ladder_of(std::string name, Backend& backend, std::vector<Reference> references) {
  const auto outputs = std::make_shared<const std::vector<Reference>>(std::move(references));
  Ladder ladder;
  ladder.name = std::move(name);
  ladder.clear = [&backend, outputs] {
    for (const Reference& output : *outputs) {
      backend.fill(output.out, std::numeric_limits<double>::quiet_NaN());
    }
    backend.synchronize();
  };
  ladder.error = [&backend, outputs] {
    double greatest = 0;
    for (const Reference& output : *outputs) {
      const double error = relative_error(backend, output);
      if (std::isnan(error)) return error;  // part of the output was not written
      greatest = std::max(greatest, error);
    }
    return greatest;
  };
  ladder.tolerance = kTolerance;
  return ladder;
}

// ---- LayerNorm ----

struct LayernormTensors {
  Tensor out, mean, rstd, x, w, bias;
};

// The references of out, mean and rstd, computed in f64.
std::vector<Reference> layernorm_references(Backend& backend, const LayernormTensors& t, double eps) {
  const std::int64_t N = t.x.shape()[0], C = t.x.shape()[1];
  const std::vector<float> x = to_host<float>(backend, t.x), w = to_host<float>(backend, t.w),
                           bias = to_host<float>(backend, t.bias);
  Reference out{t.out, C, {}, {}}, mean{t.mean, 1, {}, {}}, rstd{t.rstd, 1, {}, {}};
  for (std::int64_t row = 0; row < N; ++row) {
    for (Reference* reference : {&out, &mean, &rstd}) reference->rows.push_back(row);
    const std::span values(x.data() + row * C, static_cast<std::size_t>(C));
    double m = 0, variance = 0;
    for (const double v : values) m += v / static_cast<double>(C);
    for (const double v : values) variance += (v - m) * (v - m) / static_cast<double>(C);
    mean.values.push_back(m);
    rstd.values.push_back(1 / std::sqrt(variance + eps));
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

Ladder layernorm_ladder(Backend& backend, const LadderOptions& options) {
  constexpr float kEps = 1e-5f;
  const std::int64_t N = options.large ? 65536 : 64, C = options.large ? 768 : 192;
  const auto vector = [&](std::int64_t n) { return backend.allocate(DType::f32, {n}); };
  const LayernormTensors t{backend.allocate(DType::f32, {N, C}),
                           vector(N),
                           vector(N),
                           random_tensor(backend, {N, C}),
                           random_tensor(backend, {C}),
                           random_tensor(backend, {C})};
  Ladder ladder =
      ladder_of(concat("layernorm (", N, ',', C, ')'), backend, layernorm_references(backend, t, kEps));
  const auto version = [&](const char* name, void (*run)(StreamHandle, const LayernormCall&)) {
    ladder.versions.push_back({name, [t, N, C, run](StreamHandle stream) {
                                 run(stream, {t.out.data<float>(), t.mean.data<float>(), t.rstd.data<float>(),
                                              t.x.data<float>(), t.w.data<float>(), t.bias.data<float>(),
                                              kEps, N, C});
                               }});
  };
  version("v1 thread per row", layernorm_v1);
  version("v2 block per row", layernorm_v2);
  version("v3 warp per row", layernorm_warps<1>);
  version("v4 four floats", layernorm_warps<4>);
  ladder.work = 8.0 * static_cast<double>(N * C);
  ladder.unit = "GB/s";
  ladder.bound = copy_rate(t.out, t.x);
  ladder.bound_name = "a copy on the device";
  return ladder;
}

// ---- GEMM: the first one of the MLP, out = x · w + bias ----

Reference matmul_reference(Backend& backend, const Tensor& out, const Tensor& x, const Tensor& w,
                           const Tensor& bias) {
  const std::int64_t M = x.shape()[0], K = x.shape()[1], N = w.shape()[1];
  const std::vector<float> a = to_host<float>(backend, x), b = to_host<float>(backend, w),
                           offset = to_host<float>(backend, bias);
  Reference reference{out, N, {}, {}};
  const std::int64_t step = std::max<std::int64_t>(1, M / 37);  // computing all rows would take a minute
  for (std::int64_t m = 0; m < M; m += step) {
    reference.rows.push_back(m);
    std::vector<double> row(offset.begin(), offset.end());
    for (std::int64_t k = 0; k < K; ++k) {
      const double factor = a[static_cast<std::size_t>(m * K + k)];
      for (std::size_t n = 0; n < row.size(); ++n) row[n] += factor * b[static_cast<std::size_t>(k * N) + n];
    }
    reference.values.insert(reference.values.end(), row.begin(), row.end());
  }
  return reference;
}

Ladder matmul_ladder(Backend& backend, const LadderOptions& options) {
  const std::int64_t M = options.large ? 8192 : 72, K = options.large ? 768 : 48, N = 4 * K;
  const Tensor out = backend.allocate(DType::f32, {M, N});
  const Tensor x = random_tensor(backend, {M, K}), w = random_tensor(backend, {K, N}),
               bias = random_tensor(backend, {N});
  Ladder ladder = ladder_of(concat("matmul (", M, ',', K, ") · (", K, ',', N, ')'), backend,
                            {matmul_reference(backend, out, x, w, bias)});
  const auto version = [&](const char* name, const std::function<void(StreamHandle, const Product&)>& run) {
    ladder.versions.push_back({name, [=](StreamHandle stream) {
                                 Product product;
                                 product.c = out.data<float>(), product.ldc = N;
                                 product.a = {x.data<float>(), K}, product.b = {w.data<float>(), N};
                                 product.m = M, product.n = N, product.k = K;
                                 product.bias = bias.data<float>();
                                 run(stream, product);
                               }});
  };
  version("v1 naive", matmul_naive);
  version("v2 tiled", matmul_tiled);
  version("v3 vectorised", matmul_vectorised);
  const std::shared_ptr<Gemm> library = make_library_gemm(options.precision);
  version("cublaslt",
          [library](StreamHandle stream, const Product& product) { library->run(product, stream); });
  if (options.precision == Precision::tf32) ladder.tolerance = kTf32Tolerance;
  const Peak peak = options.peak ? *options.peak : measure_peak(backend, kThoroughGemm);
  ladder.work = 2.0 * static_cast<double>(M * N * K);
  ladder.unit = "GFLOP/s";
  ladder.bound = peak.flops_per_second;
  ladder.bound_name = peak.name;
  return ladder;
}

}  // namespace

Ladder make_ladder(std::string_view name, Backend& backend, const LadderOptions& options) {
  Ladder ladder = name == "layernorm" ? layernorm_ladder(backend, options) : matmul_ladder(backend, options);
  backend.synchronize();  // completes the ladder's inputs
  return ladder;
}

}  // namespace stagegpt::gpu
