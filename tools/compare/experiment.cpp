#include "tools/compare/experiment.h"

#include <algorithm>
#include <sstream>

#include "common/app/flag_values.h"
#include "common/base/error.h"

namespace stagegpt::compare {
namespace {

constexpr std::int64_t kMaxBatch = 1 << 20;

// Small enough for the emulator: all stages are compared within three minutes on two cores.
const FlagList& default_flags() {
  static const FlagList flags = {{"--data", {"data/dummy.txt"}}, {"--tokenizer", {"char"}},
                                 {"--n-layer", {"2"}},           {"--n-head", {"2"}},
                                 {"--n-embd", {"64"}},           {"--block-size", {"32"}},
                                 {"--batch-size", {"8"}},        {"--steps", {"20"}}};
  return flags;
}

// Flags that compare_stages sets for each run, or for which it has its own flag.
constexpr const char* kOwnFlags[] = {"--run-dir",     "--resume",        "--threads", "--reproducible",
                                     "--json",        "--dry-run",       "--config",  "--print-config",
                                     "--trace-steps", "--help",          "--version", "--val-fraction",
                                     "--profile",     "--profile-steps", kTensorFlag, kPipelineFlag};

}  // namespace

const char* name_of(Mode mode) {
  switch (mode) {
    case Mode::same_cores:
      return "same cores";
    case Mode::strong:
      return "strong";
    case Mode::weak:
      return "weak";
  }
  return "";
}

std::int64_t Experiment::batch_size() const {
  return parse_integer("--batch-size", flags.value("--batch-size").value_or(""), 1, kMaxBatch);
}

std::int64_t Experiment::micro_steps() const {
  return parse_integer("--grad-accumulation", flags.value("--grad-accumulation").value_or("1"), 1, kMaxBatch);
}

Limits limits_of(const std::string& precision) {
  const VerifyLimits limits = precision == "bf16"   ? kBf16Limits
                              : precision == "tf32" ? kTf32Limits
                                                    : VerifyLimits{};
  return {limits.loss, limits.gradient};
}

FlagList experiment_flags(const FlagList& configuration, const FlagList& handed_on) {
  for (const char* own : kOwnFlags) {
    if (handed_on.has(own))
      user_error(own, ": not allowed after --, because compare_stages sets it for each run");
  }
  FlagList flags = default_flags();
  if (configuration.has("--model") || handed_on.has("--model")) {  // a model has its own sizes
    for (const char* size : {"--n-layer", "--n-head", "--n-embd", "--block-size"}) flags.remove(size);
  }
  flags.update(configuration);
  flags.update(handed_on);
  for (const char* own : kOwnFlags) flags.remove(own);  // run.json may contain them
  // Training only; each run still saves a checkpoint at its end.
  constexpr const char* kNever = "1000000000";
  for (const char* every : {"--eval-every", "--checkpoint-every"}) flags.set(every, {kNever});
  flags.set("--val-fraction", {"0"});
  flags.set("--sample-every", {"0"});
  flags.set("--max-new-tokens", {"0"});
  return flags;
}

std::vector<std::int64_t> parse_numbers(const std::string& flag, const std::string& text, std::int64_t min,
                                        std::int64_t max) {
  std::vector<std::int64_t> numbers;
  std::istringstream parts(text);
  for (std::string part; std::getline(parts, part, ',');)
    numbers.push_back(parse_integer(flag, part, min, max));
  if (numbers.empty()) user_error(flag, ": expected comma-separated numbers, not '", text, "'");
  std::ranges::sort(numbers);
  numbers.erase(std::ranges::unique(numbers).begin(), numbers.end());
  return numbers;
}

}  // namespace stagegpt::compare
