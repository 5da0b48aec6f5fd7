#include "common/model/parameters.h"

#include <algorithm>

#include "common/stop_signals.h"

namespace stagegpt {
namespace {

std::int64_t round_up(std::int64_t n, std::int64_t multiple) {
  return (n + multiple - 1) / multiple * multiple;
}

template <class T>
void draw(Backend& backend, const Tensor& out, const Parameter& parameter, const RandomKey& key) {
  constexpr std::int64_t kBetweenPolls = 1 << 16;
  std::vector<T> values(static_cast<std::size_t>(out.numel()));  // padding stays zero
  for (std::int64_t i = 0; i < parameter.shape.numel(); ++i) {
    if (i % kBetweenPolls == 0) StopSignals::throw_if_requested();
    const double noise = parameter.init_std == 0 ? 0 : parameter.init_std * random_normal(key, i);
    values[i] = static_cast<T>(parameter.init_mean + noise);
  }
  upload<T>(backend, out, values);
}

}  // namespace

void ParameterTable::add(Parameter parameter) {
  check(find(parameter.name) < 0, "parameters: ", parameter.name, " is there already");
  check(parameter.padded_rows >= parameter.shape[0], "parameters: ", parameter.name,
        " has fewer rows than its shape");
  parameter.offset = end_;
  end_ += round_up(parameter.arena_shape().numel(), kAlignment);
  rows_.push_back(std::move(parameter));
}

int ParameterTable::find(std::string_view name) const {
  const auto row = std::ranges::find(rows_, name, &Parameter::name);
  return row == rows_.end() ? -1 : static_cast<int>(row - rows_.begin());
}

std::int64_t ParameterTable::numel() const {
  std::int64_t n = 0;
  for (const Parameter& row : rows_) n += row.shape.numel();
  return n;
}

std::int64_t ParameterTable::arena_size(int ranks) const { return round_up(end_, kAlignment * ranks); }

std::vector<DecayRange> ParameterTable::decay_ranges(double weight_decay, ArenaRange part) const {
  std::vector<DecayRange> ranges;
  for (const Parameter& row : rows_) {
    const double decay = row.decays() ? weight_decay : 0;
    const std::int64_t begin = std::max(row.offset, part.begin) - part.begin;
    const std::int64_t end = std::min(row.offset + row.arena_shape().numel(), part.end) - part.begin;
    if (begin >= end) continue;
    // Neighbours with the same decay share a range; the gap between them is padding and holds zeros.
    if (!ranges.empty() && ranges.back().weight_decay == decay) {
      ranges.back().end = end;
    } else {
      ranges.push_back({begin, end, decay});
    }
  }
  return ranges;
}

Parameters::Parameters(Backend& backend, ParameterTable table, DType dtype, int ranks, Purpose purpose)
    : backend_(backend),
      table_(std::move(table)),
      weights_(backend.zeros(dtype, {table_.arena_size(ranks)})) {
  if (purpose == Purpose::training) grads_ = backend.zeros(dtype, weights_.shape());
  for (std::size_t i = 0; i < table_.size(); ++i) {
    const Parameter& row = table_[i];
    const Tensor weight = weights_.slice(row.offset, row.arena_shape());
    if (purpose == Purpose::training) {
      vars_.emplace_back(weight, grads_.slice(row.offset, row.arena_shape()), static_cast<int>(i));
    } else {
      vars_.emplace_back(weight);
    }
  }
}

void Parameters::initialize(std::uint64_t seed) {
  for (std::size_t i = 0; i < table_.size(); ++i) {
    const RandomKey key{seed, stream_id(RandomStream::init), static_cast<std::uint32_t>(i)};
    const Tensor& out = vars_[i].value();
    out.dtype() == DType::f64 ? draw<double>(backend_, out, table_[i], key)
                              : draw<float>(backend_, out, table_[i], key);
  }
}

const Var& Parameters::var(std::string_view name) const {
  const int i = table_.find(name);
  check(i >= 0, "parameters: there is no ", name);
  return vars_[i];
}

void Parameters::clear_grads() {
  for (const Var& var : vars_) var.clear_grad();
}

void Parameters::finish_grads() {
  for (std::size_t i = 0; i < vars_.size(); ++i) {
    const Parameter& row = table_[i];
    if (!vars_[i].grad_written()) backend_.fill(grads_.slice(row.offset, row.arena_shape()), 0);
  }
}

}  // namespace stagegpt
