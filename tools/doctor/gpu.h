// GPUs, as nvidia-smi tells of them, against what the programs were compiled for.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tools/doctor/build_facts.h"
#include "tools/doctor/finding.h"

namespace stagegpt {

// "12.4", in order.
struct CudaVersion {
  int major_number = 0, minor_number = 0;
  auto operator<=>(const CudaVersion&) const = default;
};
// Of "12.4" or "12.4.131".
std::optional<CudaVersion> parse_cuda_version(std::string_view text);

struct Gpu {
  std::string name, driver;
  int capability = 0;  // 90 for 9.0
  double gibibytes = 0;
};

struct GpuFacts {
  bool has_nvidia_smi = false;
  std::string failure = {};  // what nvidia-smi complains of
  std::vector<Gpu> gpus = {};
  std::optional<CudaVersion> driver_supports = {};  // the newest CUDA that the driver knows
};

// What `nvidia-smi --query-gpu=name,driver_version,compute_cap,memory.total --format=csv,noheader,nounits`
// prints. Lines that are none are left out.
std::vector<Gpu> parse_gpus(std::string_view csv);
// "CUDA Version: 12.4" in what `nvidia-smi` prints.
std::optional<CudaVersion> parse_driver_support(std::string_view output);
// Whether code compiled for these architectures runs on a GPU: its own machine code, or code that the driver
// compiles when it is loaded.
enum class Coverage : std::uint8_t { machine_code, compiled_when_loaded, none };
Coverage coverage(const std::vector<std::string>& architectures, int capability);

GpuFacts ask_nvidia_smi();
Findings judge_gpus(const GpuFacts& facts, const BuildFacts& build);

}  // namespace stagegpt
