#include "common/train/layer_watch.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "common/autograd/ops/add.h"
#include "common/autograd/ops/layernorm.h"
#include "common/autograd/ops/linear.h"
#include "common/backend/ops/sums.h"
#include "common/comm/agreement.h"
#include "common/parallel/parts.h"
#include "common/parallel/tensor_parallel.h"

namespace stagegpt {
namespace {

// "h.3" for "h.3.mlp.c_fc.weight", "wte" for "wte.weight".
std::string layer_of(const std::string& parameter) {
  const std::size_t dot = parameter.find('.');
  return parameter.substr(0, parameter.starts_with("h.") ? parameter.find('.', dot + 1) : dot);
}

double squares(std::span<const float> values) {
  double sum = 0;
  for (const double x : values) sum += x * x;
  return sum;
}

// Below this, a unit adds nothing and learns nothing: |GELU(x)| < 2e-4 and |GELU'(x)| < 6e-4 for x < -4.
double dead_below(Activation activation) {
  if (activation == Activation::none) return -std::numeric_limits<double>::infinity();
  return activation == Activation::relu ? 0 : -4;
}

double ratio_of_norms(double squares, double of) {
  return of > 0 ? std::sqrt(squares / of) : std::numeric_limits<double>::quiet_NaN();
}

// Adds up what each rank has for the same place: `all` has n elements of rank 0, then n of rank 1, ….
template <class Sums>
std::vector<Sums> sum_by_place(const std::vector<Sums>& all, std::size_t n) {
  std::vector<Sums> sums(n);
  for (std::size_t i = 0; i < all.size(); ++i) sums[i % n].add(all[i]);
  return sums;
}

}  // namespace

LayerWatch::LayerWatch(const Grid& grid, Backend& backend, const LanguageModel& model,
                       const ArenaParts& owned)
    : grid_(grid),
      group_(grid.world().group()),
      backend_(backend),
      model_(model),
      blocks_(static_cast<std::size_t>(model.config().n_layer)),
      active_(static_cast<std::size_t>(model.config().n_layer * model.config().mlp_width())) {
  const ParameterTable whole = gpt2_parameter_table(model.config());
  std::vector<std::size_t> layers;  // by parameter
  for (const Parameter& row : whole.rows()) {
    const std::string layer = layer_of(row.name);
    if (layers_.empty() || layers_.back() != layer) layers_.push_back(layer);
    layers.push_back(layers_.size() - 1);
  }
  parameters_.resize(layers_.size());
  RankGroup& data = grid.data().group();
  // Data ranks own the same of the arena, or slices of it, which end at different places.
  const std::int64_t end_of_owned = owned.back().end;
  const bool divided = any(data, end_of_owned != from_root(data, end_of_owned));
  if (!divided && !data.is_root()) return;
  for (const Parameter& row : model.parameters().table().rows()) {
    if (row.blocks.empty() && grid.tensor().rank() > 0) continue;  // the first tensor rank has it too
    const std::int64_t end = row.offset + row.arena_shape().numel();
    for (const ArenaRange& part : owned) {
      const ArenaRange range{std::max(part.begin, row.offset), std::min(part.end, end)};
      if (range.begin < range.end) pieces_.push_back({layers[static_cast<std::size_t>(row.number)], range});
    }
  }
}

void LayerWatch::mark_active(const Tensor& units) {
  const std::vector<float> values = floats_to_host(backend_, units);
  const auto I = static_cast<std::size_t>(model_.config().mlp_width()),
             own = static_cast<std::size_t>(units.shape()[-1]),
             first = own * static_cast<std::size_t>(grid_.tensor().rank());
  const double limit = dead_below(model_.config().activation);
  char* active = active_.data() + static_cast<std::size_t>(additions_ / 2) * I + first;
  for (std::size_t i = 0; i < values.size(); ++i) active[i % own] |= values[i] > limit;
}

// The last ranks may have rows beyond N, which are zero.
double LayerWatch::elements_of(const Shape& stream) const {
  if (stream.rank() == 3) return static_cast<double>(stream.numel());
  const std::int64_t rows = stream[0], first = grid_.tensor().rank() * rows;
  return static_cast<double>(std::clamp(tokens_ - first, std::int64_t{0}, rows) * stream[1]);
}

void LayerWatch::look(std::string_view op, std::span<const Var> inputs, std::span<const Var> outputs) {
  if (op == kLayernorm) {  // the first of the pass; all others are part of an addition
    stream_squares_ = squares(floats_to_host(backend_, inputs[0].value()));
    additions_ = 2 * stage_of(grid_).first_block(model_.config().n_layer);
  }
  if (op == kGathered) tokens_ = outputs[0].value().numel() / model_.config().n_embd;
  if (op == kActivationLinear) mark_active(inputs[0].value());
  // The last addition of a stage has no layernorm.
  if (op != kResidualLayernorm && op != kAdd) return;
  BlockSums& block = blocks_[static_cast<std::size_t>(additions_ / 2)];
  const bool of_mlp = additions_++ % 2 == 1;
  (of_mlp ? block.before_mlp : block.before_attention) += stream_squares_;
  (of_mlp ? block.mlp : block.attention) += squares(floats_to_host(backend_, inputs[1].value()));
  const Tensor& out = outputs[0].value();
  const std::vector<float> stream = floats_to_host(backend_, out);
  stream_squares_ = squares(stream);
  if (!of_mlp) return;
  block.elements += elements_of(out.shape());
  block.squares += stream_squares_;
  for (const double x : stream) {
    block.sum += x;
    block.largest = std::max(block.largest, std::abs(x));
  }
}

void LayerWatch::before_update() {
  const Tensor norms = backend_.allocate(DType::f64, {std::max<std::int64_t>(1, std::ssize(pieces_))});
  before_.clear();
  for (std::size_t i = 0; i < pieces_.size(); ++i) {
    const ArenaRange& range = pieces_[i].range;
    backend_.run(
        SquaredNorm{norms.slice(static_cast<std::int64_t>(i), {1}), model_.parameters().grads(range)});
    before_.push_back(
        floats_to_host(backend_, model_.parameters().weights().slice(range.begin, {range.size()})));
    parameters_[pieces_[i].layer].weights += squares(before_.back());
    group_.beat();
  }
  const std::vector<double> of_gradients = to_host<double>(backend_, norms);
  for (std::size_t i = 0; i < pieces_.size(); ++i) parameters_[pieces_[i].layer].gradients += of_gradients[i];
}

void LayerWatch::after_update() {
  for (std::size_t i = 0; i < pieces_.size(); ++i) {
    const ArenaRange& range = pieces_[i].range;
    const std::vector<float> after =
        floats_to_host(backend_, model_.parameters().weights().slice(range.begin, {range.size()}));
    double& sum = parameters_[pieces_[i].layer].updates;
    for (std::size_t j = 0; j < after.size(); ++j) {
      const double difference = static_cast<double>(after[j]) - static_cast<double>(before_[i][j]);
      sum += difference * difference;
    }
    before_[i] = {};
    group_.beat();
  }
}

void LayerWatch::ParameterSums::add(const ParameterSums& other) {
  gradients += other.gradients;
  weights += other.weights;
  updates += other.updates;
}

void LayerWatch::BlockSums::add(const BlockSums& other) {
  elements += other.elements;
  sum += other.sum;
  squares += other.squares;
  largest = std::max(largest, other.largest);
  before_attention += other.before_attention;
  attention += other.attention;
  before_mlp += other.before_mlp;
  mlp += other.mlp;
}

BlockActivations LayerWatch::activations(const BlockSums& sums, std::span<const char> active) {
  const auto dead = static_cast<double>(std::ranges::count(active, 0));
  return {.mean = sums.sum / sums.elements,
          .rms = std::sqrt(sums.squares / sums.elements),
          .largest = sums.largest,
          .attention_added = ratio_of_norms(sums.attention, sums.before_attention),
          .mlp_added = ratio_of_norms(sums.mlp, sums.before_mlp),
          .dead_units = dead / static_cast<double>(active.size())};
}

std::vector<LayerHealth> LayerWatch::finish() {
  const std::vector<ParameterSums> parameters = sum_by_place(gather(group_, parameters_), parameters_.size());
  const std::vector<BlockSums> blocks = sum_by_place(gather(group_, blocks_), blocks_.size());
  std::vector<char> active(active_.size());
  const std::vector<char> all = gather(group_, active_);
  for (std::size_t i = 0; i < all.size(); ++i) active[i % active.size()] |= all[i];

  std::vector<LayerHealth> health;
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    const ParameterSums& sums = parameters[i];
    health.push_back({.name = layers_[i],
                      .grad_norm = std::sqrt(sums.gradients),
                      .weight_norm = std::sqrt(sums.weights),
                      .update_ratio = ratio_of_norms(sums.updates, sums.weights),
                      .activations = {}});
    if (!layers_[i].starts_with("h.")) continue;
    const auto l = static_cast<std::size_t>(std::stoi(layers_[i].substr(2)));
    const std::size_t units = active.size() / blocks.size();
    health.back().activations = activations(blocks[l], std::span(active).subspan(l * units, units));
  }
  return health;
}

}  // namespace stagegpt
