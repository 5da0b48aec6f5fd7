#include "common/measure/verify.h"

#include <algorithm>
#include <cmath>

#include "common/comm/agreement.h"
#include "common/measure/relative_error.h"
#include "common/model/vocabulary_padding.h"
#include "common/parallel/divided_gpt2.h"
#include "common/parallel/grid_sync.h"
#include "common/parallel/pipeline.h"
#include "common/parallel/whole_values.h"

namespace stagegpt {
namespace {

// The model on a grid, and the batch of the reference.
class Verified final : private PassWork {
 public:
  Verified(Backend& backend, const Grid& grid, const ModelFile& file, const LlmcState& state,
           const VerifySettings& settings)
      : backend_(backend),
        grid_(grid),
        state_(state),
        whole_(gpt2_parameter_table(file.config)),
        model_(make_gpt2(backend, file.config, grid, Purpose::training, settings.activations)),
        sync_(grid, of_data_ranks_, backend, *model_),
        loss_(backend.allocate(DType::f32, {1})),
        ids_(to_device(backend, {state.B, state.T}, state.ids)),
        targets_(to_device(backend, {state.B, state.T}, state.targets)) {
    Parameters& parameters = model_->parameters();
    agree(grid.world().group(),
          [&] { load_weights(backend, parameters, part_values(parameters.table(), file.values)); });
    parameters.update_shadow();
  }

  // The logits of all tokens of the vocabulary, on every rank.
  std::vector<float> logits() const {
    Tape tape(backend_, Tape::Mode::inference);
    const Gpt2Config& config = model_->config();
    return without_padding(floats_to_host(backend_, model_->logits(tape, ids_).value()),
                           config.padded_vocab_size(), config.vocab_size);
  }

  // The loss, on every rank, and the gradients of this rank's parameters. One micro-step of a pipeline.
  float loss_and_gradients() {
    Communicator& stages = grid_.pipeline();
    Parameters& parameters = model_->parameters();
    parameters.clear_grads();
    make_schedule(backend_, grid_, *model_, state_.B, state_.T)->run(1, /*loss_scale=*/1, *this);
    parameters.finish_grads();
    sync_.sync().finish(parameters);
    if (stages.size() > 1) stages.broadcast(loss_, stages.size() - 1);
    return to_host<float>(backend_, loss_)[0];
  }

  // The relative errors of the gradients, in the order of the whole model's parameters.
  std::vector<double> gradient_errors() const {
    std::vector<SquaredError> own(whole_.size());
    const ParameterTable& table = model_->parameters().table();
    const ParameterValues expected = part_values(table, reference_gradients());
    for (std::size_t i = 0; i < table.size(); ++i) {
      const Parameter& row = table[i];
      if (is_copy(row)) continue;
      const auto grad = to_host<float>(backend_, model_->parameters().grads().slice(row.offset, row.shape));
      std::vector<float> reference(grad.size());
      expected(i, 0, reference);
      own[static_cast<std::size_t>(row.number)].add(grad, reference);
    }
    // What several tensor ranks have in whole counts several times in both sums.
    std::vector<SquaredError> all(own.size());
    const std::vector<SquaredError> of_ranks = gather(grid_.model().group(), own);
    for (std::size_t i = 0; i < of_ranks.size(); ++i) all[i % all.size()].add(of_ranks[i]);
    std::vector<double> errors;
    for (const SquaredError& sum : all) errors.push_back(sum.relative());
    return errors;
  }

  // The losses of optimizer steps, each before its update.
  std::vector<double> losses(const VerifySettings& settings) {
    Parameters& parameters = model_->parameters();
    GradientSync& sync = sync_.sync();
    AdamW optimizer(backend_, parameters, settings.adamw, sync.owned(parameters.weights().numel()),
                    sync.traits().norm_in_blocks);
    std::vector<double> losses;
    for (std::int64_t step = 0; step < settings.steps; ++step) {
      losses.push_back(loss_and_gradients());
      optimizer.measure_norms(parameters);
      sync.sum_squared_norms(optimizer.squared_norm(), optimizer.squared_norms());
      optimizer.set_step(settings.learning_rate, step);
      optimizer.update(parameters);
      sync.share_weights(parameters);
    }
    return losses;
  }

  const ParameterTable& whole() const { return whole_; }

 private:
  Var forward(Tape& tape, std::int64_t, Var before) override {
    return model_->loss(tape, ids_, targets_, {.before = std::move(before)});
  }
  void backward(Tape& tape, std::int64_t, Var out, Tensor dout) override {
    run_backward(tape, out, std::move(dout));
    if (stage_of(grid_).is_last()) backend_.copy(loss_, out.value());
  }

  // The last stage's copy of a matrix that the first one owns has no gradient: PipelineSync.
  bool is_copy(const Parameter& row) const {
    return row.name == "wte.weight" && model_->config().tie_word_embeddings && !stage_of(grid_).is_first();
  }

  ParameterValues reference_gradients() const {
    return [this, offsets = llmc_offsets(whole_, model_->config())](std::size_t i, std::int64_t begin,
                                                                    std::span<float> out) {
      const auto first = static_cast<std::size_t>(offsets[i] + begin);
      std::ranges::copy(state_.grads.subspan(first, out.size()), out.begin());
    };
  }

  Backend& backend_;
  const Grid& grid_;
  const LlmcState& state_;
  const ParameterTable whole_;
  const std::unique_ptr<LanguageModel> model_;
  NoGradientSync of_data_ranks_;  // each has the whole batch
  GridSync sync_;
  const Tensor loss_;           // (1)
  const Tensor ids_, targets_;  // (B,T)
};

}  // namespace

bool VerifyReport::passed() const {
  return logits.ok() && loss.ok() && std::ranges::all_of(gradients, &Row::ok) &&
         std::ranges::all_of(losses, [](double value) { return std::isfinite(value); });
}

VerifyReport verify(Backend& backend, const Grid& grid, const ModelFile& model, const LlmcState& state,
                    const VerifySettings& settings) {
  Verified verified(backend, grid, model, state, settings);
  const VerifyLimits& limits = settings.limits;
  VerifyReport report;
  report.logits = {"logits",
                   {state.B, state.T, model.config.vocab_size},
                   relative_error(verified.logits(), state.logits),
                   limits.logits};
  const float loss = verified.loss_and_gradients();
  report.loss = {"loss", {1}, relative_error({&loss, 1}, {&state.loss, 1}), limits.loss};
  const std::vector<double> errors = verified.gradient_errors();
  for (std::size_t i = 0; i < errors.size(); ++i) {
    const Parameter& row = verified.whole()[i];
    report.gradients.push_back({row.name, row.shape, errors[i], limits.gradient});
  }
  report.losses = verified.losses(settings);
  return report;
}

}  // namespace stagegpt
