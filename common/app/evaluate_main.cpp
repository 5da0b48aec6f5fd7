// stageN_evaluate: loss, perplexity, bits per byte and accuracy of a model on a text.
#include <cmath>
#include <iomanip>
#include <iostream>
#include <sstream>

#include "common/app/stage.h"
#include "common/app/standard_output.h"
#include "common/app/step_counter.h"
#include "common/app/trained_model.h"
#include "common/base/json.h"
#include "common/data/corpus.h"
#include "common/train/evaluate.h"

namespace stagegpt {
namespace {

constexpr RealRule kFraction{[](double x) { return x > 0 && x <= 1; }, "a number above 0 and up to 1"};

struct EvaluateFlags {
  std::string model, data;
  std::optional<std::string> tokenizer_path;
  std::optional<std::int64_t> seq_len, stride, batch_size;
  double val_fraction = 1;
  bool parse_special = false, no_fused = false, ignore_memory = false, json = false;

  void add(CommandLine& command_line) {
    command_line.group("Model");
    command_line.text("--model", model,
                      "a run, a checkpoint, any Hugging Face GPT-2 directory, or llm.c's model file");
    command_line.text("--tokenizer-path", tokenizer_path, "tokenizer (default: the directory's)");
    command_line.group("Data");
    command_line.text("--data", data,
                      "a text file, token shards, a glob pattern of either, or a directory that prepare_data "
                      "wrote, of which the validation part is taken");
    command_line.toggle("--parse-special-tokens", parse_special,
                        "read the names of special tokens in the text, such as <|endoftext|>, as tokens");
    command_line.real("--val-fraction", val_fraction, kFraction,
                      "take only this fraction of the text, from its end, as training does for validation");
    command_line.group("Windows");
    command_line.integer("--seq-len", seq_len, 1, 1 << 20,
                         "tokens that the model reads at once (default: its context)");
    command_line.integer(
        "--stride", stride, 1, 1 << 20,
        "tokens between the beginnings of windows; fewer give more context to each token, and "
        "take longer (default: --seq-len)");
    command_line.integer("--batch-size", batch_size, 1, 1 << 20,
                         "windows that a rank computes at once (default: those of 4096 tokens)");
    command_line.group("Run");
    command_line.toggle("--no-fused", no_fused, "run fused ops as sequences of primitive ones");
    add_ignore_memory(command_line, ignore_memory);
    command_line.toggle("--json", json, "print one JSON object instead of a table");
  }
  void check() const {
    require_model_path(model);
    if (data.empty()) user_error("--data is missing: expected a text file, token shards or a directory");
  }
};

// How a text is cut into windows.
struct Division {
  std::int64_t T, stride, B;

  Division(const EvaluateFlags& flags, const Gpt2Config& config)
      : T(flags.seq_len.value_or(config.block_size)),
        stride(flags.stride.value_or(T)),
        B(flags.batch_size.value_or(evaluation_batch(T))) {
    if (T > config.block_size)
      user_error("--seq-len: expected at most ", config.block_size, ", the model's context, got ", T);
    if (stride > T)
      user_error("--stride: expected at most --seq-len, ", T, ", since no token may be left out, got ",
                 stride);
  }
};

struct Result {
  Evaluation evaluation;
  std::int64_t windows;
  Division division;

  double perplexity() const { return std::exp(evaluation.loss); }
};

Json to_json(const Result& result) {
  const Evaluation& found = result.evaluation;
  const auto bits = bits_per_byte(found);
  return {{"loss", found.loss},
          {"perplexity", result.perplexity()},
          {"bits_per_byte", bits ? Json(*bits) : Json()},
          {"accuracy", found.accuracy},
          {"tokens", found.tokens},
          {"bytes", found.bytes ? Json(*found.bytes) : Json()},
          {"windows", result.windows},
          {"seq_len", result.division.T},
          {"stride", result.division.stride}};
}

std::string to_table(const Result& result) {
  const Evaluation& found = result.evaluation;
  std::ostringstream out;
  out << std::setprecision(6) << "loss           " << found.loss << " nats per token\nperplexity     "
      << result.perplexity() << "\nbits per byte  ";
  if (const auto bits = bits_per_byte(found)) {
    out << *bits;
  } else {
    out << "unknown: the text has tokens of unknown words";
  }
  out << "\naccuracy       " << found.accuracy << "\nof             " << found.tokens << " tokens";
  if (found.bytes) out << ", " << *found.bytes << " bytes";
  out << ", in windows of " << result.division.T << " tokens that begin every " << result.division.stride
      << '\n';
  return out.str();
}

Corpus load_data(Stage& stage, const EvaluateFlags& flags, std::unique_ptr<Tokenizer> tokenizer,
                 int threads) {
  constexpr std::int64_t kLeastTokens = 1;  // to predict
  const CorpusConfig config{
      .data = flags.data,
      .tokenizer = {},
      .val_fraction = flags.val_fraction,
      .special = flags.parse_special ? SpecialTokens::recognised : SpecialTokens::as_text};
  return load_corpus(stage.group(), config, std::move(tokenizer), kLeastTokens, threads);
}

int evaluate_main(Stage& stage, int argc, char** argv) {
  EvaluateFlags flags;
  CommandLine command_line(argv[0], "Evaluate a model on a text: loss, perplexity, bits per byte, accuracy.",
                           stage.number(), stage_flags());
  flags.add(command_line);
  stage.add_flags(command_line);
  if (!parse_flags(stage, command_line, argc, argv, [&] { flags.check(); })) return 0;
  const Machine& machine = stage.start();
  machine.backend->set_fused(!flags.no_fused);
  const auto fits = [&](const Gpt2Config& config) {
    const Division division(flags, config);
    if (flags.ignore_memory) return;
    require_evaluation_memory(config, division.B, division.T, machine.activations, machine.memory,
                              free_memory());
  };
  TrainedModel trained = load_shared_model(stage.group(), *machine.backend, flags.model, flags.tokenizer_path,
                                           fits, machine.activations);
  const Division division(flags, trained.model->config());
  const Corpus corpus = load_data(stage, flags, std::move(trained.tokenizer), machine.threads);

  const Windows windows = strided_windows(corpus.validation.size(), division.T, division.stride);
  const std::vector<std::int32_t> token_bytes = bytes_of_tokens(*corpus.tokenizer);
  EvaluateOptions options{.batch_size = division.B, .token_bytes = token_bytes};
  StepCounter counter(std::chrono::steady_clock::now(), "window");
  if (stage.group().is_root()) {
    options.on_windows = [&](std::int64_t done) {
      if (done > 0) counter(done, windows.count);
    };
  }
  const auto evaluation =
      evaluate(stage.group(), *machine.backend, *trained.model, corpus.validation, windows, options);
  if (!stage.group().is_root()) return 0;
  const Result result{evaluation.value(), windows.count, division};
  std::cout << (flags.json ? to_json(result).dump(2) + '\n' : to_table(result));
  flush_output();
  return 0;
}

}  // namespace
}  // namespace stagegpt

int main(int argc, char** argv) {
  return stagegpt::run_stage(argc, argv, stagegpt::make_stage, stagegpt::evaluate_main);
}
