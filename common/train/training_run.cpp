#include "common/train/training_run.h"

#include <chrono>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "common/data/utf8.h"
#include "common/model/flops.h"
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
  const std::int64_t first = trainer_.steps_done();
  const std::int64_t tokens_per_step = config.batch_size * config.grad_accumulation * data_.seq_len();
  metrics_.emplace(directory_.metrics(), first);
  progress_.emplace(first, config.schedule.steps, tokens_per_step);
  tensorboard_.emplace(directory_.path(), first, [this](const std::string& text) { progress_->note(text); });
  const StopSignals keyboard({SIGINT});
  const auto start = std::chrono::steady_clock::now();

  TrainingResult result;
  while (trainer_.steps_done() < config_.last_step && !StopSignals::requested()) step(result);
  result.steps = trainer_.steps_done();
  result.interrupted = result.steps < config_.last_step;
  if (saved_step_ != result.steps) progress_->note(save());
  if (!result.interrupted) result.validation = validated_ ? *validated_ : validation_.run(backend_, model_);
  if (result.train_loss) result.tokens_per_second = progress_->tokens_per_second();
  result.seconds = seconds_since(start);
  progress_.reset();
  return result;
}

void TrainingRun::step(TrainingResult& result) {
  directory_.read_back_newest();
  const StepReport report = trainer_.step();
  if (!report.finite()) on_non_finite(report);
  const std::int64_t done = trainer_.steps_done();
  const bool checkpoint = due(config_.checkpoint_every) || done == config_.trainer.schedule.steps;
  validated_.reset();
  if (checkpoint || due(config_.eval_every)) validated_ = validation_.run(backend_, model_);
  const StepMetrics metrics = metrics_of(report);
  metrics_->add(to_json(metrics));
  tensorboard_->add(done, to_scalars(metrics));
  progress_->step(report, validation_loss());
  result.train_loss = report.loss;
  if (due(config_.sample_every)) {
    const std::string sample = config_.sample();
    progress_->note(concat("sample after step ", done, ":\n", printable_text(sample)));
    tensorboard_->add_text(done, "sample", sample);
  }
  if (checkpoint) progress_->note(try_to_save());
}

bool TrainingRun::due(std::int64_t every) const { return every > 0 && trainer_.steps_done() % every == 0; }

void TrainingRun::on_non_finite(const StepReport& report) {
  const std::string what =
      concat("step ", report.step + 1, ": ", trainer_.first_non_finite(report), " is not finite (loss ",
             report.loss, ", gradient norm ", report.grad_norm, ")");
  if (config_.non_finite == NonFinite::stop) {
    const bool saved = report.skipped() && save_before(report.step);
    throw std::runtime_error(
        concat(what, "; a lower --learning-rate may help",
               saved ? concat(", --resume ", directory_.path().string(), " --non-finite skip goes on") : ""));
  }
  skipped_steps_ += report.skipped();
  progress_->note(concat("note: ", what, "; ", skipped_steps_, " steps skipped"));
}

StepMetrics TrainingRun::metrics_of(const StepReport& report) const {
  const std::int64_t T = data_.seq_len();
  const std::int64_t tokens = config_.trainer.batch_size * config_.trainer.grad_accumulation * T;
  return {.report = report,
          .tokens_seen = trainer_.data_position() * T,
          .step_tokens = tokens,
          .step_flops = step_flops(model_.config(), model_.parameters().table().numel(), tokens, T),
          .peak_memory_bytes = backend_.memory_stats().peak_bytes_in_use,
          .validation = validated_};
}

std::optional<double> TrainingRun::validation_loss() const {
  return validated_ ? std::optional(validated_->loss) : std::nullopt;
}

std::string TrainingRun::save() {
  const std::int64_t step = trainer_.steps_done();
  const auto start = std::chrono::steady_clock::now();
  std::vector<FileEntry> files;
  std::filesystem::path path;
  metrics_->sync();  // what a checkpoint takes for done is in the metrics
  try {
    const std::filesystem::path directory = directory_.begin_checkpoint(step);
    files = write_checkpoint(directory, backend_, model_, trainer_.optimizer(), tokenizer_, state());
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

std::string TrainingRun::try_to_save() {
  try {
    return save();
  } catch (const std::runtime_error& error) {
    return concat("warning: saving step ", trainer_.steps_done(), ": ", error.what());
  }
}

bool TrainingRun::save_before(std::int64_t step) {
  const TrainerConfig& config = config_.trainer;
  trainer_.restore(step, trainer_.data_position() - config.batch_size * config.grad_accumulation);
  validated_.reset();
  if (saved_step_ != step) progress_->note(try_to_save());
  return saved_step_ == step;
}

TrainerState TrainingRun::state() const {
  return {.step = trainer_.steps_done(),
          .data_position = trainer_.data_position(),
          .seed = config_.trainer.seed,
          .schedule = config_.trainer.schedule,
          .train_tokens = data_.tokens().size(),
          .train_hash = train_hash_,
          .validation_loss = validation_loss()};
}

}  // namespace stagegpt
