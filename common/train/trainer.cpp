#include "common/train/trainer.h"

#include <algorithm>
#include <chrono>

#include "common/base/seconds_since.h"
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
      batches_(data, division_, config.timeline),
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
  optimizer_.measure_norms(parameters);
  clock_.end(&PhaseSeconds::optimizer);
  sync_.sum_squared_norms(optimizer_.squared_norm(), optimizer_.squared_norms());
  clock_.end(&PhaseSeconds::communication);
  optimizer_.update(parameters, report.learning_rate, step_);
  clock_.end(&PhaseSeconds::optimizer);
  sync_.share_weights(parameters);
  clock_.end(&PhaseSeconds::communication);

  // With one process, the host has not waited for the device so far.
  read_results(losses, report);
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
  const Var loss =
      model_.loss(tape, batch.ids, batch.targets, dropout_position(step_, sub_batch), config_.recompute);
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

void Trainer::read_results(const std::vector<Tensor>& losses, StepReport& report) {
  double squared_norm = 0;
  std::vector<float> values(losses.size());
  std::vector<HostCopy> copies = {host_copy(std::span(&squared_norm, 1), optimizer_.squared_norm())};
  for (std::size_t i = 0; i < losses.size(); ++i)
    copies.push_back(host_copy(std::span(&values[i], 1), losses[i]));
  backend_.copy_to_host(copies);
  report.grad_norm = unsigned_nan(std::sqrt(squared_norm));
  clock_.add_to(report.seconds);

  const auto start = std::chrono::steady_clock::now();
  gather_report(values, report);
  report.seconds.communication += seconds_since(start);
}

void Trainer::gather_report(const std::vector<float>& losses, StepReport& report) {
  const PhaseSeconds& seconds = report.seconds;
  const double own_seconds = seconds.total() - seconds.communication;
  std::vector<double> own = {own_seconds};
  own.insert(own.end(), losses.begin(), losses.end());
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
  std::vector<Tensor> parts;
  for (const ArenaRange& range : optimizer_.owned())
    parts.push_back(model_.parameters().grads().slice(range.begin, {range.size()}));
  return {communicator_.group(), backend_, optimizer_.owned(), {parts}};
}

DividedArenas Trainer::moments() const {
  std::vector<Tensor> m, v;
  for (const AdamW::Part& part : optimizer_.parts()) {
    m.push_back(part.moments.m);
    v.push_back(part.moments.v);
  }
  return {communicator_.group(), backend_, optimizer_.owned(), {m, v}};
}

void Trainer::set_moment(Moment moment, const Tensor& arena) {
  for (const AdamW::Part& part : optimizer_.parts())
    backend_.copy(part.moments.*moment, arena.slice(part.range.begin, {part.range.size()}));
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
