#include "common/optim/adamw.h"

#include <algorithm>
#include <array>

#include "common/backend/ops/adamw.h"
#include "common/backend/ops/sums.h"

namespace stagegpt {
namespace {

Tensor slice(const Tensor& arena, const ArenaRange& range) {
  return arena.slice(range.begin, {range.size()});
}

}  // namespace

AdamW::AdamW(Backend& backend, const Parameters& parameters, const AdamWConfig& config)
    : AdamW(backend, parameters, config, {{0, parameters.weights().numel()}}) {}

AdamW::AdamW(Backend& backend, const Parameters& parameters, const AdamWConfig& config,
             const ArenaParts& owned, bool norm_in_blocks)
    : backend_(backend),
      config_(config),
      moments_{zero_arena(backend, parameters.weights().dtype(), total_size(owned)),
               zero_arena(backend, parameters.weights().dtype(), total_size(owned))},
      norm_in_blocks_(norm_in_blocks),
      squared_norms_(backend.zeros(DType::f64, {number_of_norms(owned)})),
      squared_norm_(owned.size() == 1 && !norm_in_blocks ? squared_norms_ : backend.zeros(DType::f64, {1})) {
  ArenaRange own{0, 0};  // of the moments
  for (const ArenaRange& range : owned) {
    own = {own.end, own.end + range.size()};
    parts_.push_back({range, {slice(moments_.m, own), slice(moments_.v, own)}});
  }
  restore(parameters, {});
}

void AdamW::restore(const Parameters& parameters, const UpdateCounts& updates) {
  const auto missed_by = [&](const Parameter& row) { return updates.all - updates.of(row.name); };
  groups_.clear();
  for (const Parameter& row : parameters.table().rows()) {
    if (!row.trained || std::ranges::find(groups_, missed_by(row), &Group::missed) != groups_.end()) continue;
    groups_.push_back({missed_by(row),
                       {.beta1 = config_.beta1,
                        .beta2 = config_.beta2,
                        .eps = config_.eps,
                        .max_grad_norm = config_.grad_clip,
                        .rates = backend_.zeros(DType::f64, {3})}});
  }
  for (Part& part : parts_) {
    part.decay.clear();
    for (const Group& group : groups_) {
      const auto is_of_group = [&](const Parameter& row) {
        return row.trained && missed_by(row) == group.missed;
      };
      part.decay.push_back(parameters.table().decay_ranges(config_.weight_decay, part.range, is_of_group));
    }
  }
}

std::int64_t AdamW::number_of_norms(const ArenaParts& owned) const {
  std::int64_t number = 0;
  for (const ArenaRange& range : owned) number += norms_of(range);
  return number;
}

void AdamW::measure_norms(const Parameters& parameters) {
  std::int64_t first = 0;
  for (const Part& part : parts_) {
    const std::int64_t norms = norms_of(part.range);
    if (norms == 0) continue;
    const Tensor of_part = squared_norms_.slice(first, {norms});
    if (part.range.size() > 0) {
      backend_.run(SquaredNorm{of_part, parameters.grads(part.range)});
    } else {
      backend_.fill(of_part, 0);  // if it is the only part, the sum of all ranks is here
    }
    first += norms;
  }
}

void AdamW::set_step(double learning_rate, std::int64_t update) {
  for (auto& [missed, step] : groups_) {
    step.learning_rate = learning_rate;
    step.step = update - missed + 1;
    const AdamWRates rates = step.host_rates();
    const std::array numbers = {rates.learning_rate, rates.step_size, rates.inv_sqrt_correction2};
    upload<double>(backend_, step.rates, numbers);
  }
}

void AdamW::update(const Parameters& parameters) {
  for (const auto& [range, moments, decay] : parts_) {
    if (range.size() == 0) continue;
    const Tensor shadow = parameters.shadow().defined() ? slice(parameters.shadow(), range) : Tensor();
    for (std::size_t i = 0; i < groups_.size(); ++i) {
      backend_.run(AdamWUpdate{slice(parameters.weights(), range), shadow, moments.m, moments.v,
                               parameters.grads(range), squared_norm_, decay[i], groups_[i].step});
    }
  }
}

ArenaParts AdamW::owned() const {
  ArenaParts owned;
  for (const Part& part : parts_) owned.push_back(part.range);
  return owned;
}

}  // namespace stagegpt
