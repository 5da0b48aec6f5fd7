// stageN_train: train GPT-2 on a text, then print a sample.
#include <iostream>

#include "common/app/dry_run.h"
#include "common/app/run_start.h"
#include "common/app/train_call.h"
#include "common/app/train_report.h"
#include "common/app/training_grid.h"
#include "common/app/training_sample.h"
#include "common/comm/agreement.h"
#include "common/data/choice_task.h"
#include "common/data/corpus.h"
#include "common/parallel/divided_gpt2.h"
#include "common/system/stop_signals.h"
#include "common/train/training_run.h"

namespace stagegpt {
namespace {

// The size of the embedding: that of weights which are there, or of the tokenizer.
std::int64_t vocab_size(const TrainOptions& options, const Tokenizer& tokenizer) {
  if (!options.weights) return tokenizer.size();
  const std::int64_t size = options.config.vocab_size;
  if (tokenizer.size() > size) {
    user_error("--model: expected a vocabulary of at least ", tokenizer.size(),
               " tokens, as the tokenizer has, not ", size);
  }
  return size;
}

// What must be the same on all ranks before they train.
NamedValues identity_of(const Gpt2Config& config, const Corpus& corpus) {
  return {
      {"--model", concat(config.n_layer, " layers, ", config.n_head, " heads, ", config.n_embd,
                         " channels, context ", config.block_size, ", MLP ", config.mlp_width(), ", epsilon ",
                         config.layer_norm_epsilon, config.tie_word_embeddings ? "" : ", untied head",
                         ", attention scale ", config.attention_scale(config.n_layer - 1))},
      {"--data", concat(corpus.train.size(), " tokens with hash ", corpus.train_identity.hash)},
      {"--data", concat(corpus.validation.size(), " tokens of validation with hash ",
                        corpus.validation_identity.hash)}};
}

TrainingMemory memory_of(const TrainOptions& options, const Gpt2Config& config, const Machine& machine) {
  return training_memory(machine, config, options.run.trainer, config.block_size);
}

// Refuses what does not fit, before it is allocated.
void require_memory(const TrainOptions& options, const Gpt2Config& config, const Machine& machine) {
  if (options.dry_run || options.ignore_memory) return;
  agree(machine.communicator->group(),
        [&] { require_training_memory(memory_of(options, config, machine), free_memory()); });
}

// Trains, and prints the result.
int train(TrainCall call, const Machine& machine, Timeline* timeline) {
  const TrainOptions& options = call.options;
  std::optional<ResumedRun>& resumed = call.resumed;
  RankGroup& group = machine.communicator->group();
  ParameterValues weights;  // of rank 0
  on_root(group, [&] {
    if (options.weights) weights = open_weights(*options.weights, resumed.has_value());
    if (resumed) require_data_of_run(*resumed, options.corpus.data);
  });
  Gpt2Config config = options.config;
  require_divisible_model(machine, config);
  // Checked with one token first: reading the text, which gives the size, may take long.
  config.vocab_size = 1;
  require_memory(options, config, machine);
  const Corpus corpus = load_shared_corpus(group, options.corpus, config.block_size, machine.threads);
  config.vocab_size = vocab_size(options, *corpus.tokenizer);
  std::optional<ChoiceTask> task;
  if (!options.eval_task.empty())
    task = load_choice_task(group, options.eval_task, "--eval-task", *corpus.tokenizer, config.block_size);
  if (group.size() > 1) require_same(group, identity_of(config, corpus));
  require_divisible_model(machine, config);  // now with the size of the vocabulary
  describe_run(options, config, corpus, machine);
  warn_of_few_micro_steps(machine, options.run.trainer);
  if (options.dry_run) {
    const auto peak = [&] {  // bf16 may be faster than the products in f32 that would be measured
      const bool unknown = !machine.peak && machine.activations != DType::f32;
      return any(group, unknown) ? 0 : peak_of_all_ranks(group, *machine.backend, machine.peak);
    };
    print_plan(memory_of(options, config, machine), group, peak, options.json);
    return 0;
  }
  require_memory(options, config, machine);
  machine.backend->set_fused(!options.no_fused);
  const std::unique_ptr<LanguageModel> own_part =
      make_gpt2(*machine.backend, config, machine.ranks(), Purpose::training, machine.activations);
  LanguageModel& model = *own_part;
  set_initial_weights(machine, options.weights.has_value(), weights, options.run.trainer.seed, model);
  weights = nullptr;  // closes the files

  TrainingRunConfig run_config = options.run;
  run_config.peak = machine.peak;
  run_config.task = task ? &*task : nullptr;
  run_config.trainer.timeline = timeline;
  const auto profile = call.profile.make_profile(timeline, group, *machine.backend);
  run_config.profile = profile.get();
  const auto sample_now = [&] {
    return sample_text(machine, model, corpus, options.sample_tokens, options.run.trainer.seed);
  };
  run_config.sample = sample_now;
  TrainingRun run(*machine.backend, machine.ranks(), *machine.sync, model, corpus, run_config);
  if (resumed) run.resume(resumed->checkpoint);
  run.prepare();

  std::optional<RunDirectory> directory;  // rank 0 keeps the run
  on_root(group, [&] {
    directory = resumed ? std::move(resumed->directory) : create_run(options, *corpus.tokenizer);
    if (resumed) directory->resume_from(resumed->checkpoint);
    if (has_steps_left(resumed, options.run)) {
      begin_run(options, machine, std::move(call.settings), gpt2_parameter_table(config), resumed,
                *directory);
    } else {
      explain_nothing_left(options.run, *resumed);
    }
  });
  const TrainingResult result = run.run(directory ? &*directory : nullptr);
  on_root(group, [&] { print_result(options.run, directory->path(), result); });
  const bool sampled = !result.interrupted && !any(group, StopSignals::requested());
  const std::string sample = sampled ? sample_now() : "";
  on_root(group, [&] {
    group.enter(kUnwatched);
    if (options.json) {
      print_result_json(options.model_label, gpt2_parameter_table(config), directory->path(), result, sample);
    } else if (!sample.empty()) {
      std::cout << sample << '\n';
    }
  });
  return result.interrupted ? kExitStopped : 0;
}

int train_main(Stage& stage, int argc, char** argv) {
  std::optional<TrainCall> call = read_train_call(stage, argc, argv);
  if (!call) return 0;
  const std::unique_ptr<Timeline> timeline = call->profile.make_timeline();
  Machine& machine = stage.start(timeline.get());
  if (call->options.run.trainer.reproducible) make_reproducible(machine);
  return train(std::move(*call), machine, timeline.get());
}

}  // namespace
}  // namespace stagegpt

int main(int argc, char** argv) {
  // First of all: a scheduler's signal must not end a run that is just starting.
  const stagegpt::StopSignals scheduler(stagegpt::kSignalsOfSchedulers);
  std::signal(SIGPIPE, SIG_IGN);  // the reader of a pipe may end before us
  return stagegpt::run_stage(argc, argv, stagegpt::make_stage, stagegpt::train_main);
}
