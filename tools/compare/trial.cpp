#include "tools/compare/trial.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "common/base/error.h"
#include "common/base/json.h"
#include "common/measure/step_times.h"

namespace stagegpt::compare {
namespace {

// Infinity and NaN are null in JSON.
double number(const nlohmann::json& json) {
  return json.is_null() ? std::numeric_limits<double>::quiet_NaN() : json.get<double>();
}

StepRecord read_step(const nlohmann::json& line) {
  StepRecord record{.loss = number(line.at("loss")),
                    .grad_norm = number(line.at("grad_norm")),
                    .seconds = line.at("seconds").get<double>()};
  for (std::size_t i = 0; i < kPhases.size(); ++i) record.ms[i] = line.at("ms").at(kPhases[i]).get<double>();
  return record;
}

void read_line(std::string_view text, Trial& trial) {
  const nlohmann::json line = parse_json(text);
  read_json([&] {
    if (line.at("step") != trial.steps.size() + 1)
      user_error("expected step ", trial.steps.size() + 1, ", got ", line.at("step").dump());
    trial.steps.push_back(read_step(line));
    trial.tokens_per_step = line.at("tokens").get<double>() / static_cast<double>(trial.steps.size());
    trial.peak_memory_bytes =
        std::max(trial.peak_memory_bytes, line.at("peak_memory_bytes").get<std::int64_t>());
    return 0;
  });
}

}  // namespace

Trial parse_metrics(std::string_view text) {
  Trial trial;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    try {
      read_line(text.substr(0, end), trial);
    } catch (const UserError& error) {
      throw std::runtime_error(concat("metrics.jsonl, line ", trial.steps.size() + 1, ": ", error.what()));
    }
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  if (trial.steps.empty()) throw std::runtime_error("metrics.jsonl has no steps");
  return trial;
}

Timing timing(const Trial& trial, std::int64_t warmup) {
  constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
  Timing timing;
  if (std::ssize(trial.steps) <= warmup) {
    timing.step_ms = timing.tokens_per_second = timing.communication_share = kNone;
    timing.ms.fill(kNone);
    return timing;
  }
  Samples seconds;
  std::array<Samples, kPhases.size()> ms;
  for (auto step = trial.steps.begin() + warmup; step != trial.steps.end(); ++step) {
    seconds.add(step->seconds);
    for (std::size_t i = 0; i < kPhases.size(); ++i) ms[i].add(step->ms[i]);
  }
  for (std::size_t i = 0; i < kPhases.size(); ++i) timing.ms[i] = ms[i].median();
  timing.step_ms = 1e3 * seconds.median();
  timing.tokens_per_second = trial.tokens_per_step / seconds.median();
  const double total = std::accumulate(timing.ms.begin(), timing.ms.end(), 0.0);
  timing.communication_share = total > 0 ? timing.ms[kCommunication] / total : 0;
  return timing;
}

}  // namespace stagegpt::compare
