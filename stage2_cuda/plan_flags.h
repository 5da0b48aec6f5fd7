// --gpu-matmul-plans: a file with the algorithms of the library's matrix products. --gpu-matmul-tune, of
// stage2_bench alone, chooses them by time and writes the file.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>

#include "common/app/command_line.h"
#include "common/comm/rank_group.h"
#include "stage2_cuda/plan_cache.h"

namespace stagegpt::gpu {

class PlanFlags {
 public:
  static constexpr const char* kFlag = "--gpu-matmul-plans";
  static constexpr const char* kNameInRun = "gemm_plans.json";

  void add(CommandLine& command_line);
  void add_tuning(CommandLine& command_line);

  // The plans for make_cuda_backend(), or null. Collective call: rank 0 reads the file. If it was made for
  // another device or library than `here` on any rank, no rank uses it, and rank 0 prints a note. Throws
  // AgreedUserError if the file cannot be read, or if flags contradict each other.
  std::shared_ptr<GemmPlans> open(RankGroup& group, const PlanOrigin& here);
  // With --gpu-matmul-tune, writes the plans. Throws std::runtime_error that names the file.
  void write() const;
  // The text of the file that open() has read, by its name in the directory of a run.
  std::map<std::string, std::string> kept_files() const;
  bool given() const { return file_.has_value(); }

 private:
  std::string read() const;

  std::optional<std::string> file_;
  bool tune_ = false;
  std::string text_;  // of the file; empty without one
  std::shared_ptr<GemmPlans> plans_;
};

}  // namespace stagegpt::gpu
