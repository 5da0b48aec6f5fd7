#include "common/train/trainer.h"

#include <algorithm>

#include "common/comm/agreement.h"
#include "common/train/non_finite.h"

namespace stagegpt {
namespace {

DeviceBatch to_device_batch(Backend& backend, const Batch& batch, std::int64_t seq_len) {
  const Shape shape{static_cast<std::int64_t>(batch.ids.size()) / seq_len, seq_len};
  return {to_device<std::int32_t>(backend, shape, batch.ids),
          to_device<std::int32_t>(backend, shape, batch.targets)};
}

}  // namespace

Trainer::Trainer(Backend& backend, Communicator& communicator, GradientSync& sync, Gpt2& model,
                 const DataLoader& data, const TrainerConfig& config)
    : backend_(backend),
      communicator_(communicator),
      sync_(sync),
      model_(model),
      division_(divide_step(config.batch_size, config.grad_accumulation, communicator.rank(),
                            communicator.size(), config.reproducible)),
      batches_(data, division_),
      config_(config),
      clock_(backend.make_timer()),
      optimizer_(backend, model.parameters(), config.adamw,
                 sync.owned(model.parameters().weights().numel())) {
  if (config.reproducible) tree_.emplace(backend, division_.owned_sub_batches);
}

void Trainer::restore(std::int64_t steps_done, std::int64_t data_position) {
  step_ = steps_done;
  samples_ = data_position;
  batches_.seek(data_position);
}

StepReport Trainer::step(const Tape::OpWatch& watch_op) {
  StepReport report;
  report.step = step_;
  report.learning_rate = config_.schedule.at(step_);
  Parameters& parameters = model_.parameters();
  if (config_.overfit_batch) batches_.seek(0);
  clock_.start();
  const std::vector<Tensor> losses = run_sub_batches(watch_op);

  communicator_.group().enter("communication");
  sync_.finish(parameters);
  clock_.end(&PhaseSeconds::communication);

  communicator_.group().enter("optimizer");
  const Tensor& squared_norm = optimizer_.measure_norm(parameters);
  clock_.end(&PhaseSeconds::optimizer);
  sync_.sum_squared_norm(squared_norm);
  clock_.end(&PhaseSeconds::communication);
  optimizer_.update(parameters, report.learning_rate, step_);
  clock_.end(&PhaseSeconds::optimizer);
  sync_.share_weights(parameters);
  clock_.end(&PhaseSeconds::communication);
  parameters.update_shadow();
  clock_.end(&PhaseSeconds::optimizer);

  // The host reads the first result here; all work before is asynchronous on a device.
  report.grad_norm = unsigned_nan(optimizer_.grad_norm());
  clock_.end(&PhaseSeconds::optimizer);
  clock_.add_to(report.seconds);
  clock_.start();
  gather_report(losses, report);
  clock_.end(&PhaseSeconds::communication);
  clock_.add_to(report.seconds);
  report.communication = sync_.take_report();
  ++step_;
  samples_ += division_.samples();
  return report;
}

DropoutPosition Trainer::dropout_position(std::int64_t step, const SubBatch& sub_batch) const {
  return {config_.seed, static_cast<std::uint32_t>(step), sub_batch.first_sample};
}

std::vector<Tensor> Trainer::run_sub_batches(const Tape::OpWatch& watch_op) {
  Parameters& parameters = model_.parameters();
  std::vector<Tensor> losses;
  for (std::int64_t owned = 0; owned < division_.owned_sub_batches; ++owned) {
    parameters.clear_grads();
    for (std::int64_t micro = 1; micro <= division_.micro_steps; ++micro) {
      communicator_.group().enter("data");
      const SubBatch sub_batch = batches_.next();
      losses.push_back(run_sub_batch(sub_batch, !tree_ && micro == division_.micro_steps,
                                     losses.empty() ? watch_op : Tape::OpWatch()));
    }
    parameters.finish_grads();
    if (tree_) tree_->add(parameters.grads());
    clock_.end(&PhaseSeconds::backward);
  }
  return losses;
}

Tensor Trainer::run_sub_batch(const SubBatch& sub_batch, bool last, const Tape::OpWatch& watch_op) {
  const DeviceBatch batch = to_device_batch(backend_, sub_batch.batch, batches_.seq_len());
  clock_.end(&PhaseSeconds::data);

  communicator_.group().enter("forward");
  // The loss is scaled to the mean over all sub-batches, so that gradients are summed over ranks without
  // division.
  Tape tape(backend_, Tape::Mode::training,
            1.0 / static_cast<double>(division_.micro_steps * division_.sub_batches));
  tape.on_op(watch_op);
  const Var loss = model_.loss(tape, batch.ids, batch.targets, dropout_position(step_, sub_batch));
  clock_.end(&PhaseSeconds::forward);

  communicator_.group().enter("backward");
  if (last) {
    tape.on_leaf_ready([&](int parameter) {
      if (communicator_.size() == 1) return sync_.ready(model_.parameters(), parameter);
      clock_.end(&PhaseSeconds::backward);
      sync_.ready(model_.parameters(), parameter);
      clock_.end(&PhaseSeconds::communication);
    });
  }
  tape.backward(loss);
  clock_.end(&PhaseSeconds::backward);
  return loss.value();
}

void Trainer::gather_report(const std::vector<Tensor>& losses, StepReport& report) {
  const PhaseSeconds& seconds = report.seconds;
  const double own_seconds = seconds.total() - seconds.communication;
  std::vector<double> own = {own_seconds};
  for (const Tensor& loss : losses) own.push_back(to_host<float>(backend_, loss)[0]);
  const std::vector<double> all = gather(communicator_.group(), own);
  // In the order of ranks, which is the order of sub-batches: it does not depend on the number of ranks.
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (i % own.size() == 0) {
      report.rank_seconds.push_back(all[i]);
    } else {
      report.loss += all[i] / static_cast<double>(division_.micro_steps * division_.sub_batches);
    }
  }
  report.loss = unsigned_nan(report.loss);
  const auto [least, most] = std::ranges::minmax_element(report.rank_seconds);
  report.least_rank_seconds = *least;
  report.most_rank_seconds = *most;
  report.slowest_rank = static_cast<int>(most - report.rank_seconds.begin());
}

DividedArenas Trainer::gradients() const {
  const ArenaRange owned = optimizer_.owned();
  return {communicator_.group(),
          backend_,
          owned,
          {model_.parameters().grads().slice(owned.begin, {owned.size()})}};
}

DividedArenas Trainer::moments() const {
  const Moments& own = optimizer_.moments();
  return {communicator_.group(), backend_, optimizer_.owned(), {own.m, own.v}};
}

void Trainer::set_moment(Moment moment, const Tensor& arena) {
  const ArenaRange owned = optimizer_.owned();
  backend_.copy(optimizer_.moments().*moment, arena.slice(owned.begin, {owned.size()}));
}

std::string Trainer::first_non_finite(const StepReport& report) {
  std::optional<std::string> found;
  const std::int64_t after = batches_.position();
  batches_.seek(after - division_.samples());
  for (std::int64_t i = 0; i < division_.passes() && !found; ++i) {
    const SubBatch sub_batch = batches_.next();
    const DeviceBatch batch = to_device_batch(backend_, sub_batch.batch, batches_.seq_len());
    found = first_non_finite_output(backend_, model_, batch.ids, batch.targets,
                                    dropout_position(report.step, sub_batch));
  }
  batches_.seek(after);
  // A tensor of the forward pass has priority: it is the cause. Gradients have been reduced over all ranks.
  const char certainty = found ? 2 : 1;
  if (!found) found = first_non_finite_gradient(backend_, model_.parameters());
  const std::vector<char> all = gather<char>(communicator_.group(), found ? certainty : 0);
  const auto first = std::ranges::max_element(all);
  if (*first == 0) return "an unknown tensor, which a second forward pass does not reproduce,";
  const int rank = static_cast<int>(first - all.begin());
  const std::string what = broadcast_text(communicator_.group(), found.value_or(""), rank);
  return *first == 2 && communicator_.size() > 1 ? concat(what, " on rank ", rank) : what;
}

}  // namespace stagegpt
