#include "tools/doctor/disk_and_memory.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "common/base/error.h"
#include "common/io/file.h"
#include "common/model/presets.h"
#include "common/system/free_memory.h"
#include "common/system/system_files.h"
#include "common/train/memory_plan.h"

namespace stagegpt {
namespace {

namespace fs = std::filesystem;
using Mark = Finding::Mark;

constexpr double kGigabyte = 1e9, kGibibyte = 1 << 30;
// More than a run of nano needs.
constexpr double kLeastDisk = 100e6;
// Two that are kept, the best one, and the one that is being written.
constexpr int kCheckpoints = 4;

std::string in_units(double bytes, double unit, const char* name) {
  char text[48];
  std::snprintf(text, sizeof text, "%.1f %s", bytes / unit, name);
  return text;
}
std::string gigabytes(double bytes) { return in_units(bytes, kGigabyte, "GB"); }
std::string gibibytes(double bytes) { return in_units(bytes, kGibibyte, "GiB"); }

const Gpt2Config& preset(std::string_view name) {
  return std::ranges::find(presets(), name, &Preset::name)->config;
}

double plan_bytes(std::string_view name) {
  const Gpt2Config& config = preset(name);
  return static_cast<double>(
      plan_memory({config, TrainerConfig(), config.block_size, 1, NoGradientSync()}).total());
}

// Tries to write: permissions are not enough, because root has them on read-only file systems too.
bool can_write_into(const fs::path& directory) {
  std::string name = directory / ".doctor.XXXXXX";
  const FileDescriptor file(mkstemp(name.data()));
  return file.is_open() && unlink(name.c_str()) == 0;
}

}  // namespace

DiskFacts disk_facts(const fs::path& directory) {
  std::error_code error;
  const fs::space_info space = fs::space(directory, error);
  return {directory, can_write_into(directory), error ? 0.0 : static_cast<double>(space.available)};
}

Finding judge_disk(const DiskFacts& facts, double checkpoint_bytes) {
  if (!facts.writable) {
    return {"disk", Mark::problem, concat("cannot write to ", facts.directory),
            "runs are written to runs/ in this directory: use another one, or --run-dir",
            /*prevents_stage0=*/true};
  }
  const std::string found = concat(gigabytes(facts.free_bytes), " free for runs in ", facts.directory);
  if (facts.free_bytes < kLeastDisk) {
    return {"disk", Mark::problem, found, "not enough for checkpoints: free space, or use --run-dir",
            /*prevents_stage0=*/true};
  }
  if (facts.free_bytes < kCheckpoints * checkpoint_bytes) {
    return {"disk", Mark::note, found,
            concat("enough for nano; a run of gpt2 needs ", gigabytes(kCheckpoints * checkpoint_bytes), ", ",
                   gigabytes(checkpoint_bytes), " per checkpoint")};
  }
  return {"disk", Mark::ok, found};
}

MemoryFacts memory_facts() {
  const std::string meminfo = system_file("/proc/meminfo");
  MemoryFacts facts{.total_bytes = meminfo_bytes(meminfo, "MemTotal").value_or(0),
                    .available_bytes = meminfo_bytes(meminfo, "MemAvailable").value_or(0)};
  if (const auto cgroup = cgroup_memory()) {
    facts.limit_bytes = cgroup->limit;
    facts.available_bytes = std::min(facts.available_bytes, cgroup->left);
  }
  return facts;
}

MemoryNeeds memory_needs() { return {plan_bytes("nano"), plan_bytes("gpt2")}; }

Finding judge_memory(const MemoryFacts& facts, const MemoryNeeds& needs) {
  const bool limited = facts.limit_bytes && *facts.limit_bytes < facts.total_bytes;
  const double available =
      limited ? std::min(facts.available_bytes, *facts.limit_bytes) : facts.available_bytes;
  const std::string found = concat(gibibytes(available), " available of ",
                                   gibibytes(limited ? *facts.limit_bytes : facts.total_bytes),
                                   limited ? ", the limit of this container" : "");
  if (available < needs.nano_bytes) {
    return {"memory", Mark::problem, found,
            concat("nano needs ", gibibytes(needs.nano_bytes),
                   ": close other programs, or use a smaller --batch-size"),
            /*prevents_stage0=*/true};
  }
  if (available < needs.gpt2_bytes) {
    return {"memory", Mark::note, found,
            concat("enough for nano; gpt2 needs ", gibibytes(needs.gpt2_bytes),
                   " (--dry-run); less with a smaller --batch-size or --block-size")};
  }
  return {"memory", Mark::ok,
          concat(found, "; training gpt2 needs ", gibibytes(needs.gpt2_bytes), " (--dry-run)")};
}

double gpt2_checkpoint_bytes() {
  constexpr double kCopies = 3;  // the weights, and Adam's moments
  return kCopies * sizeof(float) * static_cast<double>(gpt2_parameter_table(preset("gpt2")).numel());
}

}  // namespace stagegpt
