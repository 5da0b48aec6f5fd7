#include <algorithm>
#include <exception>
#include <utility>
#include <vector>

#include "stage2_cuda/cuda_backend.h"
#include "stage2_cuda/kernels/adamw.cuh"
#include "stage2_cuda/kernels/dropout.cuh"
#include "stage2_cuda/kernels/elementwise.cuh"
#include "stage2_cuda/kernels/matmul.cuh"
#include "stage2_cuda/kernels/squared_norm.cuh"
#include "stage2_cuda/stream_backend.h"
#include "stage2_cuda/wgmma.h"

namespace stagegpt::gpu {
namespace {

// A hand-written GEMM (kernels/matmul.cuh).
template <void (*matmul)(StreamHandle, const Product&)>
class HandGemm final : public Gemm {
 public:
  using Gemm::run;
  void run(const Product& product, StreamHandle stream) override { matmul(stream, product); }
};

// Throws UserError if the device cannot run what the user has asked for.
void need_wgmma(const char* asked) {
  if (const std::string why_not = why_no_wgmma(); !why_not.empty()) user_error(asked, ' ', why_not);
}

std::unique_ptr<Gemm> make_gemm(const CudaOptions& options) {
  switch (options.matmul) {
    case GpuMatmul::naive:
      return std::make_unique<HandGemm<matmul_naive>>();
    case GpuMatmul::tiled:
      return std::make_unique<HandGemm<matmul_tiled>>();
    case GpuMatmul::vectorised:
      return std::make_unique<HandGemm<matmul_vectorised>>();
    case GpuMatmul::wgmma:
      need_wgmma("--gpu-matmul: wgmma");
      return make_wgmma_gemm(make_library_gemm(options.precision, options.plans));
    case GpuMatmul::cublaslt:
      break;
  }
  return make_library_gemm(options.precision, options.plans);
}

bool uses_wgmma(GpuAttention attention) {
  if (attention == GpuAttention::flash_wgmma) need_wgmma("--gpu-attention: flash-wgmma");
  const bool may = attention == GpuAttention::flash || attention == GpuAttention::flash_wgmma;
  return may && why_no_wgmma().empty();
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
      is_7_5_(compute_capability() < 80),
      rows_by_vector_(uses_library(options.matmul)),
      graph_(options.graph),
      must_graph_(options.must_graph) {}

StreamBackend::~StreamBackend() {
  try {
    gpu::synchronize(stream_);
    ahead_.synchronize();
  } catch (const std::exception&) {
    // A destructor cannot throw; a caller that waits for results gets the error from synchronize().
  }
}

void StreamBackend::compute(const Fill& op) {
  const std::int64_t n = op.out.numel();
  switch (op.out.dtype()) {
    case DType::f32:
      return gpu::fill(stream_, floats(op.out), static_cast<float>(op.value), n);
    case DType::f64:
      return gpu::fill(stream_, op.out.data<double>(), op.value, n);
    case DType::i32:
      return gpu::fill(stream_, op.out.data<std::int32_t>(), static_cast<std::int32_t>(op.value), n);
    case DType::bf16:
      return gpu::fill(stream_, op.out.data<Bf16>(), Bf16{bf16_of_float(static_cast<float>(op.value))}, n);
    case DType::i8:
      check(false, "fill: i8");
  }
}

void StreamBackend::compute(const Add& op) {
  by_type(op.out, [&]<class T>() {
    gpu::add<T>(stream_, op.out.data<T>(), op.a.data<T>(), op.b.data<T>(), op.a.numel());
  });
}

void StreamBackend::compute(const Cast& op) {
  if (op.in.dtype() == DType::bf16)
    return gpu::cast(stream_, floats(op.out), op.in.data<Bf16>(), op.in.numel());
  gpu::cast(stream_, op.out.data<Bf16>(), floats(op.in), op.in.numel());
}

void StreamBackend::compute(const DropoutForward& op) {
  by_type(op.x, [&]<class T>() {
    gpu::dropout<T>(stream_, op.out.data<T>(), false, op.x.data<T>(), op.dropout, op.x.numel());
  });
}

void StreamBackend::compute(const DropoutBackward& op) {
  by_type(op.dout, [&]<class T>() {
    gpu::dropout<T>(stream_, op.dx.tensor.data<T>(), op.dx.accumulates(), op.dout.data<T>(), op.dropout,
                    op.dout.numel());
  });
}

void StreamBackend::compute(const SquaredNorm& op) {
  const bool to_be_added = op.out.numel() == 1;
  const Tensor sums = to_be_added ? allocate(DType::f64, {norm_blocks(op.x.numel())}) : op.out;
  gpu::squared_norms(stream_, sums.data<double>(), floats(op.x), op.x.numel());
  if (to_be_added) compute(AddNormBlocks{op.out, sums});
}

void StreamBackend::compute(const AddNormBlocks& op) {
  add_sums(stream_, op.out.data<double>(), op.blocks.data<double>(), op.blocks.numel());
}

void StreamBackend::compute(const Sum& op) {
  gpu::sum(stream_, op.out.data<double>(), op.x.data<double>(), op.x.numel());
}

void StreamBackend::compute(const AdamWUpdate& op) {
  const Tensor rates = op.step.rates.defined() ? op.step.rates : on_device(op.step.host_rates());
  gpu::adamw(stream_, floats(op.weights), optional<Bf16>(op.shadow), floats(op.m), floats(op.v),
             floats(op.grads), op.squared_norm.data<double>(), rates.data<double>(),
             table_on_device(op.ranges), static_cast<int>(op.ranges.size()), op.step, op.weights.numel());
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

std::unique_ptr<CudaBackend> make_cuda_backend(const CudaOptions& options) {
  return std::make_unique<StreamBackend>(options);
}

}  // namespace stagegpt::gpu
