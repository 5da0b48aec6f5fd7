#include "common/train/trainer.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <limits>

#include "common/base/error.h"
#include "common/base/seconds_since.h"
#include "common/comm/agreement.h"
#include "common/parallel/pipeline.h"
#include "common/parallel/whole_values.h"
#include "common/train/non_finite.h"

namespace stagegpt {
namespace {

// Calls `first`, if there is one, and then `layers`, if there is one.
Tape::OpWatch both(const Tape::OpWatch& first, LayerWatch* layers) {
  if (layers == nullptr) return first;
  return [=](const char* op, std::span<const Var> inputs, std::span<const Var> outs) {
    if (first) first(op, inputs, outs);
    layers->look(op, inputs, outs);
  };
}

}  // namespace

Trainer::Trainer(Backend& backend, const Grid& grid, GradientSync& sync, Gpt2& model, const DataLoader& data,
                 const TrainerConfig& config)
    : backend_(backend),
      grid_(grid),
      model_(model),
      grid_sync_(grid, sync, backend, model),
      sync_(grid_sync_.all()),
      division_(divide_step(config.batch_size, config.grad_accumulation, grid.data().rank(),
                            grid.data().size(), config.fixed_sub_batches())),
      batches_(data, division_, config.timeline),
      config_(config),
      clock_(backend.make_timer()),
      optimizer_(backend, model.parameters(), config.adamw, sync_.owned(model.parameters().weights().numel()),
                 sync_.norm_in_blocks()) {
  if (config.reproducible) tree_.emplace(backend, division_.owned_sub_batches);
  if (backend.records() && sync_.communicates() && division_.micro_steps == 1 && !config.reproducible) {
    throw AgreedUserError(
        "--gpu-graph: on repeats the micro-steps before a step's last one, which sends gradients: it needs "
        "--grad-accumulation 2 or more");
  }
}

void Trainer::restore(std::int64_t steps_done, std::int64_t data_position) {
  step_ = steps_done;
  samples_ = data_position;
  batches_.seek(data_position);
}

StepReport Trainer::step(const Tape::OpWatch& watch_op, LayerWatch* layers) {
  StepReport report;
  report.step = step_;
  report.learning_rate = config_.schedule.at(step_);
  Parameters& parameters = model_.parameters();
  if (config_.overfit_batch) batches_.seek(0);
  clock_.start();
  grid_.pipeline().size() > 1 ? run_pipeline(watch_op, layers) : run_passes(watch_op, layers);

  group().enter("communication");
  sync_.finish(parameters);
  clock_.end(&PhaseSeconds::communication);

  group().enter("optimizer");
  update(report.learning_rate, layers);
  sync_.share_weights(parameters);
  clock_.end(&PhaseSeconds::communication);

  // With one process, the host has not waited for the device so far.
  read_results(report);
  report.communication = sync_.take_report();
  ++step_;
  samples_ += division_.samples();
  return report;
}

DropoutPosition Trainer::dropout_position(std::int64_t step, const SubBatch& sub_batch) const {
  return {config_.seed, static_cast<std::uint32_t>(step), sub_batch.first_sample};
}

double Trainer::loss_scale() const {
  return 1.0 / static_cast<double>(division_.micro_steps * division_.sub_batches);
}

void Trainer::send_next_batch(PassInputs& inputs) {
  group().enter("data");
  const auto [batch, first_sample] = batches_.next();
  inputs.send_ahead(batch, {static_cast<std::int32_t>(step_), static_cast<std::int32_t>(first_sample)});
}

void Trainer::allocate_passes(std::int64_t in_flight) {
  if (!inputs_.empty()) return;
  for (std::int64_t i = 0; i < in_flight; ++i)
    inputs_.emplace_back(backend_, division_.sub_batch_size(), batches_.seq_len());
  loss_ = backend_.allocate(DType::f32, {1});
  losses_ = backend_.allocate(DType::f32, {division_.passes()});
}

void Trainer::run_passes(const Tape::OpWatch& watch, LayerWatch* layers) {
  const std::int64_t passes = division_.passes();
  allocate_passes(/*in_flight=*/1);
  send_next_batch(inputs_[0]);
  for (std::int64_t pass = 0; pass < passes; ++pass) {
    const std::int64_t micro_step = pass % division_.micro_steps;
    const bool last = micro_step + 1 == division_.micro_steps;
    inputs_[0].receive();
    clock_.end(&PhaseSeconds::data);
    run_pass({.first = micro_step == 0,
              .last = last && !tree_,
              .watch = both(pass == 0 ? watch : Tape::OpWatch(), layers)});
    backend_.copy(losses_.slice(pass, {1}), loss_);
    if (last) {
      model_.parameters().finish_grads();
      if (tree_) tree_->add(model_.parameters().grads());
    }
    clock_.end(&PhaseSeconds::backward);
    if (pass + 1 < passes) send_next_batch(inputs_[0]);
  }
}

void Trainer::run_pass(const Pass& pass) {
  const bool repeated = backend_.records() && !pass.watch && !(pass.last && sync_.communicates());
  if (!repeated) return compute_pass(pass, /*timed=*/true);
  group().enter("backward");  // a graph that is launched does not run compute_pass()
  backend_.repeat(pass.first ? first_pass_ : other_pass_, [&] { compute_pass(pass, /*timed=*/false); });
}

void Trainer::compute_pass(const Pass& pass, bool timed) {
  Parameters& parameters = model_.parameters();
  if (pass.first) parameters.clear_grads();
  group().enter("forward");
  // The loss is scaled to the mean over all sub-batches, so that gradients are summed over ranks without
  // division.
  Tape tape(backend_, Tape::Mode::training, loss_scale());
  tape.on_op(pass.watch);
  const Var loss = forward(tape, inputs_[0], {});
  if (timed) clock_.end(&PhaseSeconds::forward);

  group().enter("backward");
  if (pass.last && sync_.communicates()) reduce_when_ready(tape);
  tape.backward(loss);
  backend_.copy(loss_, loss.value());
}

Var Trainer::forward(Tape& tape, const PassInputs& inputs, Var before) const {
  return model_.stage_output(tape, inputs.ids(), inputs.targets(), std::move(before),
                             DropoutPosition{.seed = config_.seed, .on_backend = inputs.position()},
                             config_.recompute);
}

void Trainer::reduce_when_ready(Tape& tape) {
  tape.on_leaf_ready([this](int parameter) {
    if (parameter < 0) return;  // what a stage has received
    if (grid_.data().size() == 1) return sync_.ready(model_.parameters(), parameter);
    clock_.end(&PhaseSeconds::backward);
    sync_.ready(model_.parameters(), parameter);
    clock_.end(&PhaseSeconds::communication);
  });
}

void Trainer::run_pipeline(const Tape::OpWatch& watch, LayerWatch* layers) {
  Communicator& stages = grid_.pipeline();
  const bool is_last = stages.rank() + 1 == stages.size();
  const std::int64_t passes = division_.passes();
  Pipeline pipeline(backend_, stages, model_.stream_shape(division_.sub_batch_size(), batches_.seq_len()),
                    model_.parameters().activations());
  allocate_passes(pipeline.most_in_flight());
  if (!is_last) backend_.fill(losses_, 0);
  const auto inputs_of = [&](std::int64_t i) -> PassInputs& {
    return inputs_[static_cast<std::size_t>(i) % inputs_.size()];
  };
  const auto compute = [&](Tape& tape, std::int64_t i, Var before) {
    clock_.end(&PhaseSeconds::communication);
    PassInputs& inputs = inputs_of(i);
    inputs.receive();
    clock_.end(&PhaseSeconds::data);
    group().enter("forward");
    tape.on_op(both(i == 0 ? watch : Tape::OpWatch(), layers));
    Var out = forward(tape, inputs, std::move(before));
    if (is_last) backend_.copy(losses_.slice(i, {1}), out.value());
    clock_.end(&PhaseSeconds::forward);
    if (i + 1 < passes) send_next_batch(inputs_of(i + 1));
    return out;
  };
  const auto backward = [&](Tape& tape, std::int64_t i, Var out, Tensor dout) {
    clock_.end(&PhaseSeconds::communication);
    group().enter("backward");
    if (i + 1 == passes && sync_.communicates()) reduce_when_ready(tape);
    is_last ? tape.backward(out) : tape.backward({std::move(out)}, {std::move(dout)});
    clock_.end(&PhaseSeconds::backward);
  };
  model_.parameters().clear_grads();
  send_next_batch(inputs_of(0));
  pipeline.run(passes, loss_scale(), compute, backward);
  model_.parameters().finish_grads();
}

void Trainer::update(double learning_rate, LayerWatch* layers) {
  const Parameters& parameters = model_.parameters();
  const bool repeated = backend_.records() && !sync_.communicates() && layers == nullptr;
  const auto end = [&](PhaseClock::Phase phase) {
    if (!repeated) clock_.end(phase);
  };
  optimizer_.set_step(learning_rate, step_);
  const auto update = [&] {
    optimizer_.measure_norms(parameters);
    end(&PhaseSeconds::optimizer);
    sync_.sum_squared_norms(optimizer_.squared_norm(), optimizer_.squared_norms());
    end(&PhaseSeconds::communication);
    if (layers != nullptr) layers->before_update();
    optimizer_.update(parameters);
    if (layers != nullptr) layers->after_update();
  };
  repeated ? backend_.repeat(update_, update) : update();
  clock_.end(&PhaseSeconds::optimizer);
}

void Trainer::read_results(StepReport& report) {
  double squared_norm = 0;
  std::vector<float> losses(static_cast<std::size_t>(losses_.numel()));
  const std::array copies = {host_copy(std::span(&squared_norm, 1), optimizer_.squared_norm()),
                             host_copy(std::span(losses), losses_)};
  backend_.copy_to_host(copies);
  report.grad_norm = unsigned_nan(std::sqrt(squared_norm));
  clock_.add_to(report.seconds);

  const auto start = std::chrono::steady_clock::now();
  gather_report(losses, report);
  report.seconds.communication += seconds_since(start);
}

void Trainer::gather_report(const std::vector<float>& losses, StepReport& report) {
  const PhaseSeconds& seconds = report.seconds;
  const double own_seconds = seconds.total() - seconds.communication;
  std::vector<double> own = {own_seconds};
  own.insert(own.end(), losses.begin(), losses.end());
  const std::vector<double> all = gather(group(), own);
  // In the order of ranks, which is the order of sub-batches: it does not depend on the number of ranks.
  // Tensor ranks have the same losses, and of stages only the last has them.
  const auto tensor_ranks = static_cast<std::size_t>(grid_.tensor().size()),
             first_of_last =
                 static_cast<std::size_t>(group().size() - grid_.data().size() * grid_.tensor().size());
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (i % own.size() == 0) {
      report.rank_seconds.push_back(all[i]);
    } else if (const std::size_t rank = i / own.size(); rank >= first_of_last && rank % tensor_ranks == 0) {
      report.loss += all[i] / static_cast<double>(division_.micro_steps * division_.sub_batches);
    }
  }
  report.loss = unsigned_nan(report.loss);
  const auto [least, most] = std::ranges::minmax_element(report.rank_seconds);
  report.least_rank_seconds = *least;
  report.most_rank_seconds = *most;
  report.slowest_rank = static_cast<int>(most - report.rank_seconds.begin());
}

std::vector<OwnedArena> Trainer::arenas() const {
  const Tensor& weights = model_.parameters().weights();
  const std::int64_t offset = begin_of_part(gpt2_parameter_table(model_.config()), grid_);
  OwnedArena all{{{offset, offset + weights.numel()}}, {weights}}, m, v;
  for (const auto& [range, moments, decay] : optimizer_.parts()) {
    for (OwnedArena* const arena : {&m, &v})
      arena->owned.push_back({offset + range.begin, offset + range.end});
    m.parts.push_back(moments.m);
    v.parts.push_back(moments.v);
  }
  return {std::move(all), std::move(m), std::move(v)};
}

OwnedArena Trainer::gradients() const {
  const std::int64_t offset = begin_of_part(gpt2_parameter_table(model_.config()), grid_);
  OwnedArena arena;
  for (const ArenaRange& range : optimizer_.owned()) {
    arena.owned.push_back({offset + range.begin, offset + range.end});
    arena.parts.push_back(model_.parameters().grads(range));
  }
  return arena;
}

void Trainer::load_moments(const MomentValues& values) {
  const ParameterTable& table = model_.parameters().table();
  load_moment(&Moments::m, part_values(table, values.m));
  load_moment(&Moments::v, part_values(table, values.v));
  // No step writes the gradients of frozen parameters.
  backend_.fill(model_.parameters().grads(), 0);
}

void Trainer::load_moment(Moment moment, const ParameterValues& values) {
  const ParameterTable& table = model_.parameters().table();
  const Tensor& arena = model_.parameters().grads();  // a buffer, if every rank has all moments
  Communicator& ranks = grid_.data();
  const std::int64_t slice = arena.numel() / ranks.size(), begin = ranks.rank() * slice;
  // Where the data ranks divide the moments, a rank owns no more than a slice.
  const bool gathered = ranks.size() > 1 && !any(group(), total_size(optimizer_.owned()) <= slice);
  agree(group(), [&] {
    if (gathered)
      return load_part(backend_, table, {begin, begin + slice}, arena.slice(begin, {slice}), values);
    for (const AdamW::Part& part : optimizer_.parts()) {
      if (part.range.size() > 0) load_part(backend_, table, part.range, part.moments.*moment, values);
    }
  });
  if (!gathered) return;
  ranks.all_gather(arena)->wait();
  for (const AdamW::Part& part : optimizer_.parts())
    backend_.copy(part.moments.*moment, arena.slice(part.range.begin, {part.range.size()}));
}

std::string Trainer::first_non_finite(const StepReport& report) {
  std::optional<FoundTensor> found;
  const std::int64_t after = batches_.position();
  batches_.seek(after - division_.samples());
  // The ranks of one model search together.
  RankGroup& model_ranks = grid_.model().group();
  for (std::int64_t i = 0; i < division_.passes() && !any(model_ranks, found.has_value()); ++i) {
    const SubBatch sub_batch = batches_.next();
    const Shape shape{division_.sub_batch_size(), batches_.seq_len()};
    found = first_non_finite_output(backend_, model_,
                                    to_device<std::int32_t>(backend_, shape, sub_batch.batch.ids),
                                    to_device<std::int32_t>(backend_, shape, sub_batch.batch.targets),
                                    dropout_position(report.step, sub_batch));
  }
  batches_.seek(after);
  // The first one of all ranks is the cause: what is wrong on one rank is soon wrong on all. A tensor of the
  // forward pass comes before all gradients, which have been reduced over all data ranks.
  if (found) {
    found->time += grid_.pipeline().rank() * FoundTensor::kMostOps;
  } else {
    found = first_non_finite_gradient(backend_, model_.parameters());
  }
  constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::max();
  const std::vector<std::int64_t> times = gather(group(), found ? found->time : kNever);
  const auto first = std::ranges::min_element(times);
  if (*first == kNever) return "an unknown tensor, which a second forward pass does not reproduce,";
  const int rank = static_cast<int>(first - times.begin());
  const std::string what = broadcast_text(group(), found ? found->name : "", rank);
  return *first < FoundTensor::kBackward && group().size() > 1 ? concat(what, " on rank ", rank) : what;
}

}  // namespace stagegpt
