#include "common/train/training_run.h"

#include <chrono>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "common/train/progress.h"
#include "common/train/stop_signals.h"

namespace stagegpt {
namespace {

std::string checkpoint_note(const std::filesystem::path& path, double megabytes, double seconds) {
  char text[64];
  std::snprintf(text, sizeof text, " (%.1f MB, %.2f s)", megabytes, seconds);
  return "checkpoint: " + path.string() + text;
}

}  // namespace

TrainingRun::TrainingRun(Backend& backend, Communicator& communicator, GradientSync& sync, Gpt2& model,
                         const Corpus& corpus, RunDirectory& directory, const TrainingRunConfig& config)
    : backend_(backend),
      model_(model),
      tokenizer_(*corpus.tokenizer),
      directory_(directory),
      config_(config),
      data_(corpus.train, model.config().block_size, config.trainer.seed),
      train_hash_(content_hash(corpus.train)),
      validation_(corpus.validation, *corpus.tokenizer, model.config().block_size, config.trainer.batch_size),
      trainer_(backend, communicator, sync, model, data_, config.trainer) {}

void TrainingRun::resume(const std::filesystem::path& checkpoint) {
  const TrainerState state = read_trainer_state(checkpoint);
  if (checkpoint.filename() != checkpoint_name(state.step)) {
    user_error("--resume: ", checkpoint, " says that it was made after step ", state.step);
  }
  if (state.seed != config_.trainer.seed) {
    user_error("--seed: ", config_.trainer.seed, ", but ", checkpoint, " was made with ", state.seed);
  }
  if (state.train_tokens != data_.tokens().size() || state.train_hash != train_hash_) {
    user_error("--data: these are not the ", state.train_tokens, " tokens that ", checkpoint,
               " was trained on; to train on other data, begin a run with --model ", checkpoint);
  }
  if (state.step > config_.trainer.schedule.steps) {
    user_error("--steps: the run has done ", state.step, " steps already, more than ",
               config_.trainer.schedule.steps);
  }
  load_moments(checkpoint, backend_, model_.parameters().table(), trainer_.optimizer());
  trainer_.restore(state.step, state.data_position);
  saved_step_ = state.step;
}

TrainingResult TrainingRun::run() {
  const TrainerConfig& config = config_.trainer;
  const std::int64_t tokens_per_step = config.batch_size * config.grad_accumulation * data_.seq_len();
  metrics_.emplace(directory_.metrics(), trainer_.steps_done());
  Progress progress(trainer_.steps_done(), config.schedule.steps, tokens_per_step);
  const StopSignals keyboard({SIGINT});
  const auto start = std::chrono::steady_clock::now();

  TrainingResult result;
  std::optional<double> validation_loss;
  while (trainer_.steps_done() < config_.last_step && !StopSignals::requested()) {
    directory_.read_back_newest();
    const StepReport report = step();
    const std::int64_t done = trainer_.steps_done();
    const bool checkpoint = done % config_.checkpoint_every == 0 || done == config.schedule.steps;
    validation_loss.reset();
    if (checkpoint || done % config_.eval_every == 0) validation_loss = validation_.loss(backend_, model_);
    nlohmann::ordered_json line = {{"step", done},
                                   {"tokens", trainer_.data_position() * data_.seq_len()},
                                   {"loss", report.loss},
                                   {"grad_norm", report.grad_norm},
                                   {"learning_rate", report.learning_rate},
                                   {"seconds", report.seconds.total()}};
    if (validation_loss) line["validation_loss"] = *validation_loss;
    metrics_->add(line);
    progress.step(report, validation_loss);
    result.train_loss = report.loss;
    if (checkpoint) progress.note(try_to_save(validation_loss));
  }
  result.steps = trainer_.steps_done();
  result.interrupted = result.steps < config_.last_step;
  if (saved_step_ != result.steps) progress.note(save(validation_loss));
  if (!result.interrupted) {
    result.validation_loss = validation_loss ? *validation_loss : validation_.loss(backend_, model_);
    result.bits_per_byte = validation_.bits_per_byte(*result.validation_loss);
  }
  if (result.train_loss) result.tokens_per_second = progress.tokens_per_second();
  result.seconds = seconds_since(start);
  return result;
}

StepReport TrainingRun::step() {
  const StepReport report = trainer_.step();
  if (!std::isfinite(report.loss) || !std::isfinite(report.grad_norm)) {
    throw std::runtime_error(concat("step ", report.step + 1, ": the loss is ", report.loss,
                                    " and the gradient norm ", report.grad_norm,
                                    "; a lower --learning-rate may help"));
  }
  return report;
}

std::string TrainingRun::save(std::optional<double> validation_loss) {
  const std::int64_t step = trainer_.steps_done();
  const auto start = std::chrono::steady_clock::now();
  std::vector<FileEntry> files;
  std::filesystem::path path;
  metrics_->sync();  // what a checkpoint takes for done is in the metrics
  try {
    const std::filesystem::path directory = directory_.begin_checkpoint(step);
    files = write_checkpoint(directory, backend_, model_, trainer_.optimizer(), tokenizer_,
                             state(validation_loss));
    path = directory_.commit_checkpoint(step, files);
  } catch (...) {
    directory_.abandon_checkpoint(step);
    throw;
  }
  saved_step_ = step;
  directory_.prune(config_.keep);
  double megabytes = 0;
  for (const FileEntry& file : files) megabytes += static_cast<double>(file.bytes) / 1e6;
  return checkpoint_note(path, megabytes, seconds_since(start));
}

std::string TrainingRun::try_to_save(std::optional<double> validation_loss) {
  try {
    return save(validation_loss);
  } catch (const std::runtime_error& error) {
    return concat("warning: saving step ", trainer_.steps_done(), ": ", error.what());
  }
}

TrainerState TrainingRun::state(std::optional<double> validation_loss) const {
  return {.step = trainer_.steps_done(),
          .data_position = trainer_.data_position(),
          .seed = config_.trainer.seed,
          .schedule = config_.trainer.schedule,
          .train_tokens = data_.tokens().size(),
          .train_hash = train_hash_,
          .validation_loss = validation_loss};
}

}  // namespace stagegpt
