#include "tools/doctor/gpu.h"

#include <dlfcn.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <sstream>

#include "common/base/error.h"
#include "common/system/subprocess.h"

namespace stagegpt {
namespace {

using Mark = Finding::Mark;

constexpr double kSeconds = 20;

std::string to_text(CudaVersion version) { return concat(version.major_number, '.', version.minor_number); }
std::string capability_text(int capability) { return concat(capability / 10, '.', capability % 10); }

// The number in "80-real", 80; 0 if there is none.
int number_of(std::string_view architecture) {
  int number = 0;
  std::from_chars(architecture.data(), architecture.data() + architecture.size(), number);
  return number;
}

SubprocessResult run(std::vector<std::string> argv) {
  return run_subprocess({.argv = std::move(argv), .timeout_seconds = kSeconds});
}

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

Finding judge_presence(const GpuFacts& facts) {
  constexpr const char* kEmulator =
      "without a GPU, stages 2 and 3 run on the emulator: stage2_train_emulated";
  if (!facts.has_nvidia_smi) return {"GPU", Mark::note, "none: nvidia-smi not found", kEmulator};
  if (!facts.failure.empty()) {
    return {"GPU", Mark::note, "not usable: " + facts.failure,
            "if this machine has one: install and load its driver; start containers with --gpus all"};
  }
  if (facts.gpus.empty()) return {"GPU", Mark::note, "none: nvidia-smi lists no device", kEmulator};
  const Gpu& first = facts.gpus.front();
  char memory[32];
  std::snprintf(memory, sizeof memory, "%.0f GiB", first.gibibytes);
  return {"GPU", Mark::ok,
          concat(facts.gpus.size() > 1 ? concat(facts.gpus.size(), " GPUs, the first: ") : "", first.name,
                 ", ", memory, ", compute capability ", capability_text(first.capability))};
}

Finding judge_driver(const GpuFacts& facts, const BuildFacts& build) {
  const std::string& driver = facts.gpus.front().driver;
  const auto toolkit = parse_cuda_version(build.nvcc);
  if (!facts.driver_supports) return {"driver", Mark::ok, driver};
  const CudaVersion known = *facts.driver_supports;
  const std::string found = concat(driver, ", for CUDA up to ", to_text(known),
                                   toolkit ? concat("; built with ", to_text(*toolkit)) : "");
  if (toolkit && known.major_number < toolkit->major_number) {
    return {"driver", Mark::problem, found,
            concat("too old for these programs: install a driver for CUDA ", toolkit->major_number,
                   ", or build with CUDA ", known.major_number)};
  }
  if (toolkit && known < *toolkit) {
    return {"driver", Mark::note, found,
            "it runs compiled kernels, but cannot compile PTX of this toolkit: update the driver if a kernel "
            "fails"};
  }
  return {"driver", Mark::ok, found};
}

Finding judge_architecture(const Gpu& gpu, const BuildFacts& build) {
  std::string list;
  for (const std::string& architecture : build.architectures)
    list += (list.empty() ? "" : ", ") + architecture;
  const std::string found =
      concat("compiled for ", list, "; ", gpu.name, " has ", capability_text(gpu.capability));
  switch (coverage(build.architectures, gpu.capability)) {
    case Coverage::machine_code:
      return {"architecture", Mark::ok, found};
    case Coverage::compiled_when_loaded:
      return {"architecture", Mark::note, found,
              concat("the driver compiles kernels at the first start, which is slow; to avoid it: "
                     "-DCMAKE_CUDA_ARCHITECTURES=",
                     gpu.capability)};
    case Coverage::none:
      break;
  }
  return {"architecture", Mark::problem, found,
          gpu.capability < 75
              ? "stage 2 needs a GPU of compute capability 7.5 or newer"
              : concat("build for it: cmake --preset release -DCMAKE_CUDA_ARCHITECTURES=", gpu.capability,
                       "-real")};
}

}  // namespace

std::optional<CudaVersion> parse_cuda_version(std::string_view text) {
  CudaVersion version;
  const char* end = text.data() + text.size();
  const auto major_end = std::from_chars(text.data(), end, version.major_number);
  if (major_end.ec != std::errc() || major_end.ptr == end || *major_end.ptr != '.') return std::nullopt;
  if (std::from_chars(major_end.ptr + 1, end, version.minor_number).ec != std::errc()) return std::nullopt;
  return version;
}

std::vector<Gpu> parse_gpus(std::string_view csv) {
  std::vector<Gpu> gpus;
  std::istringstream lines{std::string(csv)};
  for (std::string line; std::getline(lines, line);) {
    std::istringstream fields(line);
    Gpu gpu;
    std::string capability, memory;
    std::getline(fields, gpu.name, ',');
    std::getline(fields >> std::ws, gpu.driver, ',');
    std::getline(fields >> std::ws, capability, ',');
    std::getline(fields >> std::ws, memory);
    const auto version = parse_cuda_version(capability);
    if (!version) continue;
    gpu.capability = 10 * version->major_number + version->minor_number;
    gpu.gibibytes = number_of(memory) / 1024.0;  // from MiB
    gpus.push_back(gpu);
  }
  return gpus;
}

std::optional<CudaVersion> parse_driver_support(std::string_view output) {
  const std::size_t cuda = output.find("CUDA"), version = output.find("Version", cuda);
  if (cuda == std::string_view::npos || version == std::string_view::npos) return std::nullopt;
  const std::size_t number = output.find_first_of("0123456789\n", version);
  return number == std::string_view::npos ? std::nullopt : parse_cuda_version(output.substr(number));
}

Coverage coverage(const std::vector<std::string>& architectures, int capability) {
  Coverage best = Coverage::none;
  for (const std::string& architecture : architectures) {
    const int number = number_of(architecture);
    if (number == 0 || number > capability) continue;
    const bool has_letter = architecture.find('a') < architecture.find('-');  // 90a runs on 9.0 only
    const bool runs = has_letter ? number == capability : number / 10 == capability / 10;
    if (!architecture.ends_with("-virtual") && runs) return Coverage::machine_code;
    if (!architecture.ends_with("-real") && !has_letter) best = Coverage::compiled_when_loaded;
  }
  return best;
}

GpuFacts ask_nvidia_smi() {
  GpuFacts facts;
  facts.has_nvidia_smi = find_program("nvidia-smi").has_value();
  if (!facts.has_nvidia_smi) return facts;
  const SubprocessResult list = run({"nvidia-smi", "--query-gpu=name,driver_version,compute_cap,memory.total",
                                     "--format=csv,noheader,nounits"});
  if (list.exit_code != 0) {
    facts.failure = first_line(list.output.empty() ? list.errors : list.output);
    if (facts.failure.empty()) facts.failure = concat("nvidia-smi: exit code ", list.exit_code);
    return facts;
  }
  facts.gpus = parse_gpus(list.output);
  facts.driver_supports = parse_driver_support(run({"nvidia-smi"}).output);
  return facts;
}

Findings judge_gpus(const GpuFacts& facts, const BuildFacts& build) {
  Findings findings = {judge_presence(facts)};
  if (facts.gpus.empty()) return findings;
  findings.push_back(judge_driver(facts, build));
  if (build.nvcc.empty()) {
    findings.push_back(
        {"toolkit", Mark::note, "not found when these programs were built, so they use no GPU",
         "install the CUDA toolkit, 12 or newer, and configure again: cmake --preset release"});
  } else {
    findings.push_back(judge_architecture(facts.gpus.front(), build));
  }
  return findings;
}

std::string nccl_version_text(int number) {
  const int major = number < 10000 ? 1000 : 10000;
  return concat(number / major, '.', number % major / 100, '.', number % 100);
}

std::optional<int> ask_nccl() {
  void* const library = dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return std::nullopt;
  int version = 0;
  const auto get_version = reinterpret_cast<int (*)(int*)>(dlsym(library, "ncclGetVersion"));
  const bool known = get_version != nullptr && get_version(&version) == 0;
  dlclose(library);
  return known ? std::optional(version) : std::nullopt;
}

Finding judge_nccl(std::optional<int> version, std::size_t gpus) {
  if (version) return {"NCCL", Finding::Mark::ok, nccl_version_text(*version)};
  if (gpus < 2) return {"NCCL", Finding::Mark::ok, "none; used with several GPUs only"};
  return {"NCCL", Finding::Mark::note, "none: libnccl.so.2 cannot be loaded",
          "stage 3 is fastest with it: install libnccl2 and libnccl-dev for this CUDA, and configure again"};
}

}  // namespace stagegpt
