#include "stage2_cuda/cuda_flags.h"

#include "common/base/error.h"
#include "stage2_cuda/peak_table.h"

namespace stagegpt::gpu {
namespace {

const std::vector<std::string> kPrecisions = {"f32", "tf32", "bf16"};  // in the order of Precision

}  // namespace

void CudaFlags::add(CommandLine& command_line) {
  command_line.integer("--device", device_, 0, 1023,
                       "number of the GPU (default: 0; with several ranks, one each)");
  command_line.choice(
      "--precision", precision_, kPrecisions,
      "f32; tf32: factors of matrix products and of attention rounded to 10 bits; bf16: mixed precision, "
      "activations and weights in bf16, sums in f32");
  command_line.choice(
      "--gpu-matmul", matmul_, kGpuMatmulNames,
      "implementation of matrix multiplication (GEMM): the first three in f32, wgmma in bf16 on compute "
      "capability 9.0");
  plan_flags_.add(command_line);
  command_line.choice(
      "--gpu-attention", attention_, kGpuAttentionNames,
      "implementation of attention: materialised: with its scores in memory; flash: without, in "
      "bf16 with wgmma where it can (compute capability 9.0), otherwise as flash-mma, with "
      "mma.sync; flash-wgmma: with wgmma or not at all");
  platform_->add_flags(command_line);
}

void CudaFlags::add_graph(CommandLine& command_line) {
  graph_ = "auto";
  command_line.choice(
      "--gpu-graph", graph_, {"off", "auto", "on"},
      "launch each training step, and each token of a text, as CUDA graphs, recorded once: the same bits, "
      "fewer launches; auto: where they can be recorded; on: refuse to run where they cannot");
}

DeviceInfo CudaFlags::open(Timeline* timeline, int otherwise, int processes) {
  if (matmul_ == "wgmma" && precision_ != "bf16")
    user_error("--gpu-matmul: wgmma needs --precision bf16, got \"", precision_, '"');
  if (precision_ != "f32" && !uses_library()) {
    user_error("--precision: ", precision_, " needs --gpu-matmul cublaslt",
               precision_ == "bf16" ? " or wgmma" : "", ", got \"", matmul_, "\", which computes in f32");
  }
  if (precision_ == "bf16" && attention_ == "materialised")
    user_error("--precision: bf16 needs --gpu-attention flash, got \"", attention_, "\"");
  if (precision_ != "bf16" && attention_ == "flash-wgmma")
    user_error("--gpu-attention: flash-wgmma needs --precision bf16, got \"", precision_, "\"");
  if (plan_flags_.given() && !uses_library())
    user_error(PlanFlags::kFlag, ": needs --gpu-matmul cublaslt, got \"", matmul_, "\"");
  if (timeline != nullptr) rule_out_graphs("--profile times each op");
  if (platform_->counts()) rule_out_graphs("--emulator-report counts each op");
  if (!CachingAllocator::keeps_blocks())
    rule_out_graphs("STAGEGPT_ALLOCATOR=direct keeps no memory for them");
  if (graph_ == "on" && !why_no_graphs_.empty())
    user_error("--gpu-graph: on is not possible, because ", why_no_graphs_);
  if (timeline != nullptr) timeline->show(platform_->live_ranges());
  platform_->start(processes);
  opened_ = device_ ? static_cast<int>(*device_) : otherwise;
  const DeviceInfo device = open_device(opened_);
  if (device.major < 8 && precision_ != "f32")
    user_error("--precision: ", precision_, " needs compute capability 8.0, ", device.name, " has ",
               device.major, '.', device.minor, "; use f32");
  return device;
}

void CudaFlags::rule_out_graphs(const std::string& why) {
  if (why_no_graphs_.empty()) why_no_graphs_ = why;
}

void CudaFlags::read_plans(RankGroup& group, const DeviceInfo& device) {
  plans_ = plan_flags_.open(group, {device.name, platform_->library_version()});
}

CudaOptions CudaFlags::options() const {
  return {.matmul = matmul(),
          .attention = chosen<GpuAttention>(kGpuAttentionNames, attention_),
          .precision = precision(),
          .plans = plans_,
          .graph = graph_ != "off" && why_no_graphs_.empty(),
          .must_graph = graph_ == "on"};
}

Precision CudaFlags::precision() const { return chosen<Precision>(kPrecisions, precision_); }

TensorMemory CudaFlags::memory(int processes) const {
  const bool emulated = !platform_->is_gpu();  // each process emulates its own device
  return {.device_bytes = memory_info().free / static_cast<std::size_t>(emulated ? 1 : processes),
          .on_host = emulated};
}

std::string CudaFlags::description(const DeviceInfo& device) const {
  return concat(
      platform_->description(opened_, device), "; ", precision_, ", ", matmul_ == "wgmma" ? "wgmma and " : "",
      uses_library() ? platform_->library() : matmul_ + " matmul",
      graph_ == "off" || why_no_graphs_.empty() ? "" : concat("; no CUDA graphs, because ", why_no_graphs_));
}

void CudaFlags::set_up(Machine& machine, const DeviceInfo& device) const {
  machine.threads = platform_->threads();
  machine.on_device = platform_->is_gpu();
  machine.tf32 = precision() == Precision::tf32;
  machine.activations = precision() == Precision::bf16 ? DType::bf16 : DType::f32;
  machine.peak = peak(device);
  machine.kept_files = plan_flags_.kept_files();
}

std::optional<Peak> CudaFlags::peak(const DeviceInfo& device) const {
  const std::optional<double> flops = data_sheet_flops(device.name, precision());
  if (!flops) return std::nullopt;
  const char* const name = precision_ == "tf32" ? "TF32" : precision_ == "bf16" ? "BF16" : "FP32";
  return Peak{*flops, concat(device.name, ", ", name, ", data sheet")};
}

}  // namespace stagegpt::gpu
