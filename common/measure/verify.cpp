#include "common/measure/verify.h"

#include <algorithm>
#include <cmath>

#include "common/measure/relative_error.h"
#include "common/model/vocabulary_padding.h"

namespace stagegpt {

bool VerifyReport::passed() const {
  return logits.ok() && loss.ok() && std::ranges::all_of(gradients, &Row::ok) &&
         std::ranges::all_of(losses, [](double value) { return std::isfinite(value); });
}

VerifyReport verify(Backend& backend, const LlmcModel& file, const LlmcState& state, std::int64_t steps,
                    double learning_rate, const AdamWConfig& adamw, const VerifyLimits& limits,
                    DType activations) {
  Gpt2 model(backend, file.config, DType::f32, /*ranks=*/1, Purpose::training, activations);
  Parameters& parameters = model.parameters();
  load_values(backend, parameters.table(), parameters.weights(), llmc_values(parameters.table(), file));
  parameters.update_shadow();
  const Tensor ids = to_device(backend, {state.B, state.T}, state.ids);
  const Tensor targets = to_device(backend, {state.B, state.T}, state.targets);
  VerifyReport report;

  {
    Tape tape(backend, Tape::Mode::inference);
    const Gpt2Config& config = file.config;
    const auto logits = without_padding(floats_to_host(backend, model.logits(tape, ids).value()),
                                        config.padded_vocab_size(), config.vocab_size);
    report.logits = {
        "logits", {state.B, state.T, config.vocab_size}, relative_error(logits, state.logits), limits.logits};
  }

  const auto loss_and_gradients = [&] {
    Tape tape(backend);
    parameters.clear_grads();
    const Var loss = model.loss(tape, ids, targets);
    tape.backward(loss);
    parameters.finish_grads();
    return to_host<float>(backend, loss.value());
  };
  const auto loss = loss_and_gradients();
  report.loss = {"loss", {1}, relative_error(loss, {&state.loss, 1}), limits.loss};
  for (std::size_t i = 0; i < parameters.table().size(); ++i) {
    const Parameter& row = parameters.table()[i];
    const auto grad = to_host<float>(backend, parameters.grads().slice(row.offset, row.shape));
    const auto begin = static_cast<std::size_t>(llmc_offset(parameters.table(), file.config, i));
    report.gradients.push_back({row.name, row.shape,
                                relative_error(grad, state.grads.subspan(begin, grad.size())),
                                limits.gradient});
  }

  AdamW optimizer(backend, parameters, adamw);
  for (std::int64_t step = 0; step < steps; ++step) {
    report.losses.push_back(loss_and_gradients()[0]);
    optimizer.measure_norms(parameters);
    optimizer.set_step(learning_rate, step);
    optimizer.update(parameters);
  }
  return report;
}

}  // namespace stagegpt
