// What is compared: one training run's settings, and how often and on how many ranks it is done.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/measure/verify.h"
#include "tools/compare/flag_list.h"

namespace stagegpt::compare {

// What several ranks share: the cores of the machine, each rank count all of them; or, to see how a stage
// scales, a batch (strong) that ranks with cores of their own divide, or one that grows with them (weak).
enum class Mode { same_cores, strong, weak };
const char* name_of(Mode mode);

// Largest relative differences of losses and gradient norms that pass: those of stageN_verify.
struct Limits {
  double loss = VerifyLimits{}.loss;
  double grad_norm = VerifyLimits{}.gradient;
};

struct Experiment {
  FlagList flags;  // of stageN_train, the same for all
  Mode mode = Mode::same_cores;
  std::vector<std::int64_t> ranks = {1, 2};
  bool ranks_are_asked_for = false;
  std::int64_t repeats = 3;
  std::int64_t warmup = 3;  // steps that are not timed
  std::int64_t cores = 1;   // for each contestant together
  bool reproducible = false;
  bool reproducible_pass = true;  // once more with --reproducible, where it is not on anyway
  Limits limits;

  std::int64_t batch_size() const;
  std::int64_t micro_steps() const;
};

// Flags of the default experiment, replaced by those of a configuration, by `handed_on`, and by what a
// comparison needs. Throws UserError for flags that only compare_stages sets.
FlagList experiment_flags(const FlagList& configuration, const FlagList& handed_on);

// "0,1,3" as increasing numbers. Throws UserError, naming the flag.
std::vector<std::int64_t> parse_numbers(const std::string& flag, const std::string& text, std::int64_t min,
                                        std::int64_t max);

}  // namespace stagegpt::compare
