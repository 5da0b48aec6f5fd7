// The flags of a stage that computes on a GPU, and the device that they select.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "common/app/command_line.h"
#include "common/app/stage.h"
#include "stage2_cuda/cuda_backend.h"
#include "stage2_cuda/plan_flags.h"
#include "stage2_cuda/platform.h"

namespace stagegpt::gpu {

class CudaFlags {
 public:
  void add(CommandLine& command_line);
  // Declares the flag of programs that do the same work again and again.
  void add_graph(CommandLine& command_line);

  // --gpu-graph auto becomes off, and description() says why; open() refuses on. The first reason counts.
  void rule_out_graphs(const std::string& why);
  // Opens the device of --device, or else device `otherwise`. `processes` share the cores of this node.
  // `timeline`: of --profile, or null. Throws UserError if the device cannot be used, or if flags contradict
  // each other.
  DeviceInfo open(Timeline* timeline, int otherwise = 0, int processes = 1);
  // Reads the file of --gpu-matmul-plans, after open(); see PlanFlags::open().
  void read_plans(RankGroup& group, const DeviceInfo& device);
  PlanFlags& plans() { return plan_flags_; }
  // Whether the library computes the products, or those that wgmma leaves to it.
  bool uses_library() const { return gpu::uses_library(matmul()); }
  CudaOptions options() const;
  const Platform& platform() const { return *platform_; }
  Platform& platform() { return *platform_; }
  // The free memory of the opened device, divided by the number of processes on it.
  TensorMemory memory(int processes = 1) const;
  // One line for the user.
  std::string description(const DeviceInfo& device) const;
  // Sets what a stage's machine has of these flags and this device alone, after read_plans(): threads, where
  // tensors are, precision, peak and the files that a run keeps.
  void set_up(Machine& machine, const DeviceInfo& device) const;

 private:
  // The peak FLOP/s in the device's data sheet, if it is known.
  std::optional<Peak> peak(const DeviceInfo& device) const;
  Precision precision() const;
  GpuMatmul matmul() const { return chosen<GpuMatmul>(kGpuMatmulNames, matmul_); }

  std::unique_ptr<Platform> platform_ = make_platform();
  std::optional<std::int64_t> device_;
  int opened_ = 0;
  PlanFlags plan_flags_;
  std::shared_ptr<GemmPlans> plans_;
  std::string precision_ = "f32", matmul_ = "cublaslt", attention_ = "flash";
  std::string graph_ = "off";  // of a program without the flag
  std::string why_no_graphs_;
};

}  // namespace stagegpt::gpu
