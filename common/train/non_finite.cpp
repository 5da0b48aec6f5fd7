#include "common/train/non_finite.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "common/backend/ops/sums.h"
#include "common/base/error.h"
#include "common/comm/agreement.h"
#include "common/logging/step_trace.h"

namespace stagegpt {
namespace {

// On the host, element by element; the squared norm would overflow for large finite elements.
bool all_finite(Backend& backend, const Tensor& tensor) {
  const auto finite = [](auto x) { return std::isfinite(x); };
  if (tensor.dtype() == DType::f64) return std::ranges::all_of(to_host<double>(backend, tensor), finite);
  return std::ranges::all_of(floats_to_host(backend, tensor), finite);
}

struct FoundTensor {
  std::string name;
  // When it is there: the first op of the forward pass that reads or writes it, counted from 0; gradients
  // come after all ops, in the order of the backward pass.
  std::int64_t time = 0;

  static constexpr std::int64_t kMostOps = std::int64_t{1} << 32;   // of a stage of the model
  static constexpr std::int64_t kBackward = std::int64_t{1} << 48;  // after all stages
};

// Checks the ops of a forward pass until a tensor is not finite.
class Search {
 public:
  Search(Backend& backend, const ParameterTable& table) : backend_(backend), table_(table), names_(table) {}

  void look(std::string_view op, std::span<const Var> inputs, std::span<const Var> outputs) {
    if (found_) return;
    for (const Var& input : inputs) {
      if (input.leaf_id() >= 0 && !all_finite(backend_, input.value())) {
        found_ = {weight_name(table_[static_cast<std::size_t>(input.leaf_id())]), time_};
      }
    }
    const std::vector<std::string> names = names_.of(op, inputs, outputs.size());
    for (std::size_t i = 0; i < outputs.size() && !found_; ++i) {
      if (!all_finite(backend_, outputs[i].value())) found_ = {names[i], time_};
    }
    ++time_;
  }
  const std::optional<FoundTensor>& found() const { return found_; }

 private:
  Backend& backend_;
  const ParameterTable& table_;
  OutputNames names_;
  std::int64_t time_ = 0;
  std::optional<FoundTensor> found_;
};

// Runs a forward pass on ids, targets i32 (B,T), and checks the weights and outputs of each op in turn.
// Returns the first one that contains infinity or NaN, or nothing.
std::optional<FoundTensor> first_non_finite_output(Backend& backend, const LanguageModel& model,
                                                   const Tensor& ids, const Tensor& targets,
                                                   const DropoutPosition& dropout) {
  Search search(backend, model.parameters().table());
  Tape tape(backend, Tape::Mode::inference);
  tape.on_op([&](std::string_view op, std::span<const Var> inputs, std::span<const Var> outputs) {
    search.look(op, inputs, outputs);
  });
  model.loss(tape, ids, targets, {.dropout = dropout});
  return search.found();
}

// The first parameter, in the order of the backward pass, whose gradient has a norm that is not finite.
std::optional<FoundTensor> first_non_finite_gradient(Backend& backend, const Parameters& parameters) {
  const Tensor squared_norm = backend.allocate(DType::f64, {1});
  std::optional<FoundTensor> first;
  for (std::size_t i = 0; i < parameters.table().size(); ++i) {
    const Parameter& parameter = parameters.table()[i];
    const std::int64_t time = FoundTensor::kBackward + FoundTensor::kMostOps - parameter.number;
    if (first && first->time < time) continue;
    backend.run(
        SquaredNorm{squared_norm, parameters.grads().slice(parameter.offset, parameter.arena_shape())});
    if (!std::isfinite(to_host<double>(backend, squared_norm)[0])) first = {gradient_name(parameter), time};
  }
  return first;
}

std::string counted(std::int64_t steps) { return concat(steps, steps == 1 ? " step" : " steps"); }

}  // namespace

double unsigned_nan(double x) { return std::isnan(x) ? std::numeric_limits<double>::quiet_NaN() : x; }

std::string first_non_finite(Backend& backend, const Grid& grid, const LanguageModel& model,
                             BatchStream& batches, std::uint64_t seed, std::int64_t step) {
  const StepDivision& division = batches.division();
  RankGroup& group = grid.world().group();
  std::optional<FoundTensor> found;
  const std::int64_t after = batches.position();
  batches.seek(after - division.samples());
  // The ranks of one model search together.
  RankGroup& model_ranks = grid.model().group();
  for (std::int64_t i = 0; i < division.passes() && !any(model_ranks, found.has_value()); ++i) {
    const SubBatch sub_batch = batches.next();
    const Shape shape{division.sub_batch_size(), batches.seq_len()};
    found =
        first_non_finite_output(backend, model, to_device<std::int32_t>(backend, shape, sub_batch.batch.ids),
                                to_device<std::int32_t>(backend, shape, sub_batch.batch.targets),
                                {seed, static_cast<std::uint32_t>(step), sub_batch.first_sample});
  }
  batches.seek(after);
  // The first one of all ranks is the cause: what is wrong on one rank is soon wrong on all. A tensor of the
  // forward pass comes before all gradients, which have been reduced over all data ranks.
  if (found) {
    found->time += grid.pipeline().rank() * FoundTensor::kMostOps;
  } else {
    found = first_non_finite_gradient(backend, model.parameters());
  }
  constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::max();
  const std::vector<std::int64_t> times = gather(group, found ? found->time : kNever);
  const auto first = std::ranges::min_element(times);
  if (*first == kNever) return "an unknown tensor, which a second forward pass does not reproduce,";
  const int rank = static_cast<int>(first - times.begin());
  const std::string what = broadcast_text(group, found ? found->name : "", rank);
  return *first < FoundTensor::kBackward && group.size() > 1 ? concat(what, " on rank ", rank) : what;
}

void NonFiniteSteps::count(const StepReport& report) {
  last_ = !report.finite();
  steps_ += last_;
  skipped_ += report.skipped();
  in_a_row_ = report.skipped() ? in_a_row_ + 1 : 0;
}

bool NonFiniteSteps::end_run() const {
  return last_ && (rule_ == NonFinite::stop || in_a_row_ == kMostInARow);
}

std::string NonFiniteSteps::description(const StepReport& report, const std::string& first) const {
  const std::string what = concat("step ", report.step + 1, ": ", first, " is not finite (loss ", report.loss,
                                  ", gradient norm ", report.grad_norm, ")");
  if (rule_ == NonFinite::stop) return what;
  const bool is_last = steps_ == kTold && !end_run();
  return concat(what, "; ", counted(skipped_), " skipped",
                end_run() ? concat(", ", in_a_row_, " in a row") : "",
                is_last ? "; further ones are counted but not reported" : "");
}

std::string NonFiniteSteps::summary() const {
  if (steps_ == 0) return "";
  return concat("note: loss or gradient not finite in ", counted(steps_), ", ", counted(skipped_),
                " skipped");
}

}  // namespace stagegpt
