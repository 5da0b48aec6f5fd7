#include "tools/compare/experiment.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <sstream>

#include "common/app/configuration.h"
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

FlagList FlagList::parse(std::span<const std::string> arguments) {
  FlagList list;
  for (const std::string& argument : arguments) {
    if (argument.starts_with("--") && argument.size() > 2) {
      const std::size_t equals = argument.find('=');
      const std::string flag = argument.substr(0, equals);
      list.remove(flag);  // the last one counts
      list.set(flag);
      if (equals != argument.npos) list.flags_.back().second = {argument.substr(equals + 1)};
    } else if (list.flags_.empty()) {
      user_error("after --: expected flags of stageN_train, not '", argument, "'");
    } else {
      list.flags_.back().second.push_back(argument);
    }
  }
  return list;
}

FlagList FlagList::of_settings(const nlohmann::json& settings) {
  if (!settings.is_object()) user_error("expected a JSON object");
  FlagList list;
  for (const auto& [key, value] : settings.items()) {
    if (key == kDerived) continue;
    const std::string flag = flag_of_key(key);
    if (value.is_string()) {
      list.set(flag, {value.get<std::string>()});
    } else if (value.is_number()) {
      list.set(flag, {value.dump()});
    } else if (value.is_boolean()) {
      if (value.get<bool>()) list.set(flag);
    } else if (value.is_null()) {
      list.null_.insert(flag);
    } else {
      user_error(key, ": expected a number, a string, true or false");
    }
  }
  return list;
}

bool FlagList::has(const std::string& flag) const {
  return std::ranges::any_of(flags_, [&](const auto& entry) { return entry.first == flag; });
}

std::optional<std::string> FlagList::value(const std::string& flag) const {
  for (const auto& [name, values] : flags_) {
    if (name == flag && !values.empty()) return values.front();
  }
  return std::nullopt;
}

void FlagList::set(const std::string& flag, std::vector<std::string> values) {
  for (auto& [name, old] : flags_) {
    if (name == flag) {
      old = std::move(values);
      return;
    }
  }
  flags_.emplace_back(flag, std::move(values));
}

void FlagList::remove(const std::string& flag) {
  std::erase_if(flags_, [&](const auto& entry) { return entry.first == flag; });
}

void FlagList::update(const FlagList& other) {
  for (const std::string& flag : other.null_) remove(flag);
  for (const auto& [flag, values] : other.flags_) set(flag, values);
}

FlagList FlagList::known_to(const std::set<std::string>& known, const std::set<std::string>& others) const {
  FlagList list = *this;
  std::erase_if(list.flags_, [&](const auto& entry) {
    return !known.contains(entry.first) && others.contains(entry.first);
  });
  return list;
}

std::vector<std::string> FlagList::arguments() const {
  std::vector<std::string> all;
  for (const auto& [flag, values] : flags_) {
    all.push_back(flag);
    all.insert(all.end(), values.begin(), values.end());
  }
  return all;
}

std::set<std::string> flags_in_help(const std::string& help) {
  std::set<std::string> flags;
  std::istringstream lines(help);
  for (std::string line; std::getline(lines, line);) {
    const std::size_t begin = line.find_first_not_of(' ');
    if (begin == line.npos || line.compare(begin, 2, "--") != 0) continue;
    flags.insert(line.substr(begin, line.find_first_of(" ,=", begin) - begin));
  }
  return flags;
}

const char* name_of(Mode mode) {
  constexpr const char* kNames[] = {"same cores", "strong", "weak"};
  return kNames[static_cast<int>(mode)];
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
