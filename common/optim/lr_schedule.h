// The learning rate of each step: linear warm-up, then cosine decay, linear decay, none, or a linear decay of
// the last steps alone (wsd: warm-up, stable, decay; Hu et al., arXiv:2404.06395, section 4).
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace stagegpt {

struct LrSchedule {
  enum class Kind : std::uint8_t { cosine, linear, constant, wsd };

  Kind kind = Kind::cosine;
  double learning_rate = 1e-3;  // the peak
  double min_lr = 1e-4;         // at the horizon and after it
  std::int64_t warmup_steps = 0;
  std::int64_t steps = 1;        // the horizon: the step at which the decay ends
  std::int64_t decay_steps = 0;  // of wsd

  // Learning rate of step `step`, which counts from 0. With W warm-up steps, step i < W has (i+1)/W of the
  // peak. From the horizon on it is min_lr, or the peak if `kind` is constant.
  double at(std::int64_t step) const;
};

std::string_view name_of(LrSchedule::Kind kind);
std::optional<LrSchedule::Kind> lr_schedule_named(std::string_view name);

}  // namespace stagegpt
