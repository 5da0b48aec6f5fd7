#include "common/train/trainer.h"

#include <array>
#include <chrono>
#include <cmath>
#include <vector>

#include "common/base/seconds_since.h"
#include "common/train/gather_report.h"
#include "common/train/non_finite.h"

namespace stagegpt {

Trainer::Trainer(Backend& backend, const Grid& grid, GradientSync& sync, LanguageModel& model,
                 const DataLoader& data, const TrainerConfig& config)
    : backend_(backend),
      grid_(grid),
      model_(model),
      grid_sync_(grid, sync, backend, model),
      sync_(grid_sync_.sync()),  // `sync` itself, unless tensor ranks or stages of a pipeline add their sums
      seed_(config.seed),
      schedule_(config.schedule),
      clock_(backend.make_timer()),
      passes_(backend, grid, sync_, model, data, config, clock_),
      optimizer_(backend, model.parameters(), config.adamw, sync_.owned(model.parameters().weights().numel()),
                 sync_.traits().norm_in_blocks),
      table_(gpt2_parameter_table(model.config())) {}

void Trainer::restore(std::int64_t steps_done, std::int64_t data_position, const UpdateCounts& updates) {
  if (updates != updates_) optimizer_.restore(model_.parameters(), updates);
  updates_ = updates;
  step_ = steps_done;
  samples_ = data_position;
  passes_.batches().seek(data_position);
}

StepReport Trainer::step(const Tape::OpWatch& watch, LayerWatch* layers) {
  StepReport report;
  report.step = step_;
  report.learning_rate = schedule_.at(step_);
  clock_.start();
  passes_.run(step_, watch, layers);  // gradients, summed over passes; the first pass overwrites the old ones

  group().enter("communication");
  sync_.finish(model_.parameters());  // and over ranks
  clock_.end(&PhaseSeconds::communication);

  group().enter("optimizer");
  update(report.learning_rate, layers);  // the gradient norm, then clipping and AdamW in one kernel
  enter("communication");
  sync_.share_weights(model_.parameters());  // with ZeRO-1, the weights that other ranks have updated
  clock_.end(&PhaseSeconds::communication);

  // With one process, the host has not waited for the device so far.
  read_results(report);
  report.communication = sync_.take_report();
  if (!report.skipped()) updates_.add(table_);
  ++step_;
  samples_ += passes_.batches().division().samples();
  return report;
}

void Trainer::update(double learning_rate, LayerWatch* layers) {
  const Parameters& parameters = model_.parameters();
  const bool repeated = backend_.records() && !sync_.traits().communicates && layers == nullptr;
  const auto end = [&](PhaseClock::Phase phase) {
    if (!repeated) clock_.end(phase);
  };
  optimizer_.set_step(learning_rate, updates_.all);
  const auto work = [&] {
    optimizer_.measure_norms(parameters);
    end(&PhaseSeconds::optimizer);
    enter("communication");
    sync_.sum_squared_norms(optimizer_.squared_norm(), optimizer_.squared_norms());
    enter("optimizer");
    end(&PhaseSeconds::communication);
    if (layers != nullptr) layers->before_update();
    optimizer_.update(parameters);
    if (layers != nullptr) layers->after_update();
  };
  repeated ? backend_.repeat(recorded_update_, work) : work();
  clock_.end(&PhaseSeconds::optimizer);
}

void Trainer::read_results(StepReport& report) {
  double squared_norm = 0;
  std::vector<float> losses(static_cast<std::size_t>(passes_.losses().numel()));
  const std::array copies = {host_copy(std::span(&squared_norm, 1), optimizer_.squared_norm()),
                             host_copy(std::span(losses), passes_.losses())};
  backend_.copy_to_host(copies);
  report.grad_norm = unsigned_nan(std::sqrt(squared_norm));
  clock_.add_to(report.seconds);

  const auto start = std::chrono::steady_clock::now();
  enter("communication");
  gather_report(grid_, passes_.batches().division(), losses, report);
  report.seconds.communication += seconds_since(start);
}

std::string Trainer::first_non_finite(const StepReport& report) {
  return stagegpt::first_non_finite(backend_, grid_, model_, passes_.batches(), seed_, report.step);
}

}  // namespace stagegpt
