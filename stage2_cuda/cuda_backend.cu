#include <algorithm>
#include <array>
#include <exception>
#include <utility>
#include <vector>

#include "stage2_cuda/attention_wgmma.h"
#include "stage2_cuda/cuda_backend.h"
#include "stage2_cuda/kernels/adamw.cuh"
#include "stage2_cuda/kernels/dropout.cuh"
#include "stage2_cuda/kernels/elementwise.cuh"
#include "stage2_cuda/kernels/matmul.cuh"
#include "stage2_cuda/kernels/squared_norm.cuh"
#include "stage2_cuda/stream_backend.h"

namespace stagegpt::gpu {
namespace {

// A hand-written GEMM (kernels/matmul.cuh).
template <void (*matmul)(StreamHandle, const Product&)>
class HandGemm final : public Gemm {
 public:
  using Gemm::run;
  void run(const Product& product, StreamHandle stream) override { matmul(stream, product); }
};

std::unique_ptr<Gemm> make_gemm(const CudaOptions& options) {
  switch (options.matmul) {
    case GpuMatmul::naive:
      return std::make_unique<HandGemm<matmul_naive>>();
    case GpuMatmul::tiled:
      return std::make_unique<HandGemm<matmul_tiled>>();
    case GpuMatmul::vectorised:
      return std::make_unique<HandGemm<matmul_vectorised>>();
    case GpuMatmul::cublaslt:
      break;
  }
  return make_library_gemm(options.precision, options.plans);
}

constexpr std::array<std::pair<GpuMatmul, std::string_view>, 4> kMatmulNames = {{
    {GpuMatmul::naive, "naive"},
    {GpuMatmul::tiled, "tiled"},
    {GpuMatmul::vectorised, "vectorised"},
    {GpuMatmul::cublaslt, "cublaslt"},
}};

constexpr std::array<std::pair<GpuAttention, std::string_view>, 4> kAttentionNames = {{
    {GpuAttention::materialised, "materialised"},
    {GpuAttention::flash, "flash"},
    {GpuAttention::flash_mma, "flash-mma"},
    {GpuAttention::flash_wgmma, "flash-wgmma"},
}};

template <class Named>
std::optional<typename Named::value_type::first_type> named(const Named& all, std::string_view name) {
  for (const auto& [value, known] : all) {
    if (known == name) return value;
  }
  return std::nullopt;
}

bool uses_wgmma(GpuAttention attention) {
  if (attention != GpuAttention::flash && attention != GpuAttention::flash_wgmma) return false;
  const std::string why_not = why_no_wgmma();
  if (attention == GpuAttention::flash_wgmma && !why_not.empty())
    user_error("--gpu-attention: flash-wgmma ", why_not);
  return why_not.empty();
}

}  // namespace

StreamBackend::StreamBackend(const CudaOptions& options)
    : CudaBackend(std::make_unique<DeviceMemorySource>()),
      staging_(stream_),
      ahead_(stream_),
      gemm_(make_gemm(options)),
      attention_(options.attention),
      precision_(options.precision),
      wgmma_(uses_wgmma(options.attention)),
      graph_(options.graph) {
  if (graph_ && !allocator().keeps_blocks())
    user_error("--gpu-graph: on cannot be combined with STAGEGPT_ALLOCATOR=direct");
}

StreamBackend::~StreamBackend() {
  try {
    gpu::synchronize(stream_);
    ahead_.synchronize();
  } catch (const std::exception&) {
    // A destructor cannot throw; a caller that waits for results gets the error from synchronize().
  }
}

void StreamBackend::do_fill(const Tensor& out, double value) {
  const std::int64_t n = out.numel();
  switch (out.dtype()) {
    case DType::f32:
      return gpu::fill(stream_, floats(out), static_cast<float>(value), n);
    case DType::f64:
      return gpu::fill(stream_, out.data<double>(), value, n);
    case DType::i32:
      return gpu::fill(stream_, out.data<std::int32_t>(), static_cast<std::int32_t>(value), n);
    case DType::bf16:
      return gpu::fill(stream_, out.data<Bf16>(), Bf16{bf16_of_float(static_cast<float>(value))}, n);
    case DType::i8:
      check(false, "fill: i8");
  }
}

void StreamBackend::do_add(const Tensor& out, const Tensor& a, const Tensor& b) {
  by_type(out, [&]<class T>() { gpu::add<T>(stream_, out.data<T>(), a.data<T>(), b.data<T>(), a.numel()); });
}

void StreamBackend::do_cast(const Tensor& out, const Tensor& in) {
  if (in.dtype() == DType::bf16) return gpu::cast(stream_, floats(out), in.data<Bf16>(), in.numel());
  gpu::cast(stream_, out.data<Bf16>(), floats(in), in.numel());
}

void StreamBackend::do_dropout_forward(const Tensor& out, const Tensor& x, const Dropout& dropout) {
  by_type(
      x, [&]<class T>() { gpu::dropout<T>(stream_, out.data<T>(), false, x.data<T>(), dropout, x.numel()); });
}

void StreamBackend::do_dropout_backward(const Grad& dx, const Tensor& dout, const Dropout& dropout) {
  by_type(dout, [&]<class T>() {
    gpu::dropout<T>(stream_, dx.tensor.data<T>(), dx.accumulates(), dout.data<T>(), dropout, dout.numel());
  });
}

void StreamBackend::do_squared_norm(const Tensor& out, const Tensor& x) {
  const bool to_be_added = out.numel() == 1;
  const Tensor sums = to_be_added ? allocate(DType::f64, {norm_blocks(x.numel())}) : out;
  gpu::squared_norms(stream_, sums.data<double>(), floats(x), x.numel());
  if (to_be_added) do_add_norm_blocks(out, sums);
}

void StreamBackend::do_add_norm_blocks(const Tensor& out, const Tensor& sums) {
  add_sums(stream_, out.data<double>(), sums.data<double>(), sums.numel());
}

void StreamBackend::do_sum(const Tensor& out, const Tensor& x) {
  gpu::sum(stream_, out.data<double>(), x.data<double>(), x.numel());
}

void StreamBackend::do_adamw(const Tensor& weights, const Tensor& shadow, const Tensor& m, const Tensor& v,
                             const Tensor& grads, const Tensor& squared_norm,
                             std::span<const DecayRange> ranges, const AdamWStep& step) {
  const Tensor rates = step.rates.defined() ? step.rates : on_device(step.host_rates());
  gpu::adamw(stream_, floats(weights), optional<Bf16>(shadow), floats(m), floats(v), floats(grads),
             squared_norm.data<double>(), rates.data<double>(), table_on_device(ranges),
             static_cast<int>(ranges.size()), step, weights.numel());
}

Tensor StreamBackend::on_device(const AdamWRates& rates) {
  const Tensor copy = allocate(DType::f64, {sizeof(AdamWRates) / sizeof(double)});
  staging_.copy_to_device(copy.raw(), &rates, sizeof(AdamWRates));
  return copy;
}

const DecayRange* StreamBackend::table_on_device(std::span<const DecayRange> ranges) {
  for (const auto& [known, copy] : tables_) {
    if (std::ranges::equal(known, ranges)) return static_cast<const DecayRange*>(copy.get());
  }
  DeviceBlock copy = device_block(ranges.size_bytes());
  staging_.copy_to_device(copy.get(), ranges.data(), ranges.size_bytes());
  tables_.push_back({{ranges.begin(), ranges.end()}, std::move(copy)});
  return static_cast<const DecayRange*>(tables_.back().copy.get());
}

std::int64_t StreamBackend::norm_block() const { return kNormPart; }

std::optional<GpuMatmul> gpu_matmul_named(std::string_view name) { return named(kMatmulNames, name); }
std::optional<GpuAttention> gpu_attention_named(std::string_view name) {
  return named(kAttentionNames, name);
}

std::unique_ptr<CudaBackend> make_cuda_backend(const CudaOptions& options) {
  return std::make_unique<StreamBackend>(options);
}

}  // namespace stagegpt::gpu
