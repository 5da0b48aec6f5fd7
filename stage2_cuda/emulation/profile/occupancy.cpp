#include "stage2_cuda/emulation/profile/occupancy.h"

#include <algorithm>
#include <array>
#include <boost/core/demangle.hpp>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "stage2_cuda/emulation/settings.h"
#include "stage2_cuda/emulation/thread.h"

namespace stagegpt::gpu::emulation {
namespace {

// "void gpu::sum_kernel<float, 4>(float*)" without the type and the parameters.
std::string_view without_signature(std::string_view function) {
  std::size_t depth = 0, begin = 0;
  for (std::size_t i = 0; i < function.size(); ++i) {
    const char c = function[i];
    if (c == '<') ++depth;
    if (c == '>') --depth;
    if (depth == 0 && c == ' ') begin = i + 1;
    if (depth == 0 && c == '(') return function.substr(begin, i - begin);
  }
  return function.substr(begin);
}

constexpr std::size_t rounded_up(std::size_t value, std::size_t unit) {
  return (value + unit - 1) / unit * unit;
}

}  // namespace

std::string plain_name(std::string_view name) {
  std::string plain;
  for (std::size_t i = 0; i < name.size(); ++i) {
    if (name.substr(i, 2) == "::") {
      const std::size_t begin = plain.find_last_of("<, ");
      plain.resize(begin == std::string::npos ? 0 : begin + 1);
      ++i;
    } else {
      plain += name[i];
    }
  }
  return plain;
}

ResourceTable parsed_resources(std::istream& in) {
  ResourceTable table;
  KernelResources* kernel = nullptr;
  for (std::string line; std::getline(in, line);) {
    constexpr std::string_view kEntry = "Compiling entry function '";
    if (const std::size_t entry = line.find(kEntry); entry != std::string::npos) {
      const std::size_t begin = entry + kEntry.size();
      const std::string symbol = line.substr(begin, line.find('\'', begin) - begin);
      kernel = &table[plain_name(without_signature(boost::core::demangle(symbol.c_str())))];
      continue;
    }
    if (kernel == nullptr) continue;
    constexpr const char* kSpills = "%*u bytes stack frame, %zu bytes spill stores, %zu bytes spill loads";
    std::size_t stores = 0, loads = 0;
    if (std::sscanf(line.c_str(), kSpills, &stores, &loads) == 2) kernel->spill_bytes = stores + loads;
    constexpr std::string_view kUsed = ": Used ";
    if (const std::size_t used = line.find(kUsed); used != std::string::npos) {
      kernel->registers =
          static_cast<unsigned>(std::strtoul(line.c_str() + used + kUsed.size(), nullptr, 10));
      kernel = nullptr;
    }
  }
  return table;
}

KernelResources resources_of(const ResourceTable& table, std::string_view kernel) {
  std::string name = plain_name(kernel);
  if (const auto found = table.find(name); found != table.end()) return found->second;
  if (!name.ends_with('>')) return {};
  name.back() = ',';
  const auto first = table.lower_bound(name);
  if (first == table.end() || !first->first.starts_with(name)) return {};
  const auto second = std::next(first);
  const bool several = second != table.end() && second->first.starts_with(name);
  return several ? KernelResources{} : first->second;
}

ResourceTable known_resources() {
  std::error_code error;
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", error);
  const std::filesystem::path file = program.parent_path() / "kernel_resources.txt";
  const auto written = std::filesystem::last_write_time(file, error);
  if (error || written < std::filesystem::last_write_time(program, error)) return {};
  std::ifstream in(file);
  return parsed_resources(in);
}

Occupancy occupancy_of(unsigned block_threads, std::size_t shared_bytes, unsigned registers) {
  // CUDA C++ Programming Guide, "Technical Specifications per Compute Capability", of 8.0 and 9.0: 2048
  // threads, 32 blocks, 65,536 registers, and 164 or 228 KiB of shared memory, of which each block takes 1
  // KiB more than it asks for, in units of 128 bytes. Of 7.5: half the threads and blocks, 64 KiB, nothing
  // more than a block asks for, and units of 256 bytes.
  const int capability = compute_capability();
  const bool is_7_5 = capability < 80;
  const std::size_t kib = is_7_5 ? 64 : capability < 90 ? 164 : 228, bytes = kib << 10;
  const std::size_t most_threads = is_7_5 ? 1024 : 2048, most_blocks = is_7_5 ? 16 : 32;
  const std::size_t reserved = is_7_5 ? 0 : 1024, bytes_unit = is_7_5 ? 256 : 128;
  constexpr std::size_t kRegisters = 65536;
  // cuda_occupancy.h of the CUDA toolkit: registers are allocated to a warp in units of 256, from one of four
  // parts of the multiprocessor, each with a quarter of the registers.
  constexpr std::size_t kRegistersUnit = 256, kParts = 4;

  const std::size_t warps = (block_threads + kWarpSize - 1) / kWarpSize;
  if (warps == 0) return {};
  const std::size_t registers_of_warp = rounded_up(std::size_t{registers} * kWarpSize, kRegistersUnit);
  struct Limit {
    std::size_t blocks;
    const char* name;
  };
  const std::array limits = {
      Limit{most_threads / (warps * kWarpSize), "threads"},
      Limit{bytes / std::max(rounded_up(shared_bytes + reserved, bytes_unit), bytes_unit), "shared memory"},
      Limit{most_blocks, "blocks"},
      Limit{registers == 0 ? most_blocks : kRegisters / kParts / registers_of_warp * kParts / warps,
            "registers"}};
  const Limit& least = *std::ranges::min_element(limits, {}, &Limit::blocks);  // the first of equal ones
  return {static_cast<unsigned>(least.blocks), least.name};
}

}  // namespace stagegpt::gpu::emulation
