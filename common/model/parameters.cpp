#include "common/model/parameters.h"

#include <fnmatch.h>

#include <algorithm>
#include <optional>
#include <type_traits>
#include <utility>

#include "common/backend/ops/elementwise.h"
#include "common/base/in_order.h"
#include "common/random/normal.h"
#include "common/system/stop_signals.h"
#include "common/tensor/quantised_rows.h"

namespace stagegpt {
namespace {

std::int64_t round_up(std::int64_t n, std::int64_t multiple) {
  return (n + multiple - 1) / multiple * multiple;
}

constexpr std::int64_t kDrawn = 1 << 18;  // elements in a piece: 1 MB in f32

template <class T>
std::vector<T> draw(const Parameter& parameter, const RandomKey& key, const Piece& piece) {
  std::vector<T> values(static_cast<std::size_t>(piece.size()), static_cast<T>(parameter.init_mean));
  if (parameter.init_std == 0) return values;
  parameter.for_each_run(piece.begin, piece.end, [&](std::int64_t i, std::int64_t whole, std::int64_t n) {
    const std::span<T> run =
        std::span(values).subspan(static_cast<std::size_t>(i - piece.begin), static_cast<std::size_t>(n));
    const auto first = static_cast<std::uint64_t>(whole);
    if constexpr (std::is_same_v<T, float>) {
      draw_normal(key, first, parameter.init_mean, parameter.init_std, run);
    } else {
      for (std::size_t k = 0; k < run.size(); ++k)
        run[k] += parameter.init_std * random_normal(key, first + k);
    }
  });
  return values;
}

// Draws pieces on several threads; the calling thread copies them into the arena.
template <class T>
void draw_all(Backend& backend, const Tensor& weights, const ParameterTable& table, ArenaRange part,
              std::uint64_t seed, int threads) {
  const std::vector<Piece> pieces = table.pieces(part, kDrawn);
  auto next = pieces.begin();
  const auto produce = [&] { return next == pieces.end() ? std::nullopt : std::optional(*next++); };
  const auto work = [&](const Piece& piece) {
    StopSignals::throw_if_requested();
    const Parameter& parameter = table[piece.parameter];
    const RandomKey key{seed, stream_id(RandomStream::init), static_cast<std::uint32_t>(parameter.number)};
    return std::pair(piece, draw<T>(parameter, key, piece));
  };
  for_each_in_order(threads, produce, work, [&](const auto& drawn) {
    const auto& [piece, values] = drawn;
    const std::int64_t begin = table[piece.parameter].offset + piece.begin;
    upload<T>(backend, weights.slice(begin, {std::ssize(values)}), values);
  });
}

}  // namespace

std::int64_t total_size(const ArenaParts& parts) {
  std::int64_t size = 0;
  for (const ArenaRange& part : parts) size += part.size();
  return size;
}

void ParameterTable::add(Parameter parameter) {
  check(find(parameter.name) < 0, "parameters: ", parameter.name, " is there already");
  check(parameter.padded_rows >= parameter.shape[0], "parameters: ", parameter.name,
        " has fewer rows than its shape");
  parameter.offset = end_;
  if (parameter.number < 0) parameter.number = static_cast<int>(rows_.size());
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

std::int64_t ParameterTable::trained_numel() const {
  std::int64_t n = 0;
  for (const Parameter& row : rows_) n += row.trained ? row.shape.numel() : 0;
  return n;
}

std::int64_t ParameterTable::freeze(const std::string& pattern) {
  std::int64_t matches = 0;
  for (Parameter& row : rows_) {
    if (fnmatch(pattern.c_str(), row.name.c_str(), 0) != 0) continue;
    row.trained = false;
    ++matches;
  }
  return matches;
}

std::int64_t ParameterTable::arena_size(int parts) const { return round_up(end_, kAlignment * parts); }

std::vector<Piece> ParameterTable::pieces(const ArenaRange& part, std::int64_t most) const {
  std::vector<Piece> pieces;
  for (std::size_t i = 0; i < rows_.size(); ++i) {
    const Parameter& row = rows_[i];
    const std::int64_t end = std::min(row.shape.numel(), part.end - row.offset);
    for (std::int64_t begin = std::max<std::int64_t>(0, part.begin - row.offset); begin < end; begin += most)
      pieces.push_back({i, begin, std::min(begin + most, end)});
  }
  return pieces;
}

ArenaParts ParameterTable::norms() const {
  ArenaParts parts;
  for (const Parameter& row : rows_) {
    if (!row.norm) continue;
    const std::int64_t end = row.offset + row.arena_shape().numel();
    if (!parts.empty() && parts.back().end == row.offset) {
      parts.back().end = end;
    } else {
      parts.push_back({row.offset, end});
    }
  }
  return parts;
}

std::vector<DecayRange> ParameterTable::decay_ranges(
    double weight_decay, ArenaRange part, const std::function<bool(const Parameter&)>& chosen) const {
  std::vector<DecayRange> ranges;
  bool after_chosen = false;
  for (const Parameter& row : rows_) {
    const bool is_chosen = chosen(row), adjoins = std::exchange(after_chosen, is_chosen);
    if (!is_chosen) continue;
    const double decay = row.decays() ? weight_decay : 0;
    const std::int64_t begin = std::max(row.offset, part.begin) - part.begin;
    const std::int64_t end = std::min(row.offset + row.arena_shape().numel(), part.end) - part.begin;
    if (begin >= end) continue;
    // Neighbours with the same decay become one range. The gap between them is padding, which is zero.
    if (adjoins && !ranges.empty() && ranges.back().weight_decay == decay) {
      ranges.back().end = end;
    } else {
      ranges.push_back({begin, end, decay});
    }
  }
  return ranges;
}

Tensor zero_arena(Backend& backend, DType dtype, std::int64_t numel) {
  constexpr std::int64_t kFilled = std::int64_t{1} << 26;  // elements in a piece
  const Tensor arena = backend.allocate(dtype, {numel});
  for (std::int64_t begin = 0; begin < numel; begin += kFilled) {
    StopSignals::throw_if_requested();
    backend.fill(arena.slice(begin, {std::min(kFilled, numel - begin)}), 0);
  }
  return arena;
}

Parameters::Parameters(Backend& backend, ParameterTable table, DType dtype, int arena_parts, Purpose purpose,
                       std::optional<DType> activations)
    : backend_(backend),
      table_(std::move(table)),
      activations_(activations.value_or(dtype)),
      weights_(zero_arena(backend, dtype, table_.arena_size(arena_parts))) {
  if (purpose == Purpose::training) grads_ = zero_arena(backend, dtype, weights_.numel());
  if (activations_ != dtype) shadow_ = zero_arena(backend, activations_, weights_.numel());
  for (std::size_t i = 0; i < table_.size(); ++i) {
    const Parameter& row = table_[i];
    const Tensor& read = shadow_.defined() && !row.norm ? shadow_ : weights_;
    const Tensor weight = read.slice(row.offset, row.arena_shape());
    if (purpose == Purpose::training && row.trained) {
      vars_.emplace_back(weight, grads_.slice(row.offset, row.arena_shape()), static_cast<int>(i));
    } else {
      vars_.emplace_back(weight, static_cast<int>(i));
    }
  }
}

void Parameters::initialize(std::uint64_t seed, int threads) {
  initialize(seed, threads, {0, weights_.numel()});
}

void Parameters::initialize(std::uint64_t seed, int threads, ArenaRange part) {
  weights_.dtype() == DType::f64 ? draw_all<double>(backend_, weights_, table_, part, seed, threads)
                                 : draw_all<float>(backend_, weights_, table_, part, seed, threads);
}

void Parameters::narrow(DType dtype, const std::function<bool(const Parameter&)>& is_narrowed) {
  check(!grads_.defined() && !shadow_.defined(), "parameters: only an f32 model for inference is narrowed");
  // One arena for all matrices, so that it can lie in huge pages; one for the rest.
  struct Place {
    Shape shape;
    std::int64_t offset;
  };
  std::vector<Place> places;
  std::int64_t narrow_size = 0, wide_size = 0;
  for (const Parameter& row : table_.rows()) {
    Shape shape = row.arena_shape();
    if (is_narrowed(row) && dtype == DType::i8) shape = {shape[0], quantised_width(shape[1])};
    std::int64_t& size = is_narrowed(row) ? narrow_size : wide_size;
    places.push_back({shape, size});
    size = round_up(size + shape.numel(), ParameterTable::kAlignment);
  }
  const Tensor narrowed = backend_.allocate(dtype, {narrow_size});
  const Tensor wide = backend_.allocate(weights_.dtype(), {wide_size});
  for (std::size_t i = 0; i < table_.size(); ++i) {
    const Parameter& row = table_[i];
    const Tensor from = weights_.slice(row.offset, row.arena_shape());
    const Tensor to = (is_narrowed(row) ? narrowed : wide).slice(places[i].offset, places[i].shape);
    if (!is_narrowed(row)) {
      backend_.copy(to, from);
    } else if (dtype == DType::i8) {
      backend_.run(QuantiseRows{to, from});
    } else {
      backend_.run(Cast{to, from});
    }
    vars_[i] = Var(to, static_cast<int>(i));
  }
  backend_.synchronize();
  weights_ = Tensor();
}

const Var& Parameters::var(std::string_view name) const {
  const int i = table_.find(name);
  check(i >= 0, "parameters: there is no ", name);
  return vars_[i];
}

void Parameters::update_shadow() {
  if (shadow_.defined()) backend_.run(Cast{shadow_, weights_});
}

void Parameters::clear_grads() {
  for (const Var& var : vars_) {
    if (var.needs_grad()) var.clear_grad();
  }
}

void Parameters::finish_grads() {
  for (std::size_t i = 0; i < vars_.size(); ++i) {
    const Parameter& row = table_[i];
    if (vars_[i].needs_grad() && !vars_[i].grad_written())
      backend_.fill(grads_.slice(row.offset, row.arena_shape()), 0);
  }
}

}  // namespace stagegpt
