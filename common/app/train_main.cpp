// stageN_train: train GPT-2 on a text, then let it write.
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <iostream>
#include <nlohmann/json.hpp>
#include <numbers>

#include "common/app/data_flags.h"
#include "common/app/model_flags.h"
#include "common/app/stage.h"
#include "common/data/corpus.h"
#include "common/data/tokenizers/stream_decoder.h"
#include "common/train/generation.h"
#include "common/train/progress.h"
#include "common/train/trainer.h"

namespace stagegpt {
namespace {

constexpr const char* kDefaultData = "data/dummy.txt";
constexpr std::int64_t kMaxSteps = 1'000'000'000'000;
constexpr std::int64_t kEvalTokens = 1 << 15;  // validation takes no more than this

struct TrainFlags {
  CorpusConfig corpus;
  TokenizerFlags tokenizer;
  std::string schedule = "cosine";
  ModelFlags model;
  TrainerConfig trainer;
  std::int64_t steps = 2000, eval_every = 100, seed = 1337, sample_tokens = 500;
  std::optional<std::int64_t> warmup_steps;
  std::optional<double> learning_rate, min_lr;
  bool no_fused = false, json = false;

  TrainFlags() { corpus.data = kDefaultData; }
  void add(CommandLine& command_line);
  // The trainer's configuration, with what depends on other flags filled in.
  TrainerConfig trainer_config() const;
};

void TrainFlags::add(CommandLine& command_line) {
  command_line.group("Data");
  command_line.text(
      "--data", corpus.data,
      "what to learn: a text, token shards, a pattern of either, or a directory of prepare_data's");
  tokenizer.add(command_line);
  command_line.real("--val-fraction", corpus.val_fraction, kFraction,
                    "part of the text, at its end, for validation");
  model.add(command_line);
  command_line.group("Training");
  command_line.integer("--batch-size", trainer.batch_size, 1, 1 << 20, "sequences in a micro-step");
  command_line.integer("--grad-accumulation", trainer.grad_accumulation, 1, 1 << 20, "micro-steps in a step");
  command_line.integer("--steps", steps, 1, kMaxSteps, "optimizer steps, the horizon of the schedule");
  command_line.real("--learning-rate", learning_rate, kPositive,
                    "peak learning rate (default: the preset's)");
  command_line.real("--min-lr", min_lr, kNotNegative, "final learning rate (default: a tenth of the peak)");
  command_line.integer("--warmup-steps", warmup_steps, 0, kMaxSteps,
                       "steps of warm-up (default: a twentieth)");
  command_line.choice("--lr-schedule", schedule, {"cosine", "linear", "constant"},
                      "decay of the learning rate");
  command_line.real("--weight-decay", trainer.adamw.weight_decay, kNotNegative, "decay of matrices");
  command_line.real("--beta1", trainer.adamw.beta1, kBelowOne, "decay of the first moment");
  command_line.real("--beta2", trainer.adamw.beta2, kBelowOne, "decay of the second moment");
  command_line.real("--eps", trainer.adamw.eps, kPositive, "added to the root of the second moment");
  command_line.real("--grad-clip", trainer.adamw.grad_clip, kNotNegative, "largest gradient norm (0: off)");
  command_line.integer("--seed", seed, 0, INT64_MAX,
                       "of initialisation, order of samples, dropout and samples");
  command_line.group("Run");
  command_line.integer("--eval-every", eval_every, 1, kMaxSteps, "steps between validation losses");
  command_line.integer("--max-new-tokens", sample_tokens, 0, 1'000'000, "length of the sample at the end");
  command_line.toggle("--no-fused", no_fused, "compose fused ops of primitive ones");
  command_line.toggle("--json", json, "print the result as one JSON object");
}

TrainerConfig TrainFlags::trainer_config() const {
  TrainerConfig config = trainer;
  config.seed = static_cast<std::uint64_t>(seed);
  config.schedule.kind = *lr_schedule_named(schedule);
  config.schedule.learning_rate = learning_rate.value_or(model.preset().learning_rate);
  config.schedule.min_lr = min_lr.value_or(config.schedule.learning_rate / 10);
  config.schedule.steps = steps;
  config.schedule.warmup_steps = warmup_steps.value_or(steps / 20);
  if (config.schedule.min_lr > config.schedule.learning_rate) {
    user_error("--min-lr: ", config.schedule.min_lr, " exceeds --learning-rate ",
               config.schedule.learning_rate);
  }
  if (config.schedule.warmup_steps > steps) {
    user_error("--warmup-steps: ", config.schedule.warmup_steps, " exceeds --steps ", steps);
  }
  return config;
}

// The default corpus is looked for in the working directory, then in the source tree.
std::filesystem::path find_data(const std::string& path) {
  std::error_code error;
  if (path != kDefaultData || std::filesystem::exists(path, error)) return path;
  std::filesystem::path in_source = std::filesystem::path(STAGEGPT_SOURCE_DIR) / path;
  return std::filesystem::exists(in_source, error) ? in_source : std::filesystem::path(path);
}

struct TrainResult {
  double train_loss = 0, validation_loss = 0, tokens_per_second = 0, seconds = 0;
  std::optional<double> bits_per_byte;
};

// Bytes of text that a target stands for, on average over the first `windows` windows. Special tokens stand
// for none. Nothing where words are unknown: what they were is lost.
std::optional<double> bytes_per_target(const Tokenizer& tokenizer, const DataLoader& data,
                                       std::int64_t windows) {
  const std::vector<std::int32_t> targets = data.tokens().read(1, windows * data.seq_len());
  std::size_t bytes = 0;
  for (const std::int32_t id : targets) {
    if (id == tokenizer.unknown()) return std::nullopt;
    if (!tokenizer.is_special(id))
      bytes += tokenizer.vocabulary().tokens[static_cast<std::size_t>(id)].size();
  }
  return static_cast<double>(bytes) / static_cast<double>(targets.size());
}

TrainResult train(const TrainFlags& flags, const Machine& machine, Gpt2& model, const Corpus& corpus) {
  const TrainerConfig config = flags.trainer_config();
  const std::int64_t T = model.config().block_size;
  const DataLoader data(corpus.train, T, config.seed), validation(corpus.validation, T, config.seed);
  const std::int64_t windows =
      std::min(validation.windows_in_order(), std::max<std::int64_t>(1, kEvalTokens / T));
  Trainer trainer(*machine.backend, *machine.communicator, *machine.sync, model, data, config);
  Progress progress(flags.steps, config.batch_size * config.grad_accumulation * T);
  const auto start = std::chrono::steady_clock::now();
  TrainResult result;
  while (trainer.steps_done() < flags.steps) {
    const StepReport report = trainer.step();
    if (!std::isfinite(report.loss) || !std::isfinite(report.grad_norm)) {
      throw std::runtime_error(concat("step ", report.step + 1, ": the loss is ", report.loss,
                                      " and the gradient norm ", report.grad_norm,
                                      "; a lower --learning-rate may help"));
    }
    result.train_loss = report.loss;
    std::optional<double> validation_loss;
    if (trainer.steps_done() % flags.eval_every == 0 || trainer.steps_done() == flags.steps) {
      validation_loss = evaluate(*machine.backend, model, validation, config.batch_size, windows);
      result.validation_loss = *validation_loss;
    }
    progress.step(report, validation_loss);
  }
  result.tokens_per_second = progress.tokens_per_second();
  result.seconds = seconds_since(start);
  if (const auto bytes = bytes_per_target(*corpus.tokenizer, validation, windows)) {
    result.bits_per_byte = result.validation_loss / std::numbers::ln2 / *bytes;
  }
  return result;
}

// Where a sample begins: behind the first line break among the first tokens, or behind the text's first token
// where there is none.
std::vector<std::int32_t> sample_prompt(const Corpus& corpus) {
  constexpr std::int64_t kSearched = 1 << 16;
  const auto ids = corpus.train.read(0, std::min(kSearched, corpus.train.size()));
  const auto line_break = std::ranges::find_if(ids, [&](std::int32_t id) {
    return corpus.tokenizer->decode({&id, 1}) == "\n";
  });
  return {line_break == ids.end() ? ids.front() : *line_break};
}

std::string write_sample(const TrainFlags& flags, const Machine& machine, const Gpt2& model,
                         const Corpus& corpus) {
  std::string text;
  StreamDecoder decoder(*corpus.tokenizer);
  SamplingConfig sampling;
  sampling.seed = static_cast<std::uint64_t>(flags.seed);
  generate(*machine.backend, model, sample_prompt(corpus), flags.sample_tokens, sampling,
           [&](std::int32_t id) { text += decoder.push(id); });  // without half a character at the end
  return text;
}

void print_json(const TrainFlags& flags, const Gpt2& model, const TrainResult& result,
                const std::string& sample) {
  const nlohmann::ordered_json json = {
      {"model", flags.model.preset_name()},
      {"parameters", model.parameters().table().numel()},
      {"steps", flags.steps},
      {"loss", result.train_loss},
      {"validation_loss", result.validation_loss},
      {"bits_per_byte",
       result.bits_per_byte ? nlohmann::ordered_json(*result.bits_per_byte) : nlohmann::ordered_json()},
      {"tokens_per_second", result.tokens_per_second},
      {"seconds", result.seconds},
      {"sample", sample}};
  // A sample may hold bytes that are no UTF-8.
  std::cout << json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) << '\n';
}

int train_main(int argc, char** argv) {
  const std::unique_ptr<Stage> stage = make_stage();
  TrainFlags flags;
  CommandLine command_line(argv[0], "Train GPT-2 on a text. With no flag: nano, on data/dummy.txt.",
                           stage->number());
  flags.add(command_line);
  stage->add_flags(command_line);
  if (!command_line.parse(argc, argv)) return 0;
  Gpt2Config config = flags.model.config();
  const TrainerConfig trainer_config = flags.trainer_config();
  const Machine machine = stage->start();
  flags.corpus.data = find_data(flags.corpus.data);
  flags.corpus.tokenizer = flags.tokenizer.choice();
  flags.corpus.special = flags.tokenizer.special();
  const Corpus corpus = load_corpus(flags.corpus, config.block_size, machine.threads);
  config.vocab_size = corpus.tokenizer->size();

  machine.backend->set_fused(!flags.no_fused);
  std::cerr << flags.model.preset_name() << ": " << gpt2_parameter_table(config).numel() << " parameters, "
            << config.n_layer << " layers, " << config.n_head << " heads, " << config.n_embd
            << " channels, context " << config.block_size << "\ndata: " << flags.corpus.data << ", "
            << corpus.train.size() << " tokens and " << corpus.validation.size()
            << " for validation, vocabulary " << config.vocab_size << " (" << corpus.tokenizer->kind() << ")"
            << "\nmachine: " << machine.description << '\n';
  Gpt2 model(*machine.backend, config, DType::f32, machine.communicator->size());
  model.parameters().initialize(trainer_config.seed);

  const TrainResult result = train(flags, machine, model, corpus);
  std::cerr << "trained in " << static_cast<long long>(result.seconds + 0.5) << " s: validation loss "
            << result.validation_loss << " nats per token"
            << (result.bits_per_byte ? concat(", ", *result.bits_per_byte, " bits per byte") : "") << '\n';
  const std::string sample = write_sample(flags, machine, model, corpus);
  if (flags.json) {
    print_json(flags, model, result, sample);
  } else if (!sample.empty()) {
    std::cout << sample << '\n';
  }
  return 0;
}

}  // namespace
}  // namespace stagegpt

int main(int argc, char** argv) {
  return stagegpt::run_program(argv[0], [&] { return stagegpt::train_main(argc, argv); });
}
