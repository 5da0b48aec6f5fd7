// Checks the GPUs that nvidia-smi lists against the architectures of the build, and NCCL, which stage 3 uses.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tools/doctor/build_facts.h"
#include "tools/doctor/finding.h"

namespace stagegpt {

// A version such as 12.4.
struct CudaVersion {
  int major_number = 0, minor_number = 0;
  auto operator<=>(const CudaVersion&) const = default;
};
// Parses "12.4" or "12.4.131".
std::optional<CudaVersion> parse_cuda_version(std::string_view text);

struct Gpu {
  std::string name, driver;
  int capability = 0;  // 90 for 9.0
  double gibibytes = 0;
};

struct GpuFacts {
  bool has_nvidia_smi = false;
  std::string failure = {};  // error message of nvidia-smi
  std::vector<Gpu> gpus = {};
  std::optional<CudaVersion> driver_supports = {};  // the newest CUDA version that the driver supports
};

// Parses the output of `nvidia-smi --query-gpu=name,driver_version,compute_cap,memory.total
// --format=csv,noheader,nounits`. Other lines are ignored.
std::vector<Gpu> parse_gpus(std::string_view csv);
// Finds "CUDA Version: 12.4" in the output of `nvidia-smi`.
std::optional<CudaVersion> parse_driver_support(std::string_view output);
// How code compiled for these architectures runs on a GPU: as machine code, or as PTX, which the driver
// compiles when it is loaded; or not at all.
enum class Coverage : std::uint8_t { machine_code, compiled_when_loaded, none };
Coverage coverage(const std::vector<std::string>& architectures, int capability);

GpuFacts ask_nvidia_smi();
Findings judge_gpus(const GpuFacts& facts, const BuildFacts& build);

// NCCL's version number as text: 21805 is 2.18.5; before 2.9 the format was different: 2804 is 2.8.4.
std::string nccl_version_text(int number);

// The library's version number; empty if it cannot be loaded.
std::optional<int> ask_nccl();
Finding judge_nccl(std::optional<int> version, std::size_t gpus);

}  // namespace stagegpt
