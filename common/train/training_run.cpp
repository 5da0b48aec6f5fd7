#include "common/train/training_run.h"

#include <chrono>

#include "common/base/seconds_since.h"
#include "common/checkpoint/checkpoint.h"
#include "common/comm/agreement.h"
#include "common/model/flops.h"
#include "common/profile/peak.h"
#include "common/system/stop_signals.h"
#include "common/train/checkpoint_arenas.h"
#include "common/train/compare_weights.h"
#include "common/train/forward_outputs.h"
#include "common/train/save_checkpoint.h"

namespace stagegpt {

TrainingRun::TrainingRun(Backend& backend, const Grid& grid, GradientSync& sync, LanguageModel& model,
                         const Corpus& corpus, const TrainingRunConfig& config)
    : backend_(backend),
      grid_(grid),
      group_(grid.world().group()),
      model_(model),
      table_(gpt2_parameter_table(model.config())),
      config_(config),
      data_(corpus.train, model.config().block_size, config.trainer.seed, corpus.mixture),
      corpus_(corpus),
      validation_(backend, grid, model, corpus, config),
      trainer_(backend, grid, sync, model, data_, config.trainer),
      non_finite_(config.non_finite) {}

void TrainingRun::resume(const std::filesystem::path& checkpoint) {
  const TrainerState state = parse_trainer_state(text_from_root(
      group_, [&] { return to_json_text(read_resumed_state(checkpoint, config_.trainer, corpus_)); }));
  MomentValues moments;
  agree(group_, [&] { moments = read_moments(checkpoint, table_); });
  load_moments(backend_, grid_, model_, trainer_.optimizer(),
               {with_heartbeat(moments.m, StopSignals::throw_if_requested),
                with_heartbeat(moments.v, StopSignals::throw_if_requested)});
  trainer_.restore(state.step, state.data_position, state.updates);
  validation_.restore(state.best_validation);
  saved_step_ = state.step;
}

bool TrainingRun::has_steps_left() const {
  return trainer_.steps_done() < config_.last_step && validation_.has_patience();
}

void TrainingRun::open_log() {
  const std::int64_t first = trainer_.steps_done();
  log_.emplace(group_, *directory_, first, config_.trainer.schedule.steps, step_tokens());
  if (has_steps_left()) log_->open_files(first);
}

void TrainingRun::prepare() {
  if (has_steps_left()) find_peak();
  stop_if_requested(group_);
}

TrainingResult TrainingRun::run(RunDirectory* directory) {
  directory_ = directory;
  if (directory_) directory_->set_timeline(config_.trainer.timeline);
  on_root(group_, [&] { open_log(); });
  const StopSignals keyboard({SIGINT});
  const auto start = std::chrono::steady_clock::now();
  first_step_ = trainer_.steps_done();
  traced_until_ = first_step_ + config_.trace_steps;

  TrainingResult result;
  const bool stopped = train_steps(result);
  if (config_.profile != nullptr) write_profile();
  result.steps = trainer_.steps_done();
  if (const std::string summary = non_finite_.summary(); !summary.empty()) note(summary);
  result.interrupted = stopped && has_steps_left();
  if (!has_steps_left() && result.steps < config_.last_step) result.best_validation = validation_.best();
  if (saved_step_ != result.steps) save();
  if (!result.interrupted) validation_.finish(result, log());
  result.windows = validation_.windows();
  result.validation_seconds = validation_.seconds();
  if (result.train_loss && log_) {
    result.tokens_per_second = log_->tokens_per_second();
    result.training_seconds = log_->training_seconds();
    result.validation_seconds += log_->validation_seconds_before();
  }
  result.seconds = seconds_since(start);
  group_.enter(kUnwatched);
  if (log_) log_->end_progress();
  return result;
}

bool TrainingRun::train_steps(TrainingResult& result) {
  bool stopped = false;
  while (!stopped && has_steps_left()) {
    profiled_step(result);
    stopped = any(group_, StopSignals::requested());
  }
  return stopped;
}

void TrainingRun::find_peak() {
  peak_flops_per_second_ = peak_of_all_ranks(group_, backend_, config_.peak);
  backend_.forget_memory_peak();  // the measured matrices do not count
}

void TrainingRun::profiled_step(TrainingResult& result) {
  if (config_.profile == nullptr) return step(result);
  config_.profile->step(trainer_.steps_done() + 1, [&] { step(result); });
  if (config_.profile->is_complete()) write_profile();
}

void TrainingRun::write_profile() {
  if (profile_noted_) return;
  profile_noted_ = true;
  try {
    config_.profile->write();
    note(config_.profile->description());
  } catch (const std::runtime_error& error) {
    const bool on_all_ranks = group_.size() == 1 || is_agreed(error);
    if (!on_all_ranks) throw;  // the others wait for this one
    note(concat("warning: the profile was not written: ", error.what()));
  }
}

void TrainingRun::step(TrainingResult& result) {
  if (directory_) directory_->read_back_newest();
  const StepReport report = train();
  non_finite_.count(report);
  if (!report.finite() && non_finite_.is_told()) on_non_finite(report);
  bool checkpoint = due(config_.checkpoint_every) || trainer_.steps_done() == config_.trainer.schedule.steps;
  validation_.forget();
  if (config_.eval_every > 0 && (checkpoint || due(config_.eval_every))) {
    const bool best = validation_.run(trainer_.steps_done(), log());
    checkpoint = checkpoint || (best && config_.patience > 0);
  }
  if (log_) {
    const std::int64_t work = validation_.work();
    log_->step(metrics_of(report), share_done(first_step_, trainer_.steps_done(), config_, work));
  }
  result.train_loss = report.loss;
  if (due(config_.sample_every)) sample();
  if (checkpoint) try_to_save();
}

StepReport TrainingRun::train() {
  layers_.clear();
  const bool measured = config_.watch_layers > 0 && (trainer_.steps_done() + 1) % config_.watch_layers == 0;
  if (!measured) return train(nullptr);
  LayerWatch layers(grid_, backend_, model_, trainer_.optimizer().owned());
  const StepReport report = train(&layers);
  layers_ = layers.finish();
  return report;
}

StepReport TrainingRun::train(LayerWatch* layers) {
  if (trainer_.steps_done() >= traced_until_) return trainer_.step({}, layers);
  return traced_step(trainer_, grid_, backend_, model_, layers,
                     directory_ ? directory_->traces() : std::filesystem::path());
}

void TrainingRun::sample() {
  group_.enter("sample");
  const std::string sample = config_.sample();
  if (log_) log_->sample(trainer_.steps_done(), sample);
}

void TrainingRun::note(const std::string& text) {
  if (log_) log_->note(text);
}

bool TrainingRun::due(std::int64_t every) const { return every > 0 && trainer_.steps_done() % every == 0; }

void TrainingRun::on_non_finite(const StepReport& report) {
  const std::string what = non_finite_.description(report, trainer_.first_non_finite(report));
  if (!non_finite_.end_run()) return note(concat("note: ", what));
  const bool saved = report.skipped() && save_before(report.step);
  const std::string run = directory_ ? directory_->path().string() : "";
  throw AgreedFailure(concat(what, "; a lower --learning-rate may help",
                             saved ? concat("; to continue, use --resume ", run, " --non-finite skip") : ""));
}

StepMetrics TrainingRun::metrics_of(const StepReport& report) const {
  const std::int64_t T = data_.seq_len(), tokens = step_tokens();
  return {.report = report,
          .ranks = group_.size(),
          .slowest_host = group_.host(report.slowest_rank),
          .tokens_seen = trainer_.data_position() * T,
          .step_tokens = tokens,
          .step_flops = step_flops(model_.config(), table_.numel(), tokens, T),
          .peak_flops_per_second = peak_flops_per_second_,
          .peak_memory_bytes = backend_.memory_stats().peak_bytes_in_use,
          .validation = validation_.validated(),
          .task = validation_.answered(),
          .layers = layers_};
}

void TrainingRun::save() {
  group_.enter("checkpoint");
  on_root(group_, [&] { log_->sync(); });  // so that the metrics contain all steps of the checkpoint
  trainer_.gather_weights();
  require_same_weights(group_, backend_, model_.parameters(), concat("after step ", trainer_.steps_done()),
                       grid_.tensor().size(), grid_.pipeline().size());
  const std::string saved = save_checkpoint(directory_, grid_, backend_, model_, trainer_.optimizer(),
                                            *corpus_.tokenizer, state(), config_);
  saved_step_ = trainer_.steps_done();
  note(saved);
}

void TrainingRun::try_to_save() {
  std::string why;
  try {
    return save();
  } catch (const WeightsDiffer&) {
    throw;  // later checkpoints would be wrong too
  } catch (const std::runtime_error& error) {
    if (group_.size() > 1 && !is_agreed(error)) throw;  // on this rank only: the others wait for it
    why = error.what();
  } catch (const std::bad_alloc&) {
    if (group_.size() > 1) throw;
    why = "out of memory";
  }
  note(concat("warning: saving step ", trainer_.steps_done(), ": ", why));
}

bool TrainingRun::save_before(std::int64_t step) {
  const TrainerConfig& config = config_.trainer;
  trainer_.restore(step, trainer_.data_position() - config.batch_size * config.grad_accumulation,
                   trainer_.updates());
  validation_.forget();
  if (saved_step_ != step) try_to_save();
  return saved_step_ == step;
}

TrainerState TrainingRun::state() const {
  const std::optional<ValidationResult>& validated = validation_.validated();
  return {.step = trainer_.steps_done(),
          .data_position = trainer_.data_position(),
          .seed = config_.trainer.seed,
          .schedule = config_.trainer.schedule,
          .updates = trainer_.updates(),
          .train_tokens = data_.tokens().size(),
          .train_identity = corpus_.train_identity,
          .validation_hash = corpus_.validation_identity.hash,
          .validation_loss = validated ? std::optional(validated->loss) : std::nullopt,
          .validation_tokens = validated ? std::optional(validated->tokens) : std::nullopt,
          .best_validation = validation_.best()};
}

}  // namespace stagegpt
