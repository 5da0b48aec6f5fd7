// The experiment of a comparison: the settings of a training run, the numbers of ranks and the repeats.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "common/measure/verify.h"

namespace stagegpt::compare {

// Distinct flags with their values, in order, for the stages' programs.
class FlagList {
 public:
  FlagList() = default;
  FlagList(std::initializer_list<std::pair<std::string, std::vector<std::string>>> flags) : flags_(flags) {}

  // From a command line: "--steps 20 --reproducible", "--steps=20". Throws UserError if an argument is not a
  // flag, or if a flag occurs twice.
  static FlagList parse(std::span<const std::string> arguments);
  // From settings, a JSON object as --print-config prints it: {"steps": 20, "reproducible": true}. Values
  // null and false give no flag; null also removes the flag from a list that is updated. Throws UserError for
  // values that are not numbers, strings, booleans or null.
  static FlagList of_settings(const nlohmann::json& settings);

  bool has(const std::string& flag) const;
  // The flag's first value; empty if it has none.
  std::optional<std::string> value(const std::string& flag) const;
  // Sets a flag, or replaces its values.
  void set(const std::string& flag, std::vector<std::string> values = {});
  void remove(const std::string& flag);
  // Sets all flags of another list, and removes those that are null there.
  void update(const FlagList& other);
  // The flags that are in `known`, and those that are neither in `known` nor in `others`.
  FlagList known_to(const std::set<std::string>& known, const std::set<std::string>& others) const;

  std::vector<std::string> arguments() const;

 private:
  std::vector<std::pair<std::string, std::vector<std::string>>> flags_;
  std::set<std::string> null_;
};

// The flags that a program's --help lists.
std::set<std::string> flags_in_help(const std::string& help);

inline constexpr const char *kTensorFlag = "--tensor-parallel", *kPipelineFlag = "--pipeline-parallel";

// same_cores: each contestant uses all cores, which its ranks divide. strong, weak: each rank has its own
// cores; the batch is fixed (strong) or grows with the number of ranks (weak).
enum class Mode { same_cores, strong, weak };
const char* name_of(Mode mode);

// Largest accepted relative differences of losses and gradient norms.
struct Limits {
  double loss = VerifyLimits{}.loss;
  double grad_norm = VerifyLimits{}.gradient;
};
// Those of stageN_verify for a --precision; f32 if it is empty.
Limits limits_of(const std::string& precision);

struct Experiment {
  FlagList flags;  // of stageN_train, the same for all
  Mode mode = Mode::same_cores;
  std::vector<std::int64_t> ranks = {1, 2};
  bool ranks_are_asked_for = false;
  // Tensor ranks and stages of the pipeline in a model of stages 1 and 3: each of these with each of those,
  // on every number of ranks that they divide.
  std::vector<std::int64_t> tensor_parallel = {1}, pipeline_parallel = {1};
  std::int64_t repeats = 3;
  std::int64_t warmup = 3;  // steps that are not timed
  std::int64_t cores = 1;   // of a contestant, over all ranks
  bool reproducible = false;
  bool reproducible_pass = true;  // an additional run with --reproducible, unless all runs have it
  Limits limits;

  std::int64_t batch_size() const;
  std::int64_t micro_steps() const;
};

// The flags of the default experiment, overridden by those of a configuration, by `handed_on`, and by those
// that a comparison needs. Throws UserError for flags that only compare_stages may set.
FlagList experiment_flags(const FlagList& configuration, const FlagList& handed_on);

// Parses "0,1,3" to increasing numbers. Throws UserError, which names the flag.
std::vector<std::int64_t> parse_numbers(const std::string& flag, const std::string& text, std::int64_t min,
                                        std::int64_t max);

}  // namespace stagegpt::compare
