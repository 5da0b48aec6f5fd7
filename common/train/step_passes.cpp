#include "common/train/step_passes.h"

#include <utility>

#include "common/comm/agreement.h"
#include "common/parallel/parts.h"
#include "common/parallel/pipeline.h"

namespace stagegpt {

bool repeats_passes(const Backend& backend, const GradientSync& sync, const TrainerConfig& config) {
  return backend.records() &&
         (!sync.traits().communicates || config.reproducible || config.grad_accumulation > 1);
}

StepPasses::StepPasses(Backend& backend, const Grid& grid, GradientSync& sync, LanguageModel& model,
                       const DataLoader& data, const TrainerConfig& config, PhaseClock& clock)
    : backend_(backend),
      grid_(grid),
      sync_(sync),
      model_(model),
      batches_(data,
               divide_step(config.batch_size, config.grad_accumulation, grid.data().rank(),
                           grid.data().size(), config.fixed_sub_batches()),
               config.timeline),
      config_(config),
      clock_(clock),
      schedule_(make_schedule(backend, grid_, model, division().sub_batch_size(), batches_.seq_len())) {
  if (config.reproducible) tree_.emplace(backend, division().owned_sub_batches);
  if (backend.must_record() && !repeats_passes(backend, sync, config)) {
    throw AgreedUserError(
        "--gpu-graph: on is not possible, because the last micro-step of a step sends gradients and is not "
        "recorded, and here it is the only one: add --grad-accumulation 2 or more, or --reproducible");
  }
}

void StepPasses::run(std::int64_t step, const Tape::OpWatch& watch, LayerWatch* layers) {
  step_ = step;
  watch_ = watch;
  layers_ = layers;
  if (config_.overfit_batch) batches_.seek(0);
  if (inputs_.empty()) allocate();
  // Backward begins with 1/passes in place of 1, so that the sum of the gradients of all passes and ranks is
  // that of the mean loss. The losses themselves are not scaled.
  const double loss_scale = 1.0 / static_cast<double>(division().all_passes());
  // Calls fetch(), begin(), compute(), which calls forward() and backward(), and end() of each pass.
  schedule_->run(division().passes(), loss_scale, *this);
  watch_ = {};
  layers_ = nullptr;
}

void StepPasses::allocate() {
  for (std::int64_t i = 0; i < schedule_->most_in_flight(); ++i)
    inputs_.emplace_back(backend_, division().sub_batch_size(), batches_.seq_len());
  const Shape passes{division().passes()};
  if (!stage_of(grid_).is_last()) {
    losses_ = backend_.zeros(DType::f32, passes);
    return;
  }
  loss_ = backend_.allocate(DType::f32, {1});
  losses_ = backend_.allocate(DType::f32, passes);
}

void StepPasses::fetch(std::int64_t pass) {
  group().enter("data");
  const auto [batch, first_sample] = batches_.next();
  const PassPosition position{static_cast<std::int32_t>(step_), static_cast<std::int32_t>(first_sample)};
  inputs(pass).send_ahead(batch, position);
}

void StepPasses::begin(std::int64_t pass) {
  inputs(pass).receive();
  clock_.end(&PhaseSeconds::data);
}

void StepPasses::compute(std::int64_t pass, const std::function<void()>& both) {
  repeated_ = backend_.records() && !is_watched(pass) && !sends(pass);
  if (!repeated_) return both();
  group().enter("backward");  // a CUDA graph that is launched calls neither forward() nor backward()
  backend_.repeat(is_first(pass) ? first_pass_ : other_pass_, both);
}

Var StepPasses::forward(Tape& tape, std::int64_t pass, Var before) {
  if (is_first(pass)) model_.parameters().clear_grads();
  group().enter("forward");
  if (is_watched(pass)) watch(tape, pass);
  const PassInputs& in = inputs(pass);
  Var out = model_.loss(tape, in.ids(), in.targets(),
                        {.dropout = DropoutPosition{.seed = config_.seed, .on_backend = in.position()},
                         .recompute = config_.recompute,
                         .before = std::move(before)});
  if (!repeated_) clock_.end(&PhaseSeconds::forward);
  return out;
}

void StepPasses::backward(Tape& tape, std::int64_t pass, Var out, Tensor dout) {
  group().enter("backward");
  if (sends(pass)) send_when_ready(tape);
  run_backward(tape, out, std::move(dout));
  // To a fixed address, because this may be recorded in a CUDA graph; end() copies on, to the place of the
  // pass.
  if (loss_.defined()) backend_.copy(loss_, out.value());
}

void StepPasses::end(std::int64_t pass) {
  if (loss_.defined()) backend_.copy(losses_.slice(pass, {1}), loss_);
  if (is_last(pass)) {
    model_.parameters().finish_grads();
    if (tree_) tree_->add(model_.parameters().grads());
  }
  clock_.end(&PhaseSeconds::backward);
}

void StepPasses::send_when_ready(Tape& tape) {
  tape.on_leaf_ready([this](int parameter) {
    if (parameter < 0) return;  // the stream that a stage of a pipeline has received: no parameter
    if (grid_.data().size() == 1) return sync_.ready(model_.parameters(), parameter);
    clock_.end(&PhaseSeconds::backward);
    sync_.ready(model_.parameters(), parameter);
    clock_.end(&PhaseSeconds::communication);
  });
}

void StepPasses::watch(Tape& tape, std::int64_t pass) const {
  tape.on_op([first = pass == 0 ? watch_ : Tape::OpWatch(), layers = layers_](
                 std::string_view op, std::span<const Var> inputs, std::span<const Var> outs) {
    if (first) first(op, inputs, outs);
    if (layers != nullptr) layers->look(op, inputs, outs);
  });
}

}  // namespace stagegpt
