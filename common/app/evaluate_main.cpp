// stageN_evaluate: loss, perplexity, bits per byte and accuracy of a model on a text, or its accuracy on a
// multiple-choice task.
#include <algorithm>
#include <cmath>
#include <iomanip>
#include <iostream>
#include <sstream>

#include "common/app/command_line.h"
#include "common/app/memory_check.h"
#include "common/app/program_flags.h"
#include "common/app/stage.h"
#include "common/app/trained_model.h"
#include "common/base/grouped.h"
#include "common/base/json.h"
#include "common/checkpoint/model_file.h"
#include "common/comm/agreement.h"
#include "common/data/choice_task.h"
#include "common/data/corpus.h"
#include "common/io/work_progress.h"
#include "common/train/choices.h"
#include "common/train/evaluate.h"

namespace stagegpt {
namespace {

struct EvaluateFlags {
  std::string model, data, task;
  std::optional<std::string> tokenizer_path;
  WeightsFlag weights;
  std::optional<std::int64_t> seq_len, stride, batch_size;
  double val_fraction = 1;
  bool parse_special = false, any_bytes = false, no_fused = false, ignore_memory = false, json = false;

  void add(CommandLine& command_line) {
    command_line.group("Model");
    command_line.text("--model", model, kModelFormats);
    command_line.text("--tokenizer-path", tokenizer_path, "tokenizer (default: the directory's)");
    weights.add(command_line, "precision of matrices in memory, as in generation; int8: CPU only");
    command_line.group("Data");
    command_line.text("--data", data,
                      "a text file, token shards, a glob pattern of either, or a directory that prepare_data "
                      "wrote, of which the validation part is taken");
    command_line.text(
        "--task", task,
        "in place of --data: multiple-choice questions, as JSON Lines with context, endings and "
        "label, HellaSwag's JSON Lines, or llm.c's file of HellaSwag");
    command_line.toggle("--parse-special-tokens", parse_special,
                        "read the names of special tokens in the text, such as <|endoftext|>, as tokens");
    command_line.toggle("--any-bytes", any_bytes, kAnyBytesHelp);
    command_line.real("--val-fraction", val_fraction, kUpToOne,
                      "take only this fraction of the text, from its end, as training does for validation");
    command_line.group("Windows");
    command_line.integer("--seq-len", seq_len, 1, 1 << 20,
                         "tokens that the model reads at once (default: its context)");
    command_line.integer(
        "--stride", stride, 1, 1 << 20,
        "tokens between the beginnings of windows; fewer give more context to each token, and "
        "take longer (default: --seq-len)");
    command_line.integer("--batch-size", batch_size, 1, 1 << 20,
                         "windows, or endings of a task, that a rank computes at once (default: those of "
                         "4096 tokens)");
    command_line.group("Run");
    command_line.toggle("--no-fused", no_fused, "run fused ops as sequences of primitive ones");
    add_ignore_memory(command_line, ignore_memory);
    command_line.toggle("--json", json, "print one JSON object instead of a table");
  }
  void check(const CommandLine& command_line) const {
    require_model_path(model, "--model");
    if (data.empty() == task.empty()) {
      user_error(data.empty() ? "--data or --task is missing: expected a text or a file of questions"
                              : "--task: expected either a task or --data, not both");
    }
    for (const char* flag :
         {"--parse-special-tokens", "--any-bytes", "--val-fraction", "--seq-len", "--stride"}) {
      if (!task.empty() && command_line.is_given(flag)) user_error(flag, " is for --data, not for --task");
    }
  }
};

// The evaluation of a text, in windows of `seq_len` tokens that begin every `stride`.
struct TextReport {
  Evaluation evaluation;
  std::int64_t windows, seq_len, stride;
};

// The evaluation of a multiple-choice task.
struct TaskReport {
  ChoiceResult result;
  std::int64_t cut;         // see ChoiceTask
  std::int64_t block_size;  // the model's context
};

double perplexity(const TextReport& report) { return std::exp(report.evaluation.loss); }

// Null for one question, which has no standard error.
Json error_of(double accuracy, std::int64_t questions) {
  return questions > 1 ? Json(standard_error(accuracy, questions)) : Json();
}

// "1 token", "2 tokens".
std::string count_of(std::int64_t count, const std::string& noun) {
  return concat(grouped(count), ' ', noun, count == 1 ? "" : "s");
}

std::string accuracy_text(double accuracy, std::int64_t questions) {
  std::ostringstream out;
  out << std::fixed << std::setprecision(4) << accuracy;
  if (questions > 1) out << " ± " << standard_error(accuracy, questions);
  return out.str();
}

Json to_json(const TextReport& report) {
  const Evaluation& found = report.evaluation;
  return {{"loss", found.loss},
          {"perplexity", perplexity(report)},
          {"bits_per_byte", or_null(bits_per_byte(found))},
          {"accuracy", found.accuracy},
          {"tokens", found.tokens},
          {"bytes", or_null(found.bytes)},
          {"windows", report.windows},
          {"seq_len", report.seq_len},
          {"stride", report.stride}};
}

std::string to_table(const TextReport& report) {
  const Evaluation& found = report.evaluation;
  std::ostringstream out;
  out << std::setprecision(6) << "loss           " << found.loss << " nats per token\nperplexity     "
      << perplexity(report) << "\nbits per byte  ";
  if (const auto bits = bits_per_byte(found)) {
    out << *bits;
  } else {
    out << "unknown: the text has tokens of unknown words";
  }
  out << "\naccuracy       " << found.accuracy << "\nof             " << count_of(found.tokens, "token");
  if (found.bytes) out << ", " << count_of(*found.bytes, "byte");
  out << ", in windows of " << report.seq_len << " tokens that begin every " << report.stride << '\n';
  return out.str();
}

Json to_json(const TaskReport& report) {
  const ChoiceResult& result = report.result;
  return {{"acc", result.acc},
          {"acc_stderr", error_of(result.acc, result.questions)},
          {"acc_norm", result.acc_norm},
          {"acc_norm_stderr", error_of(result.acc_norm, result.questions)},
          {"questions", result.questions},
          {"cut", report.cut}};
}

std::string to_table(const TaskReport& report) {
  const ChoiceResult& result = report.result;
  std::string table = concat("acc        ", accuracy_text(result.acc, result.questions), "\nacc_norm   ",
                             accuracy_text(result.acc_norm, result.questions), "\nof         ",
                             count_of(result.questions, "question"));
  if (report.cut > 0)
    table += concat("; ", count_of(report.cut, "ending"),
                    " had to lose the beginning of the context, which is longer than the model's, ",
                    report.block_size, " tokens");
  return table + '\n';
}

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

Corpus load_data(Stage& stage, const EvaluateFlags& flags, std::unique_ptr<Tokenizer> tokenizer,
                 int threads) {
  constexpr std::int64_t kLeastTokens = 1;  // to predict
  const CorpusConfig config{
      .data = flags.data,
      .tokenizer = {},
      .val_fraction = flags.val_fraction,
      .special = flags.parse_special ? SpecialTokens::recognised : SpecialTokens::as_text,
      .any_bytes = flags.any_bytes};
  return load_corpus(stage.group(), config, std::move(tokenizer), kLeastTokens, threads);
}

// Shows the progress of rank 0.
std::function<void(std::int64_t)> progress(RankGroup& group, const std::string& part, std::int64_t total) {
  if (!group.is_root()) return {};
  const auto counter = std::make_shared<StepCounter>(std::chrono::steady_clock::now(), part);
  return [counter, total](std::int64_t done) {
    if (done > 0) (*counter)(done, total);
  };
}

// Throws UserError for a batch that does not fit into memory.
using RequireMemory = std::function<void(const Gpt2Config&, const EvaluationBatch&)>;

TextReport evaluate_text(Stage& stage, const Machine& machine, const EvaluateFlags& flags,
                         const RequireMemory& require_memory, TrainedModel trained) {
  const Division division(flags, trained.model->config());
  const Corpus corpus = load_data(stage, flags, std::move(trained.tokenizer), machine.threads);
  const Windows windows = strided_windows(corpus.validation.size(), division.T, division.stride);
  agree(stage.group(), [&] {
    require_memory(trained.model->config(),
                   {std::min(division.B, windows.count), windows.at(0).length, "windows", "--seq-len"});
  });
  const std::vector<std::int32_t> token_bytes = bytes_of_tokens(*corpus.tokenizer);
  const BatchOptions options{.batch_size = division.B,
                             .on_done = progress(stage.group(), "window", windows.count)};
  const auto evaluation = evaluate(stage.group(), *machine.backend, *trained.model, corpus.validation,
                                   windows, options, token_bytes);
  return {evaluation.value(), windows.count, division.T, division.stride};
}

TaskReport evaluate_task(Stage& stage, const Machine& machine, const EvaluateFlags& flags,
                         const RequireMemory& require_memory, const TrainedModel& trained) {
  const Division division(flags, trained.model->config());
  const ChoiceTask task =
      load_choice_task(stage.group(), flags.task, "--task", *trained.tokenizer, division.T);
  const std::int64_t B = std::min(flags.batch_size.value_or(choice_batch(task, division.B * division.T)),
                                  std::ssize(task.endings));
  agree(stage.group(), [&] {
    require_memory(trained.model->config(), {B, longest_inputs(task), "endings"});
  });
  const BatchOptions options{.batch_size = B,
                             .on_done = progress(stage.group(), "ending", std::ssize(task.endings))};
  const auto result = evaluate_choices(stage.group(), *machine.backend, *trained.model, task, options);
  return {result.value(), task.cut, division.T};
}

template <class Report>
void print(Stage& stage, const EvaluateFlags& flags, const Report& report) {
  if (!stage.group().is_root()) return;
  std::cout << (flags.json ? json_text(to_json(report)) : to_table(report));
  flush_output();
}

int evaluate_main(Stage& stage, int argc, char** argv) {
  EvaluateFlags flags;
  CommandLine command_line(
      argv[0],
      "Evaluate a model: its loss, perplexity, bits per byte and accuracy on a text, or its accuracy on "
      "multiple-choice questions.",
      stage.number(), stage_flags());
  command_line.version(built_version());
  flags.add(command_line);
  stage.add_flags(command_line);
  if (!parse_flags(stage, command_line, argc, argv, [&] { flags.check(command_line); })) return 0;
  const Machine& machine = stage.start(/*timeline=*/nullptr);
  machine.backend->set_fused(!flags.no_fused);
  const DType matrices = flags.weights.matrices(machine);
  // Before the model is loaded: its weights are part of the need.
  const FreeMemory free = free_memory();
  const RequireMemory require_memory = [&](const Gpt2Config& config, const EvaluationBatch& batch) {
    if (flags.ignore_memory) return;
    require_evaluation_memory(config, batch, machine.activations, matrices, machine.memory, free);
  };
  // The batches are known when the text or the task has been read, which needs the model's tokenizer.
  const auto check = [&](const Gpt2Config& config) {
    const Division division(flags, config);
    require_memory(config, {.B = 1, .T = 1});
  };
  TrainedModel trained = load_shared_model(stage.group(), *machine.backend, flags.model, flags.tokenizer_path,
                                           check, machine.activations);
  flags.weights.narrow(*trained.model, machine);
  if (flags.task.empty()) {
    print(stage, flags, evaluate_text(stage, machine, flags, require_memory, std::move(trained)));
  } else {
    print(stage, flags, evaluate_task(stage, machine, flags, require_memory, trained));
  }
  return 0;
}

}  // namespace
}  // namespace stagegpt

int main(int argc, char** argv) {
  return stagegpt::run_stage(argc, argv, stagegpt::make_stage, stagegpt::evaluate_main);
}
