#include "common/app/train_flags.h"

#include <algorithm>
#include <iostream>
#include <sstream>

#include "common/app/memory_check.h"
#include "common/app/trained_model.h"
#include "common/checkpoint/model_file.h"
#include "common/system/shared_files.h"

namespace stagegpt {
namespace {

namespace fs = std::filesystem;

constexpr const char* kDefaultData = "data/dummy.txt";
constexpr std::int64_t kMaxSteps = 1'000'000'000;  // numbers of random sequences have 32 bits

// "wte*,h.0.*" -> "wte*", "h.0.*".
std::vector<std::string> patterns_of(const std::string& list) {
  std::vector<std::string> patterns;
  std::istringstream in(list);
  for (std::string pattern; std::getline(in, pattern, ',');) patterns.push_back(pattern);
  return patterns;
}

// Throws UserError if one of the patterns matches no parameter, or if they leave none to train.
void check_frozen(const Gpt2Config& config) {
  if (config.frozen.empty()) return;
  ParameterTable table = gpt2_parameter_table(config);
  for (const std::string& pattern : config.frozen) {
    if (table.freeze(pattern) > 0) continue;
    user_error("--freeze: '", pattern, "' matches no parameter; their names are such as ", table[0].name,
               " and ", table[4].name);
  }
  if (table.trained_numel() == 0) user_error("--freeze: expected patterns that leave a parameter to train");
}

fs::path find_data(const std::string& path) {
  return path == kDefaultData ? find_shared(path) : fs::path(path);
}

}  // namespace

TrainFlags::TrainFlags() : data_(kDefaultData) {}

void TrainFlags::add(CommandLine& command_line) {
  command_line.group("This call", CommandLine::Concerns::this_call);
  command_line.config_file();
  command_line.toggle("--print-config", print_config,
                      "print all settings and the values derived for those that are null, then exit");
  command_line.toggle("--dry-run", options_.dry_run,
                      "print the number of parameters, FLOPs and memory, then exit");
  command_line.optional_text("--resume", resume,
                             "resume the run in --run-dir, or in this directory, with its settings");
  command_line.integer(
      "--stop-after", stop_after_, 1, kMaxSteps,
      "stop at this step and save a checkpoint; the learning-rate schedule still ends at --steps");
  command_line.integer("--trace-steps", options_.run.trace_steps, 0, kMaxSteps,
                       "write the tensors of the first N steps of this call to RUN/traces (0: none)");
  profile.add(command_line, "step", {2, 4});
  add_ignore_memory(command_line, options_.ignore_memory);
  command_line.toggle("--json", options_.json, "print the result as one JSON object");

  command_line.group("Data");
  command_line.text("--data", data_,
                    "training data: a text file, token shards, a glob pattern of either, a directory that "
                    "prepare_data wrote, or a mixture of these: 'a.txt=0.7,b.txt=0.3'");
  tokenizer_.add(command_line);
  command_line.real("--val-fraction", options_.corpus.val_fraction, kBelowOne,
                    "fraction of the text, taken from its end, for validation (0: none)");
  model.add(command_line);

  command_line.group("Training");
  command_line.integer("--batch-size", options_.run.trainer.batch_size, 1, 1 << 20,
                       "sequences per micro-step, of all ranks together");
  command_line.integer("--grad-accumulation", options_.run.trainer.grad_accumulation, 1, 1 << 20,
                       "micro-steps per optimizer step");
  command_line.integer("--steps", steps_, 1, kMaxSteps,
                       "optimizer steps; the learning-rate schedule ends there");
  command_line.real("--learning-rate", learning_rate_, kPositive,
                    "peak learning rate (default: the preset's; 5e-05 where weights are given)");
  command_line.real("--min-lr", min_lr_, kNotNegative,
                    "learning rate when --steps are done (default: a tenth of the peak)");
  command_line.integer("--warmup-steps", warmup_steps_, 0, kMaxSteps,
                       "warm-up steps (default: a twentieth of --steps)");
  command_line.choice("--lr-schedule", schedule_, {"cosine", "linear", "constant", "wsd"},
                      "decay of the learning rate (wsd: linear, in the last --decay-steps alone)");
  command_line.integer("--decay-steps", decay_steps_, 1, kMaxSteps,
                       "with --lr-schedule wsd: steps of the decay (default: a fifth of --steps)");
  add_adamw(command_line, options_.run.trainer.adamw);
  command_line.free_text(
      "--freeze", freeze_,
      "do not train the parameters whose names match one of these patterns, separated by commas: "
      "'wte*,h.0.*'");
  command_line.toggle("--overfit-batch", options_.run.trainer.overfit_batch,
                      "train on the first batch only, to check that the model can learn");
  command_line.toggle("--reproducible", options_.run.trainer.reproducible,
                      "the same weights, to the last bit, on 1, 2, 4 or 8 ranks, with any number of threads, "
                      "at stages 0 and 1");
  command_line.integer(
      "--sub-batches", options_.run.trainer.sub_batches, 1, kMostSubBatches,
      "with --reproducible: the parts of each batch, a power of two, which are also the most "
      "ranks; another number gives other bits");
  add_recompute(command_line, recompute_);
  command_line.choice("--non-finite", non_finite_, {"stop", "skip"},
                      "what to do when a loss or gradient is infinite or NaN");
  command_line.integer("--seed", seed_, 0, INT64_MAX,
                       "random seed of initialisation, data order, dropout and generated samples");

  command_line.group("Run");
  command_line.text("--run-dir", options_.run_dir,
                    "directory of the run (default: runs/MODEL, or runs/MODEL-2, …)");
  command_line.integer("--eval-every", options_.run.eval_every, 0, kMaxSteps,
                       "validate every N steps, at checkpoints and at the end (0: never)");
  command_line.integer(
      "--eval-tokens", eval_tokens_, 0, kMostEvalTokens,
      "tokens of each validation, spread evenly (0: all; default: as many as take a tenth of the "
      "training's passes, at least 64 windows)");
  command_line.free_text(
      "--eval-task", options_.eval_task,
      "multiple-choice questions to answer with every validation, as --task of stageN_evaluate", "PATH");
  command_line.integer("--patience", options_.run.patience, 0, kMaxSteps,
                       "stop after N validations in a row that are not better than the best one, which is "
                       "saved (0: never)");
  command_line.integer("--checkpoint-every", options_.run.checkpoint_every, 1, kMaxSteps,
                       "save a checkpoint every N steps");
  command_line.integer("--keep-last", options_.run.keep.last, 2, kMaxSteps, "keep the N newest checkpoints");
  command_line.integer("--keep-every", options_.run.keep.every, 0, kMaxSteps,
                       "also keep the checkpoints at multiples of N steps (0: none)");
  command_line.integer("--sample-every", options_.run.sample_every, 0, kMaxSteps,
                       "generate a sample every N steps (0: never)");
  command_line.integer(
      "--watch-layers", options_.run.watch_layers, 0, kMaxSteps,
      "measure the gradients, updates and activations of each layer every N steps (0: never)");
  command_line.integer("--max-new-tokens", options_.sample_tokens, 0, 1'000'000, "tokens in a sample");
  command_line.toggle("--no-fused", options_.no_fused, "run fused ops as sequences of primitive ones");
}

void TrainFlags::resolve() {
  model.resolve();
  check_frozen(model_config());
  if (!learning_rate_) learning_rate_ = model.learning_rate();
  if (!min_lr_) min_lr_ = *learning_rate_ / 10;
  if (!warmup_steps_) warmup_steps_ = steps_ / 20;
  if (*min_lr_ > *learning_rate_) {
    user_error("--min-lr: ", *min_lr_, " exceeds --learning-rate ", *learning_rate_);
  }
  if (options_.run.eval_every == 0 && !options_.eval_task.empty())
    user_error("--eval-task: is answered with every validation, and there is none with --eval-every 0");
  if (options_.run.patience > 0 && (options_.corpus.val_fraction == 0 || options_.run.eval_every == 0)) {
    user_error("--patience: there is no validation to compare, with ",
               options_.run.eval_every == 0 ? "--eval-every" : "--val-fraction", " 0");
  }
  if (*warmup_steps_ > steps_) user_error("--warmup-steps: ", *warmup_steps_, " exceeds --steps ", steps_);
  if (stop_after_ > steps_) {
    std::cerr << "note: --stop-after: " << *stop_after_ << " exceeds --steps " << steps_
              << ", where the run ends\n";
  }
  resolve_decay();
  if (!eval_tokens_ && options_.run.eval_every > 0)
    eval_tokens_ = usual_eval_tokens(run(), model.config().block_size);
}

void TrainFlags::resolve_decay() {
  if (schedule_ != "wsd") return;
  const std::int64_t most = steps_ - *warmup_steps_;
  if (most == 0) user_error("--warmup-steps: leaves no step for the decay of --lr-schedule wsd");
  if (!decay_steps_) decay_steps_ = std::clamp<std::int64_t>(steps_ / 5, 1, most);
  if (*decay_steps_ > most)
    user_error("--decay-steps: expected at most ", most, ", the steps after the warm-up, not ",
               *decay_steps_);
}

TrainOptions TrainFlags::options() const {
  TrainOptions options = options_;
  options.model_name = model.name();
  options.model_label = model.label();
  options.weights = model.weights();
  options.config = model_config();
  options.corpus = corpus();
  options.run = run();
  return options;
}

Gpt2Config TrainFlags::model_config() const {
  Gpt2Config config = model.config();
  config.frozen = patterns_of(freeze_);
  return config;
}

CorpusConfig TrainFlags::corpus() const {
  CorpusConfig config = options_.corpus;
  config.data = find_data(data_);
  config.tokenizer = tokenizer_.choice();
  config.special = tokenizer_.special();
  config.any_bytes = tokenizer_.any_bytes();
  // A trained model keeps the tokenizer that it was trained with.
  const bool made_from_text = !config.tokenizer.path && config.tokenizer.kind != "gpt2";
  if (model.weights() && made_from_text) {
    const auto directory = directory_of_model(*model.weights());
    if (!directory) refuse_missing_tokenizer(*model.weights());
    config.tokenizer.path = directory->string();
    config.tokenizer.path_flag = "--model";
  }
  return config;
}

TrainingRunConfig TrainFlags::run() const {
  TrainingRunConfig config = options_.run;
  config.trainer.recompute = *recompute_named(recompute_);
  config.trainer.seed = static_cast<std::uint64_t>(seed_);
  config.trainer.schedule = {.kind = *lr_schedule_named(schedule_),
                             .learning_rate = *learning_rate_,
                             .min_lr = *min_lr_,
                             .warmup_steps = *warmup_steps_,
                             .steps = steps_,
                             .decay_steps = decay_steps_.value_or(0)};
  config.eval_tokens = eval_tokens_.value_or(0);
  config.last_step = std::min(steps_, stop_after_.value_or(steps_));
  if (options_.sample_tokens == 0) config.sample_every = 0;
  config.non_finite = non_finite_ == "skip" ? NonFinite::skip : NonFinite::stop;
  return config;
}

}  // namespace stagegpt
