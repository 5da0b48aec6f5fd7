// The flags of a stage that computes on a GPU, and what they ask for.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "common/app/command_line.h"
#include "common/app/memory_check.h"
#include "common/measure/peak.h"
#include "stage2_cuda/cuda_backend.h"
#include "stage2_cuda/platform.h"

namespace stagegpt::gpu {

class CudaFlags {
 public:
  void add(CommandLine& command_line);

  // Opens the device that was asked for, or else number `otherwise`, on a node where so many processes share
  // the cores. Throws UserError where the device cannot be used, or flags do not go together.
  DeviceInfo open(int otherwise = 0, int processes = 1);
  CudaOptions options() const;
  int threads() const { return platform_->threads(); }
  const Platform& platform() const { return *platform_; }
  // What is left of the opened device, to so many processes.
  TensorMemory memory(int processes = 1) const;
  // One line for the reader, and what the data sheet says of such a device.
  std::string description(const DeviceInfo& device) const;
  std::optional<Peak> peak(const DeviceInfo& device) const;

 private:
  std::unique_ptr<Platform> platform_ = make_platform();
  std::optional<std::int64_t> device_;
  int opened_ = 0;
  std::string precision_ = "f32", matmul_ = "cublaslt";
};

}  // namespace stagegpt::gpu
