// stageN_train: train GPT-2 on a text, then print a sample.
#include <algorithm>
#include <iostream>

#include "common/app/dry_run.h"
#include "common/app/removed_settings.h"
#include "common/app/resume.h"
#include "common/app/shared_corpus.h"
#include "common/app/shared_task.h"
#include "common/app/stage.h"
#include "common/app/train_flags.h"
#include "common/app/training_grid.h"
#include "common/base/grouped.h"
#include "common/base/json.h"
#include "common/checkpoint/hugging_face_model.h"
#include "common/checkpoint/manifest.h"
#include "common/comm/agreement.h"
#include "common/data/tokenizers/stream_decoder.h"
#include "common/generation/generation.h"
#include "common/parallel/whole_values.h"
#include "common/system/stop_signals.h"
#include "common/train/broadcast_weights.h"

namespace stagegpt {
namespace {

namespace fs = std::filesystem;

// The flags, and the command line that refers to them: this cannot be moved.
struct Call {
  TrainFlags flags;
  CommandLine command_line;

  Call(const char* program, Stage& stage)
      : command_line(program, "Train GPT-2 on a text. With no flag: nano, on data/dummy.txt.", stage.number(),
                     stage_flags()) {
    command_line.version(built_version());
    flags.add(command_line);
    stage.add_flags(command_line);
    stage.add_training_flags(command_line);
    stage.add_grid_flags(command_line);
  }
};

// Paths may hold bytes that are not UTF-8.
std::string text_of(const Json& json) {
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + '\n';
}

// The prompt of a sample: a line break, or the text's first token if there is no line break near its start.
std::vector<std::int32_t> sample_prompt(const Corpus& corpus) {
  constexpr std::int64_t kSearched = 1 << 16;
  const auto ids = corpus.train.read(0, std::min(kSearched, corpus.train.size()));
  const auto line_break = std::ranges::find_if(ids, [&](std::int32_t id) {
    return corpus.tokenizer->decode({&id, 1}) == "\n";
  });
  return {line_break == ids.end() ? ids.front() : *line_break};
}

std::string write_sample(const TrainFlags& flags, const Machine& machine, const LanguageModel& model,
                         const Corpus& corpus) {
  const Grid grid = machine.ranks();
  RankGroup& group = grid.world().group();
  group.enter("sample");
  std::string text;
  StreamDecoder decoder(*corpus.tokenizer);
  const SamplingConfig sampling{.temperature = 0.7, .seed = flags.run().trainer.seed};
  Context context(*machine.backend, model, grid.model());
  const auto emit = [&](std::int32_t id) {
    group.beat();
    // The model may have more tokens than the tokenizer.
    if (id < corpus.tokenizer->size()) text += decoder.push(id);
    return !StopSignals::requested();
  };
  try {
    generate(context, sample_prompt(corpus), flags.sample_tokens, sampling, 0, emit);
  } catch (const std::runtime_error& error) {
    if (grid.divides_model()) throw;  // the other ranks of the model wait in a collective
    // A run does not end for it.
    if (group.is_root()) std::cerr << "warning: no sample: " << error.what() << '\n';
  }
  return text + decoder.finish();
}

// The same, on every rank. Rank 0 writes it, or, where no rank has the whole model, all ranks.
std::string shared_sample(const TrainFlags& flags, const Machine& machine, const LanguageModel& model,
                          const Corpus& corpus) {
  const Grid grid = machine.ranks();
  const auto write = [&] { return write_sample(flags, machine, model, corpus); };
  RankGroup& group = grid.world().group();
  return grid.divides_model() ? broadcast_text(group, write()) : text_from_root(group, write);
}

template <class T>
Json or_null(const std::optional<T>& value) {
  return value ? Json(*value) : Json();
}

void print_json(const TrainFlags& flags, const ParameterTable& table, const fs::path& run,
                const TrainingResult& result, const std::string& sample) {
  const std::optional<ValidationResult>& validation = result.validation;
  const Json json = {{"model", flags.model.label()},
                     {"parameters", table.numel()},
                     {"trained_parameters", table.trained_numel()},
                     {"run_dir", run.string()},
                     {"steps", result.steps},
                     {"loss", or_null(result.train_loss)},
                     {"validation_loss", validation ? Json(validation->loss) : Json()},
                     {"validation_accuracy", validation ? Json(validation->accuracy) : Json()},
                     {"validation_tokens", validation ? Json(validation->tokens) : Json()},
                     {"bits_per_byte", validation ? or_null(validation->bits_per_byte) : Json()},
                     {"stopped_early", result.best_validation.has_value()},
                     {"task", result.task ? to_json(*result.task) : Json()},
                     {"tokens_per_second", or_null(result.tokens_per_second)},
                     {"seconds", result.seconds},
                     {"sample", sample}};
  std::cout << text_of(json);
}

// The size of the embedding: that of weights which are there, or of the tokenizer.
std::int64_t vocab_size(const TrainFlags& flags, const Tokenizer& tokenizer) {
  if (!flags.model.directory()) return tokenizer.size();
  const std::int64_t size = flags.model.config().vocab_size;
  if (tokenizer.size() > size) {
    user_error("--model: expected a vocabulary of at least ", tokenizer.size(),
               " tokens, as the tokenizer has, not ", size);
  }
  return size;
}

// The weights to start from. Opening them compares the files with config.json, before a model of that size is
// allocated.
std::unique_ptr<HuggingFaceModel> open_weights(const TrainFlags& flags, bool verified) {
  const std::optional<fs::path> directory = flags.model.directory();
  if (!directory) return nullptr;
  const char* flag = verified ? "--resume" : "--model";
  if (!verified) verify_named(*directory, flag, StopSignals::throw_if_requested);
  return std::make_unique<HuggingFaceModel>(*directory, flag);
}

// "nano", or the name of the directory; for a checkpoint of a run, the run's name.
std::string run_name(const TrainFlags& flags) {
  if (!flags.model.directory()) return flags.model.name();
  fs::path directory = fs::weakly_canonical(*flags.model.directory());
  if (directory.parent_path().filename() == "checkpoints") directory = directory.parent_path().parent_path();
  return directory.has_filename() ? directory.filename().string() : "model";
}

// The directory of a new run, with the tokenizer.
RunDirectory create_run(const TrainFlags& flags, const Tokenizer& tokenizer) {
  RunDirectory run =
      flags.run_dir ? RunDirectory::create(*flags.run_dir) : RunDirectory::create_numbered(run_name(flags));
  tokenizer.save(run.tokenizer());
  return run;
}

// Which tokens are validated.
std::string describe_validation(const TrainFlags& flags, std::int64_t tokens, std::int64_t seq_len) {
  const WindowSample sample = validation_sample(tokens, seq_len, flags.run());
  if (sample.all == 0) return "none (--val-fraction 0)";
  const std::string windows = concat(grouped(sample.all), " windows of ", seq_len);
  if (sample.is_all()) return concat("all ", grouped(sample.all * seq_len), " tokens in ", windows);
  return concat(grouped(sample.count * seq_len), " tokens in ", grouped(sample.count), " of ", windows,
                ", spread evenly; at the end all ", grouped(sample.all * seq_len));
}

// Where the weights of one of OpenAI's models are, if they are random now.
std::string describe_random_weights(const TrainFlags& flags) {
  const std::string& name = flags.model.name();
  if (flags.model.directory() || !name.starts_with("gpt2")) return "";
  return concat("\nweights: random; for trained ones: ./scripts/download_gpt2.sh",
                name == "gpt2" ? "" : " --model " + name, ", then --model data/", name);
}

// "a.txt, 1,000 tokens", or "a.txt (70 %, 1,000 tokens) and b.txt (30 %, 2,000 tokens), 3,000 tokens".
std::string describe_data(const std::string& data, const Corpus& corpus) {
  std::string texts = corpus.mixture.empty() ? data : "";
  const std::vector<MixtureSource> sources = parse_mixture(data);
  for (std::size_t k = 0; k < corpus.mixture.size(); ++k) {
    const auto& [size, share] = corpus.mixture[k];
    texts += concat(k == 0 ? "" : " and ", sources[k].data, " (",
                    100 * static_cast<double>(share) / static_cast<double>(kMixtureBlock), " %, ",
                    grouped(size), " tokens)");
  }
  return concat(texts, ", ", grouped(corpus.train.size()), " tokens");
}

void describe(const TrainFlags& flags, const Gpt2Config& config, const Corpus& corpus,
              const Machine& machine) {
  const ParameterTable table = gpt2_parameter_table(config);
  std::cerr << flags.model.label() << ": " << grouped(table.numel()) << " parameters, ";
  if (!config.frozen.empty()) std::cerr << grouped(table.trained_numel()) << " of them trained, ";
  std::cerr << config.n_layer << (config.n_layer == 1 ? " layer, " : " layers, ") << config.n_head
            << (config.n_head == 1 ? " head, " : " heads, ") << config.n_embd << " channels, context "
            << config.block_size << describe_random_weights(flags)
            << "\ndata: " << describe_data(flags.corpus().data, corpus) << " and "
            << grouped(corpus.validation.size()) << " for validation, vocabulary "
            << grouped(config.vocab_size) << " (" << corpus.tokenizer->kind() << ")"
            << "\nvalidation: " << describe_validation(flags, corpus.validation.size(), config.block_size)
            << "\nmachine: " << machine.description << '\n';
}

std::string describe_result(const std::optional<ValidationResult>& validation) {
  if (!validation) return "no validation (--val-fraction 0)";
  return concat("validation loss ", validation->loss, " nats per token",
                validation->bits_per_byte ? concat(", ", *validation->bits_per_byte, " bits per byte") : "",
                ", of all ", grouped(validation->tokens), " tokens");
}

// Prints the result for a reader.
void print_result(const TrainFlags& flags, const fs::path& run, const TrainingResult& result) {
  if (result.interrupted) {
    const bool validating = result.steps >= flags.run().last_step;
    std::cerr << "stopped by a signal " << (validating ? "in the last validation, " : "") << "after step "
              << result.steps << " of " << flags.steps << "; continue with --resume " << run.string() << '\n';
    return;
  }
  if (const auto& best = result.best_validation; best && result.train_loss) {
    std::cerr << "stopped after step " << result.steps << " of " << flags.steps << ": the last "
              << best->worse << (best->worse == 1 ? " validation was" : " validations were")
              << " not better than that after step " << best->step << ", " << best->loss
              << "; its weights: " << (run / "best").string() << '\n';
  }
  if (result.train_loss) std::cerr << "trained in " << static_cast<long long>(result.seconds + 0.5) << " s: ";
  std::cerr << describe_result(result.validation) << "\nmodel: " << (run / "latest").string() << '\n';
  if (result.train_loss && !result.best_validation && result.steps < flags.steps) {
    std::cerr << "stopped after step " << result.steps << " of " << flags.steps
              << " (--stop-after); continue with --resume " << run.string() << '\n';
  }
}

// What must be the same on all ranks before they train.
NamedValues found(const Gpt2Config& config, const Corpus& corpus) {
  return {
      {"--model", concat(config.n_layer, " layers, ", config.n_head, " heads, ", config.n_embd,
                         " channels, context ", config.block_size, ", MLP ", config.mlp_width(), ", epsilon ",
                         config.layer_norm_epsilon, config.tie_word_embeddings ? "" : ", untied head",
                         ", attention scale ", config.attention_scale(config.n_layer - 1))},
      {"--data", concat(corpus.train.size(), " tokens with hash ", corpus.train_identity.hash)},
      {"--data", concat(corpus.validation.size(), " tokens of validation with hash ",
                        corpus.validation_identity.hash)}};
}

// Weights, the same on all ranks: random, or those of a directory, which rank 0 alone has open.
void begin_model(const TrainFlags& flags, const Machine& machine, const HuggingFaceModel* weights,
                 LanguageModel& model) {
  const Grid grid = machine.ranks();
  Communicator& communicator = grid.data();
  RankGroup& world = grid.world().group();
  Parameters& parameters = model.parameters();
  if (flags.model.directory() && grid.divides_model()) {
    const ParameterTable whole = gpt2_parameter_table(model.config());
    const auto values =
        weights ? with_heartbeat(weights->values(), StopSignals::throw_if_requested) : ParameterValues();
    take_part(world, *machine.backend, whole, values, parameters.table(), parameters.weights());
  } else if (flags.model.directory()) {
    on_root(communicator.group(),
            [&] { load_weights(*weights, *machine.backend, model, StopSignals::throw_if_requested); });
    broadcast_weights(communicator, *machine.backend, parameters);
  } else {
    agree(world, [&] {
      draw_weights(communicator, *machine.backend, parameters, flags.run().trainer.seed, machine.threads);
    });
  }
  parameters.update_shadow();
  stop_if_requested(world);
}

// Writes the settings of the run, and prints where it is.
void begin_run(const TrainFlags& flags, const Machine& machine, Json settings, const ParameterTable& table,
               const std::optional<ResumedRun>& resumed, RunDirectory& directory) {
  settings.erase("run_dir");  // a run may be moved, and resumed from anywhere
  settings["data"] = with_absolute_paths(flags.corpus().data);
  if (!flags.eval_task.empty()) settings["eval_task"] = fs::absolute(flags.eval_task).string();
  if (table.trained_numel() < table.numel()) settings[kDerived]["trained_parameters"] = table.trained_numel();
  for (const auto& [name, text] : machine.kept_files) replace_file(directory.path() / name, text);
  replace_file(directory.configuration(), text_of(settings));
  std::cerr << "run: " << directory.path().string()
            << (resumed ? concat(", resumed from ", resumed->checkpoint.filename()) : "") << '\n';
}

TrainingMemory memory_of(const TrainFlags& flags, const Gpt2Config& config, const Machine& machine) {
  return training_memory(machine, config, flags.run().trainer, config.block_size);
}

// Refuses what does not fit, before it is allocated.
void require_memory(const TrainFlags& flags, const Gpt2Config& config, const Machine& machine) {
  if (flags.dry_run || flags.ignore_memory) return;
  agree(machine.communicator->group(),
        [&] { require_training_memory(memory_of(flags, config, machine), free_memory()); });
}

// The steps of a resumed run that its checkpoint has done.
std::int64_t steps_done(const ResumedRun& resumed) {
  return step_in_name(resumed.checkpoint.filename()).value_or(0);
}

bool is_out_of_patience(const TrainFlags& flags, const ResumedRun& resumed) {
  return flags.patience > 0 && resumed.worse_validations >= flags.patience;
}

bool has_steps_left(const TrainFlags& flags, const std::optional<ResumedRun>& resumed) {
  return !resumed || (steps_done(*resumed) < flags.run().last_step && !is_out_of_patience(flags, *resumed));
}

// Explains why this call trains no step of a run, and what would continue the run.
void explain_nothing_left(const TrainFlags& flags, const ResumedRun& resumed) {
  const std::int64_t steps = steps_done(resumed);
  const std::string run = resumed.path.string();
  std::cerr << "run: " << run;
  if (is_out_of_patience(flags, resumed)) {
    std::cerr << " has stopped after step " << steps << ": its last " << resumed.worse_validations
              << " validations were not better than the best; to continue it, give more --patience, or 0\n";
  } else if (steps == flags.steps) {
    std::cerr << " is finished: all its " << steps << " steps are done; to continue it, give more, such as "
              << "--resume " << run << " --steps " << 2 * steps << '\n';
  } else {
    std::cerr << " has done " << steps << " steps, --stop-after asks for " << flags.run().last_step
              << "; to continue it, give a later step, or leave out --stop-after\n";
  }
  std::cerr << "nothing is trained or saved\n";
}

// Trains, from random weights or those of a directory, and prints the result. `resumed` is empty for a new
// run; `settings` are the run's.
int train(TrainFlags& flags, Json settings, const Machine& machine, Timeline* timeline,
          std::optional<ResumedRun> resumed) {
  RankGroup& group = machine.communicator->group();
  std::unique_ptr<HuggingFaceModel> weights;
  on_root(group, [&] {
    weights = open_weights(flags, resumed.has_value());
    if (resumed) require_data_of_run(*resumed, flags.corpus().data);
  });
  Gpt2Config config = flags.model_config();
  require_divisible_model(machine, config);
  // Checked with one token first: reading the text, which gives the size, may take long.
  config.vocab_size = 1;
  require_memory(flags, config, machine);
  const Corpus corpus =
      load_shared_corpus(group, flags.corpus(), flags.model.config().block_size, machine.threads);
  config.vocab_size = vocab_size(flags, *corpus.tokenizer);
  std::optional<ChoiceTask> task;
  if (!flags.eval_task.empty())
    task =
        load_shared_choice_task(group, flags.eval_task, "--eval-task", *corpus.tokenizer, config.block_size);
  if (group.size() > 1) require_same(group, found(config, corpus));
  require_divisible_model(machine, config);  // now with the size of the vocabulary
  describe(flags, config, corpus, machine);
  warn_of_few_micro_steps(machine, flags.run().trainer);
  if (flags.dry_run) {
    print_plan(memory_of(flags, config, machine), group, flags.json);
    return 0;
  }
  require_memory(flags, config, machine);
  machine.backend->set_fused(!flags.no_fused);
  TrainedPart part(machine, config);
  LanguageModel& model = *part.model;
  begin_model(flags, machine, weights.get(), model);
  weights.reset();

  TrainingRunConfig run_config = flags.run();
  run_config.peak = machine.peak;
  run_config.task = task ? &*task : nullptr;
  run_config.trainer.timeline = timeline;
  const auto profile = flags.profile.make_profile(timeline, group, *machine.backend);
  run_config.profile = profile.get();
  run_config.sample = [&] { return shared_sample(flags, machine, model, corpus); };
  TrainingRun run(*machine.backend, machine.ranks(), *machine.sync, model, corpus, run_config);
  if (resumed) run.resume(resumed->checkpoint);
  run.prepare();

  std::optional<RunDirectory> directory;  // rank 0 keeps the run
  on_root(group, [&] {
    directory = resumed ? std::move(resumed->directory) : create_run(flags, *corpus.tokenizer);
    if (resumed) directory->resume_from(resumed->checkpoint);
    if (has_steps_left(flags, resumed)) {
      begin_run(flags, machine, std::move(settings), gpt2_parameter_table(config), resumed, *directory);
    } else {
      explain_nothing_left(flags, *resumed);
    }
  });
  const TrainingResult result = run.run(directory ? &*directory : nullptr);
  on_root(group, [&] { print_result(flags, directory->path(), result); });
  const std::string sample = result.interrupted ? "" : shared_sample(flags, machine, model, corpus);
  on_root(group, [&] {
    group.enter(kUnwatched);
    if (flags.json) {
      print_json(flags, gpt2_parameter_table(config), directory->path(), result, sample);
    } else if (!sample.empty()) {
      std::cout << sample << '\n';
    }
  });
  return result.interrupted ? kExitStopped : 0;
}

// With --tensor-parallel and --pipeline-parallel, no rank has the whole model. (With frozen parameters, ranks
// could disagree on which gradients there are: some biases are on the first tensor rank only.)
void refuse_what_needs_a_whole_model(const TrainFlags& flags, const Stage& stage) {
  refuse_on_grid(stage, flags.run().trainer.reproducible, "--reproducible");
  refuse_on_grid(stage, !flags.model_config().frozen.empty(), "--freeze");
}

// Checks that need neither data nor weights.
void check_run(TrainFlags& flags, Stage& stage, const std::optional<ResumedRun>& resumed) {
  RankGroup& group = stage.group();
  const TrainerConfig config = flags.run().trainer;
  agree(group, [&] {
    if (!config.reproducible && config.sub_batches != kReproducibleSubBatches)
      user_error("--sub-batches: expected together with --reproducible");
    refuse_what_needs_a_whole_model(flags, stage);
    require_divisible_step(stage, config);
  });
  const StepRange steps{resumed ? steps_done(*resumed) + 1 : 1, flags.run().last_step};
  agree(group, [&] {
    flags.profile.resolve(steps, stage);
    if (stage.counts() && flags.dry_run) user_error("--emulator-report: cannot be combined with --dry-run");
  });
  on_root(group, [&] {
    if (!resumed && !flags.dry_run && flags.run_dir) require_no_run(*flags.run_dir);
  });
}

std::string settings_file(const ResumedRun& resumed) {
  return concat("--resume: ", resumed.path / "run.json");
}

// Resumes with the run's copies of files, unless a flag names another file than before.
void take_kept_files(const Stage& stage, const CommandLine& command_line, const ResumedRun& resumed) {
  const Json now = command_line.settings();
  for (const auto& [flag, name] : stage.kept_files()) {
    const std::string key = config_key(flag);
    const Json before = resumed.settings.value(key, Json());
    if (before.is_string() && now[key] == before)
      command_line.apply(Json{{key, (resumed.path / name).string()}});
  }
}

// Fills in what was not given: from the run, so that a new default does not change it, otherwise from other
// flags. Returns the settings that were given, with those derived.
Json resolve(const Stage& stage, Call& call, const std::optional<ResumedRun>& resumed) {
  Json settings = call.command_line.settings();
  if (resumed) {
    naming(settings_file(*resumed),
           [&] { call.command_line.apply(kept_values(resumed->settings, settings)); });
    refuse_changes(resumed->settings, call.command_line.settings());
    call.flags.model.begin_from(resumed->checkpoint);
  }
  call.flags.resolve();
  settings = with_derived(std::move(settings), call.command_line.settings());
  if (resumed) {
    if (has_steps_left(call.flags, resumed))
      announce_changes(resumed->settings, settings, call.command_line.stage_keys());
    call.flags.take_tokenizer(resumed->path / "tokenizer.json");
    take_kept_files(stage, call.command_line, *resumed);
  } else {
    call.flags.model.refuse_fields_of_another_model(call.command_line);
  }
  return settings;
}

int train_main(Stage& stage, int argc, char** argv) {
  RankGroup& group = stage.group();
  auto call = std::make_unique<Call>(argv[0], stage);
  if (!parse_flags(stage, call->command_line, argc, argv, [] {})) return 0;

  std::optional<ResumedRun> resumed;
  if (call->flags.resume) resumed = open_resumed_run(group, *call->flags.resume, call->flags.run_dir);
  Json settings;
  agree(group, [&] {
    if (resumed) {
      call = std::make_unique<Call>(argv[0], stage);
      for (const std::string& note : replace_removed(resumed->settings))
        std::cerr << "note: " << note << '\n';
      naming(settings_file(*resumed), [&] { call->command_line.apply(resumed->settings); });
      call->command_line.parse(argc, argv);
    }
    settings = resolve(stage, *call, resumed);
  });
  require_same_settings(group, call->command_line);
  TrainFlags& flags = call->flags;
  if (flags.print_config) {
    std::cout << text_of(settings);
    return 0;
  }
  check_run(flags, stage, resumed);
  const std::unique_ptr<Timeline> timeline = flags.profile.make_timeline();
  Machine& machine = stage.start(timeline.get());
  if (flags.run().trainer.reproducible) make_reproducible(machine);
  return train(flags, std::move(settings), machine, timeline.get(), std::move(resumed));
}

}  // namespace
}  // namespace stagegpt

int main(int argc, char** argv) {
  // First of all: a scheduler's signal must not end a run that is just starting.
  const stagegpt::StopSignals scheduler({SIGUSR1, SIGTERM, SIGHUP});
  std::signal(SIGPIPE, SIG_IGN);  // the reader of a pipe may end before us
  return stagegpt::run_stage(argc, argv, stagegpt::make_stage, stagegpt::train_main);
}
