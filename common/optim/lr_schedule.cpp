#include "common/optim/lr_schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace stagegpt {

double LrSchedule::at(std::int64_t step) const {
  if (step < warmup_steps)
    return learning_rate * static_cast<double>(step + 1) / static_cast<double>(warmup_steps);
  const std::int64_t first = kind == Kind::wsd ? steps - decay_steps : warmup_steps;  // of the decay
  const double span = static_cast<double>(std::max<std::int64_t>(1, steps - first));
  const double progress = std::clamp(static_cast<double>(step - first) / span, 0.0, 1.0);
  switch (kind) {
    case Kind::cosine:
      return min_lr + (learning_rate - min_lr) * (1 + std::cos(std::numbers::pi * progress)) / 2;
    case Kind::linear:
    case Kind::wsd:
      return min_lr + (learning_rate - min_lr) * (1 - progress);
    case Kind::constant:
      return learning_rate;
  }
  return learning_rate;
}

std::string_view name_of(LrSchedule::Kind kind) {
  constexpr const char* kNames[] = {"cosine", "linear", "constant", "wsd"};
  return kNames[static_cast<int>(kind)];
}

std::optional<LrSchedule::Kind> lr_schedule_named(std::string_view name) {
  using Kind = LrSchedule::Kind;
  for (const Kind kind : {Kind::cosine, Kind::linear, Kind::constant, Kind::wsd}) {
    if (name == name_of(kind)) return kind;
  }
  return std::nullopt;
}

}  // namespace stagegpt
