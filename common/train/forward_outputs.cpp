#include "common/train/forward_outputs.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <tuple>
#include <utility>
#include <vector>

#include "common/autograd/ops/add.h"
#include "common/autograd/ops/attention.h"
#include "common/autograd/ops/layernorm.h"
#include "common/autograd/ops/linear.h"
#include "common/checkpoint/piece_stream.h"
#include "common/io/file.h"
#include "common/logging/step_trace.h"
#include "common/model/gpt2_config.h"
#include "common/parallel/parts.h"
#include "common/parallel/tensor_parallel.h"
#include "common/parallel/whole_values.h"
#include "common/train/checkpoint_arenas.h"

namespace stagegpt {
namespace {

template <class T>
void send_all(RankGroup& group, const T& values, int to) {
  const std::uint64_t size = values.size();
  group.send(std::as_bytes(std::span(&size, 1)), to);
  group.send(std::as_bytes(std::span(values)), to);
}

template <class T>
T receive_all(RankGroup& group, int from) {
  std::uint64_t size = 0;
  group.receive(std::as_writable_bytes(std::span(&size, 1)), from);
  T values;
  values.resize(size);
  group.receive(std::as_writable_bytes(std::span(values)), from);
  return values;
}

}  // namespace

ForwardOutputs::ForwardOutputs(const Grid& grid, Backend& backend, const LanguageModel& model)
    : grid_(grid),
      backend_(backend),
      model_(model),
      whole_table_(gpt2_parameter_table(model.config())),
      names_(model.parameters().table()) {}

Tape::OpWatch ForwardOutputs::watch() {
  return [this](std::string_view op, std::span<const Var> inputs, std::span<const Var> outputs) {
    record(op, inputs, outputs);
  };
}

void ForwardOutputs::record(std::string_view op, std::span<const Var> inputs, std::span<const Var> outputs) {
  if (op == kGathered) return;  // has been recorded in parts
  // At the end of a stage, one op of a single process is two ops: an addition here, and a layernorm on the
  // next stage.
  const ModelStage stage = stage_of(grid_);
  if (op == kLayernorm && !stage.is_first()) op = kResidualLayernorm;
  const std::vector<std::string> names = names_.of(op, inputs, outputs.size());
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    const Tensor& output = outputs[i].value();
    const Shape& shape = output.shape();
    if (shape.rank() == 1) continue;  // the loss of one forward pass
    Part part = part_of(op, inputs, shape);
    part.name = names[i];
    if (op == kAdd)
      part.name = concat("the residual stream before h.", stage.end_block(model_.config().n_layer), ".ln_1");
    if (op == kScatteredSum) {  // what was recorded last is a summand
      part.name = parts_.back().name;
      parts_.pop_back();
    }
    part.values = without_padding(floats_to_host(backend_, output), shape[-1], part.width());
    parts_.push_back(std::move(part));
    if (shape.rank() == 3) std::tie(B_, T_) = std::pair(shape[0], shape[1]);
  }
}

std::int64_t ForwardOutputs::Part::width() const {
  std::int64_t sum = 0;
  for (const auto& [first, count] : held) sum += count;
  return sum;
}

void ForwardOutputs::Part::copy_to(TracedOutput& whole) const {
  auto from = values.begin();
  const std::int64_t rows = std::ssize(whole.values) / columns;
  for (std::int64_t row = first_row; row < rows && from != values.end(); ++row) {
    for (const auto& [first, count] : held) {
      std::copy_n(from, count, whole.values.begin() + row * columns + first);
      from += count;
    }
  }
}

// As common/parallel/tensor_parallel.h divides them.
ForwardOutputs::Part ForwardOutputs::part_of(std::string_view op, std::span<const Var> inputs,
                                             const Shape& shape) const {
  const std::int64_t width = shape[-1], R = grid_.tensor().size(), r = grid_.tensor().rank();
  Part part{.columns = width, .held = {{0, width}}};
  if (shape.rank() == 2) part.first_row = r * shape[0];
  if (op == kAttention) {  // its heads
    part.columns = R * width;
    part.held = {{r * width, width}};
  }
  if (op == kLinear) {  // a column for each row of the matrix, but without padding
    const Parameter& matrix = model_.parameters().table()[static_cast<std::size_t>(inputs[1].leaf_id())];
    part.columns = whole_table_[static_cast<std::size_t>(matrix.number)].shape[0];
    part.held = {{0, part.columns}};
    if (!matrix.blocks.empty()) part.held.clear();
    for (const ParameterBlock& block : matrix.blocks) part.held.push_back({block.row, block.rows});
  }
  return part;
}

std::vector<TracedOutput> ForwardOutputs::collect() {
  std::vector<TracedOutput> outputs;
  RankGroup& ranks = grid_.model().group();
  if (!ranks.is_root()) {
    send_parts();
    parts_.clear();
    return outputs;
  }
  std::size_t first = 0;  // of the stage
  for (int rank = 0; rank < ranks.size(); ++rank) {
    if (rank % grid_.tensor().size() == 0) first = outputs.size();
    put(rank == 0 ? std::exchange(parts_, {}) : receive_parts(rank), outputs, first);
  }
  return outputs;
}

void ForwardOutputs::send_parts() const {
  RankGroup& ranks = grid_.model().group();
  auto described = nlohmann::json::array();
  for (const Part& part : parts_) {
    auto held = nlohmann::json::array();
    for (const Columns& columns : part.held) held.push_back({columns.first, columns.count});
    described.push_back(
        {{"name", part.name}, {"columns", part.columns}, {"first_row", part.first_row}, {"held", held}});
  }
  send_all(ranks, described.dump(), 0);
  for (const Part& part : parts_) send_all(ranks, part.values, 0);
}

std::vector<ForwardOutputs::Part> ForwardOutputs::receive_parts(int rank) const {
  RankGroup& ranks = grid_.model().group();
  std::vector<Part> parts;
  for (const auto& described : nlohmann::json::parse(receive_all<std::string>(ranks, rank))) {
    Part part{
        .name = described["name"], .columns = described["columns"], .first_row = described["first_row"]};
    for (const auto& columns : described["held"]) part.held.push_back({columns[0], columns[1]});
    parts.push_back(std::move(part));
  }
  for (Part& part : parts) {
    part.values = receive_all<std::vector<float>>(ranks, rank);
    grid_.world().group().beat();
  }
  return parts;
}

void ForwardOutputs::put(std::vector<Part> parts, std::vector<TracedOutput>& outputs,
                         std::size_t first) const {
  for (std::size_t i = 0; i < parts.size(); ++i) {
    Part& part = parts[i];
    const bool is_first = first + i == outputs.size();
    if (is_first) outputs.push_back({std::exchange(part.name, {}), {B_, T_, part.columns}, {}});
    std::vector<float>& values = outputs[first + i].values;
    const auto size = static_cast<std::size_t>(B_ * T_ * part.columns);
    if (is_first && part.values.size() == size) {
      values = std::move(part.values);
    } else {
      values.resize(size);
      part.copy_to(outputs[first + i]);
    }
  }
}

StepReport traced_step(Trainer& trainer, const Grid& grid, Backend& backend, const LanguageModel& model,
                       LayerWatch* layers, const std::filesystem::path& directory) {
  RankGroup& group = grid.world().group();
  const bool is_of_first_model = grid.data().rank() == 0;
  ForwardOutputs outputs(grid, backend, model);
  const StepReport report = trainer.step(is_of_first_model ? outputs.watch() : Tape::OpWatch(), layers);
  group.enter("trace");
  trainer.gather_weights();
  std::vector<TracedOutput> traced;
  if (is_of_first_model) traced = outputs.collect();

  constexpr std::size_t kGradients = 0, kWeights = 1;
  const ParameterTable table = gpt2_parameter_table(model.config());
  PieceStream stream(group, backend, placed_in_parts(table, grid),
                     {gradient_arena(grid, model, trainer.optimizer()),
                      checkpoint_arenas(grid, model, trainer.optimizer()).front()});
  stream.run([&] {
    make_directories(directory);
    write_trace(directory / trace_name(trainer.steps_done()), table,
                {std::move(traced), report.loss, stream.values(kGradients), stream.values(kWeights)},
                [&] { group.beat(); });
  });
  return report;
}

}  // namespace stagegpt
