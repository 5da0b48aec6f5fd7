#include "common/train/trainer.h"

#include <algorithm>
#include <chrono>

#include "common/autograd/ops/cross_entropy.h"
#include "common/train/non_finite.h"

namespace stagegpt {
namespace {

// Adds the time since it was made, or since the last call, to a phase.
class Stopwatch {
 public:
  Stopwatch(Backend& backend, bool synchronize) : backend_(backend), synchronize_(synchronize) {}
  void lap(double& seconds) {
    if (synchronize_) backend_.synchronize();
    seconds += seconds_since(start_);
    start_ = std::chrono::steady_clock::now();
  }

 private:
  Backend& backend_;
  bool synchronize_;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

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
      batches_(data, config.batch_size, communicator.rank(), communicator.size()),
      config_(config),
      optimizer_(backend, model.parameters(), config.adamw) {}

void Trainer::restore(std::int64_t steps_done, std::int64_t data_position) {
  step_ = steps_done;
  samples_ = data_position;
  batches_.seek(data_position);
}

StepReport Trainer::step() {
  StepReport report;
  report.step = step_;
  report.learning_rate = config_.schedule.at(step_);
  Parameters& parameters = model_.parameters();
  parameters.clear_grads();
  if (config_.overfit_batch) batches_.seek(0);
  std::vector<Tensor> losses;
  for (std::int64_t micro = 0; micro < config_.grad_accumulation; ++micro) {
    losses.push_back(micro_step(micro, report.seconds));
  }

  Stopwatch watch(backend_, config_.synchronize_phases);
  parameters.finish_grads();
  sync_.finish(parameters);
  report.bytes_reduced = sync_.bytes_reduced();
  watch.lap(report.seconds.communication);

  optimizer_.update(parameters, report.learning_rate, step_);
  // Only now does the host look at a result: until here a device could run ahead.
  report.loss = mean_over_ranks(losses);
  report.grad_norm = optimizer_.grad_norm();
  watch.lap(report.seconds.optimizer);
  ++step_;
  samples_ += config_.batch_size * config_.grad_accumulation;
  return report;
}

DeviceBatch Trainer::next_batch() { return to_device_batch(backend_, batches_.next(), batches_.seq_len()); }

DropoutPosition Trainer::dropout_position(std::int64_t step, std::int64_t micro) const {
  const std::int64_t local = config_.batch_size / communicator_.size();
  return {config_.seed, static_cast<std::uint32_t>(step),
          micro * config_.batch_size + communicator_.rank() * local};
}

Tensor Trainer::micro_step(std::int64_t micro, PhaseSeconds& seconds) {
  Stopwatch watch(backend_, config_.synchronize_phases);
  const DeviceBatch batch = next_batch();
  watch.lap(seconds.data);

  Tape tape(backend_);
  const Var loss = model_.loss(tape, batch.ids, batch.targets, dropout_position(step_, micro));
  watch.lap(seconds.forward);

  const bool last = micro + 1 == config_.grad_accumulation;
  if (last) tape.on_leaf_ready([&](int parameter) { sync_.ready(model_.parameters(), parameter); });
  tape.backward(loss, 1.0 / static_cast<double>(config_.grad_accumulation));
  watch.lap(seconds.backward);
  return loss.value();
}

double Trainer::mean_over_ranks(const std::vector<Tensor>& losses) {
  double mean = 0;
  for (const Tensor& loss : losses)
    mean += to_host<float>(backend_, loss)[0] / static_cast<double>(losses.size());
  if (communicator_.size() == 1) return mean;
  const Tensor sum = to_device<double>(backend_, {1}, std::span(&mean, 1));
  communicator_.all_reduce(sum)->wait();
  return to_host<double>(backend_, sum)[0] / communicator_.size();
}

std::string Trainer::first_non_finite(const StepReport& report) {
  std::optional<std::string> found;
  const std::int64_t after = batches_.position();
  batches_.seek(after - config_.batch_size * config_.grad_accumulation);
  for (std::int64_t micro = 0; micro < config_.grad_accumulation && !found; ++micro) {
    const DeviceBatch batch = next_batch();
    found = first_non_finite_output(backend_, model_, batch.ids, batch.targets,
                                    dropout_position(report.step, micro));
  }
  batches_.seek(after);
  if (!found) found = first_non_finite_gradient(backend_, model_.parameters());
  return found.value_or("a tensor of another rank");
}

Evaluation evaluate(Backend& backend, const Gpt2& model, const DataLoader& data, std::int64_t batch_size,
                    std::int64_t max_windows) {
  const std::int64_t windows = std::min(data.windows_in_order(), max_windows);
  const std::int64_t V = model.config().vocab_size;
  Evaluation sum;
  const Tensor correct = backend.allocate(DType::i32, {1});
  for (std::int64_t first = 0; first < windows; first += batch_size) {
    const std::int64_t count = std::min(batch_size, windows - first);
    const DeviceBatch batch = to_device_batch(backend, data.in_order(first, count), data.seq_len());
    Tape tape(backend, Tape::Mode::inference);
    const Var logits = model.logits(tape, batch.ids);  // (B,T,Vp)
    backend.count_correct(correct, logits.value(), batch.targets, V);
    const Var loss = cross_entropy(tape, logits, batch.targets, V);
    sum.loss += to_host<float>(backend, loss.value())[0] * static_cast<double>(count);
    sum.accuracy += to_host<std::int32_t>(backend, correct)[0];
  }
  const auto n = static_cast<double>(windows);
  return {sum.loss / n, sum.accuracy / n / static_cast<double>(data.seq_len())};
}

}  // namespace stagegpt
