// The ladder of GEMM, kernels/matmul.cuh in f32, kernels/matmul_mma.cuh and matmul_wgmma.cuh in bf16: the
// first product of the MLP, out = x · w + bias. The last version is the library's product of the same
// factors.
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "common/base/error.h"
#include "stage2_cuda/kernels/matmul.cuh"
#include "stage2_cuda/kernels/matmul_mma.cuh"
#include "stage2_cuda/ladders/ladder_tensors.h"
#include "stage2_cuda/wgmma.h"

namespace stagegpt::gpu {
namespace {

struct MatmulTensors {
  Tensor out, x, w, bias;  // (M,N), (M,K), (K,N), (N)
};

// out, with values in f64.
CheckedOutput matmul_output(Backend& backend, const MatmulTensors& t) {
  const std::int64_t M = t.x.shape()[0], K = t.x.shape()[1], N = t.w.shape()[1];
  const std::vector<float> a = floats_to_host(backend, t.x), b = floats_to_host(backend, t.w),
                           offset = floats_to_host(backend, t.bias);
  CheckedOutput output{t.out, N, sampled_rows(M, 37)};
  for (const std::int64_t m : output.rows) {
    std::vector<double> row(offset.begin(), offset.end());
    for (std::int64_t k = 0; k < K; ++k) {
      const double factor = a[static_cast<std::size_t>(m * K + k)];
      for (std::size_t n = 0; n < row.size(); ++n) row[n] += factor * b[static_cast<std::size_t>(k * N) + n];
    }
    output.values.insert(output.values.end(), row.begin(), row.end());
  }
  return output;
}

template <class Real>
ProductOf<Real, Real> product_of(const MatmulTensors& t) {
  const std::int64_t M = t.x.shape()[0], K = t.x.shape()[1], N = t.w.shape()[1];
  ProductOf<Real, Real> product;
  product.c = t.out.data<Real>(), product.ldc = N;
  product.a = {t.x.data<Real>(), K}, product.b = {t.w.data<Real>(), N};
  product.m = M, product.n = N, product.k = K;
  product.bias = t.bias.data<Real>();
  return product;
}

template <class Real>
struct MatmulVersion {
  const char* name;
  std::function<void(StreamHandle, const ProductOf<Real, Real>&)> run;
};

// A ladder of these versions and the library.
template <class Real>
Ladder ladder_with(Backend& backend, const LadderOptions& options,
                   std::vector<MatmulVersion<Real>> versions) {
  const std::int64_t M = options.large ? 8192 : 72, K = options.large ? 768 : 48, N = 4 * K;
  const DType dtype = kDTypeOf<Real>;
  const auto bytes = static_cast<std::size_t>(M * K + K * N + M * N) * sizeof(Real);
  RandomInputs random(backend);
  std::vector<MatmulTensors> sets;
  std::vector<std::vector<CheckedOutput>> outputs;
  for (int i = 0; i < number_of_sets(options, bytes); ++i) {
    sets.push_back({backend.allocate(dtype, {M, N}), random.make(dtype, {M, K}), random.make(dtype, {K, N}),
                    random.make(dtype, {N})});
    outputs.push_back({matmul_output(backend, sets.back())});
  }
  Ladder ladder =
      ladder_of(concat("matmul (", M, ',', K, ") · (", K, ',', N, ')'), backend, std::move(outputs));
  const std::shared_ptr<Gemm> library = make_library_gemm(options.precision);
  versions.push_back(
      {"cublaslt", [library](StreamHandle stream, const auto& p) { library->run(p, stream); }});
  for (const auto& [name, run] : versions) {
    ladder.versions.push_back({name, [sets, run](StreamHandle stream, int set) {
                                 run(stream, product_of<Real>(sets[static_cast<std::size_t>(set)]));
                               }});
  }
  set_bound(ladder, 2.0 * static_cast<double>(M * N * K), backend, options);
  return ladder;
}

}  // namespace

Ladder matmul_ladder(Backend& backend, const LadderOptions& options) {
  if (options.precision == Precision::bf16) {
    std::vector<MatmulVersion<Bf16>> versions = {{"v4 tensor cores", matmul_mma<MmaTensorCores>},
                                                 {"v5 larger tiles", matmul_mma<MmaLargerTiles>},
                                                 {"v6 two buffers", matmul_mma<MmaTwoBuffers>}};
    if (why_no_wgmma().empty()) {
      versions.push_back({"v7 wgmma", matmul_v7});
      versions.push_back({"v8 ring of tiles", matmul_v8});
      versions.push_back({"v9 persistent", matmul_v9});
    }
    Ladder ladder = ladder_with<Bf16>(backend, options, std::move(versions));
    ladder.tolerance = kBf16Tolerance;
    return ladder;
  }
  Ladder ladder = ladder_with<float>(
      backend, options,
      {{"v1 naive", matmul_naive}, {"v2 tiled", matmul_tiled}, {"v3 vectorised", matmul_vectorised}});
  if (options.precision == Precision::tf32) ladder.tolerance = kTf32Tolerance;
  return ladder;
}

}  // namespace stagegpt::gpu
