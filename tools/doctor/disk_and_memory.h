// Checks disk space for runs, and memory.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "tools/doctor/finding.h"

namespace stagegpt {

struct DiskFacts {
  std::filesystem::path directory;
  bool writable = false;
  double free_bytes = 0;
};
DiskFacts disk_facts(const std::filesystem::path& directory);
// `checkpoint_bytes`: size of a checkpoint of gpt2.
Finding judge_disk(const DiskFacts& facts, double checkpoint_bytes);

struct MemoryFacts {
  double total_bytes = 0, available_bytes = 0;
  std::optional<double> limit_bytes = {};  // of a container
};
// The memory that training needs, as computed by `stage0_train --dry-run`.
struct MemoryNeeds {
  double nano_bytes = 0, gpt2_bytes = 0;
};
MemoryFacts memory_facts();
MemoryNeeds memory_needs();
Finding judge_memory(const MemoryFacts& facts, const MemoryNeeds& needs);

// Bytes of the weights and of both moments of gpt2, in f32.
double gpt2_checkpoint_bytes();

}  // namespace stagegpt
