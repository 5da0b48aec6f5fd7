// Learning rate over a run: linear warm-up, then cosine, linear or no decay to a floor.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace stagegpt {

struct LrSchedule {
  enum class Kind : std::uint8_t { cosine, linear, constant };

  Kind kind = Kind::cosine;
  double learning_rate = 1e-3;  // the peak
  double min_lr = 1e-4;         // reached at the horizon
  std::int64_t warmup_steps = 0;
  std::int64_t steps = 1;  // the horizon

  // Learning rate of step `step`, which counts from 0. With W warm-up steps, step i < W has (i+1)/W of the
  // peak; behind the horizon it is min_lr (the peak, if constant).
  double at(std::int64_t step) const;
};

std::string_view name_of(LrSchedule::Kind kind);
std::optional<LrSchedule::Kind> lr_schedule_named(std::string_view name);

}  // namespace stagegpt
