#include "common/app/train_report.h"

#include <cmath>
#include <iostream>

#include "common/base/grouped.h"
#include "common/base/json.h"
#include "common/train/step_metrics.h"
#include "common/train/step_passes.h"

namespace stagegpt {
namespace {

namespace fs = std::filesystem;

std::string why_no_validation(const TrainingRunConfig& run) {
  return concat("no validation (", run.eval_every == 0 ? "--eval-every" : "--val-fraction", " 0)");
}

// "all 96 tokens", "16 of 96 tokens".
std::string tokens_of(const WindowSample& sample, std::int64_t seq_len) {
  return concat(sample.is_all() ? "all " : concat(grouped(sample.count * seq_len), " of "),
                grouped(sample.all * seq_len), " tokens");
}

// Which tokens each validation takes.
std::string describe_validation(const TrainingRunConfig& run, std::int64_t tokens, std::int64_t seq_len) {
  const WindowSample sample = validation_sample(tokens, seq_len, run);
  if (sample.all == 0) return why_no_validation(run);
  const std::string text = concat("validation: ", tokens_of(sample, seq_len), ", in ");
  if (sample.is_all())
    return concat(text, grouped(sample.all), sample.all == 1 ? " window of " : " windows of ", seq_len);
  return concat(text, grouped(sample.count), " of ", grouped(sample.all), " windows of ", seq_len,
                ", spread evenly");
}

// "65 (char)", "50,304, of which the tokenizer has 50,257 (gpt2)".
std::string describe_vocabulary(const Gpt2Config& config, const Tokenizer& tokenizer) {
  const bool all = tokenizer.size() == config.vocab_size;
  return concat(grouped(config.vocab_size),
                all ? "" : concat(", of which the tokenizer has ", grouped(tokenizer.size())), " (",
                tokenizer.kind(), ")");
}

// Where the weights of one of OpenAI's models are, if they are random now.
std::string describe_random_weights(const TrainOptions& options) {
  const std::string& name = options.model_name;
  if (options.weights || !name.starts_with("gpt2")) return "";
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
  return concat(texts, ", ", grouped(corpus.train.size()), " tokens for training");
}

std::string describe_result(const TrainingRunConfig& config, const TrainingResult& result) {
  if (result.windows.all == 0) return why_no_validation(config);
  const std::optional<ValidationResult>& validation = result.validation;
  if (!validation) return "the last validation was stopped by a signal";
  return concat("validation loss ", validation->loss, " nats per token",
                validation->bits_per_byte ? concat(", ", *validation->bits_per_byte, " bits per byte") : "",
                ", of ", tokens_of(result.windows, validation->tokens / result.windows.count));
}

// In tenths below ten seconds.
double rounded(double seconds) { return seconds < 10 ? std::round(10 * seconds) / 10 : std::round(seconds); }

}  // namespace

void describe_run(const TrainOptions& options, const Gpt2Config& config, const Corpus& corpus,
                  const Machine& machine) {
  const ParameterTable table = gpt2_parameter_table(config);
  const bool graphs = repeats_passes(*machine.backend, *machine.sync, options.run.trainer);
  const char* const with_graphs =
      graphs ? "; with CUDA graphs"
      : machine.backend->records()
          ? "; no CUDA graphs of training steps, because the only micro-step sends gradients"
          : "";
  std::cerr << options.model_label << ": " << grouped(table.numel()) << " parameters, ";
  if (!config.frozen.empty()) std::cerr << grouped(table.trained_numel()) << " of them trained, ";
  std::cerr << config.n_layer << (config.n_layer == 1 ? " layer, " : " layers, ") << config.n_head
            << (config.n_head == 1 ? " head, " : " heads, ") << config.n_embd << " channels, context "
            << config.block_size << describe_random_weights(options)
            << "\ndata: " << describe_data(options.corpus.data, corpus) << ", vocabulary "
            << describe_vocabulary(config, *corpus.tokenizer) << '\n'
            << describe_validation(options.run, corpus.validation.size(), config.block_size)
            << "\nmachine: " << machine.description << with_graphs << '\n';
}

void print_result(const TrainingRunConfig& config, const fs::path& run, const TrainingResult& result) {
  const std::int64_t steps = config.trainer.schedule.steps;
  if (result.interrupted) {
    std::cerr << "stopped by a signal after step " << result.steps << " of " << steps
              << "; continue with --resume " << run.string() << '\n';
    return;
  }
  if (const auto& best = result.best_validation; best && result.train_loss) {
    std::cerr << "stopped after step " << result.steps << " of " << steps << ": the last " << best->worse
              << (best->worse == 1 ? " validation was" : " validations were")
              << " not better than that after step " << best->step << ", " << best->loss
              << "; its weights: " << (run / "best").string() << '\n';
  }
  if (result.training_seconds) {
    std::cerr << "trained in " << rounded(*result.training_seconds) << " s";
    if (result.windows.all > 0) std::cerr << ", validated in " << rounded(result.validation_seconds) << " s";
    std::cerr << ": ";
  }
  std::cerr << describe_result(config, result) << "\nmodel: " << (run / "latest").string() << '\n';
  if (result.train_loss && !result.best_validation && result.steps < steps) {
    std::cerr << "stopped after step " << result.steps << " of " << steps
              << " (--stop-after); continue with --resume " << run.string() << '\n';
  }
}

void print_result_json(const std::string& model, const ParameterTable& table, const fs::path& run,
                       const TrainingResult& result, const std::string& sample) {
  const std::optional<ValidationResult>& validation = result.validation;
  const Json json = {{"model", model},
                     {"parameters", table.numel()},
                     {"trained_parameters", table.trained_numel()},
                     {"run_dir", run.string()},
                     {"steps", result.steps},
                     {"loss", or_null(result.train_loss)},
                     {"validation_loss", validation ? Json(validation->loss) : Json()},
                     {"validation_accuracy", validation ? Json(validation->accuracy) : Json()},
                     {"validation_tokens", validation ? Json(validation->tokens) : Json()},
                     {"validation_windows", result.windows.count},
                     {"validation_windows_all", result.windows.all},
                     {"bits_per_byte", validation ? or_null(validation->bits_per_byte) : Json()},
                     {"stopped_early", result.best_validation.has_value()},
                     {"task", result.task ? to_json(*result.task) : Json()},
                     {"tokens_per_second", or_null(result.tokens_per_second)},
                     {"seconds", result.seconds},
                     {"training_seconds", or_null(result.training_seconds)},
                     {"validation_seconds", result.validation_seconds},
                     {"sample", sample}};
  std::cout << json_text(json);
}

void explain_nothing_left(const TrainingRunConfig& config, const ResumedRun& resumed) {
  const std::int64_t steps = steps_done(resumed);
  const std::string run = resumed.path.string();
  std::cerr << "run: " << run;
  if (is_out_of_patience(resumed, config)) {
    std::cerr << " has stopped after step " << steps << ": its last " << resumed.worse_validations
              << " validations were not better than the best; to continue it, give more --patience, or 0\n";
  } else if (steps == config.trainer.schedule.steps) {
    std::cerr << " has done all steps of --steps, " << steps << "; to continue it, give more, such as "
              << "--resume " << run << " --steps " << 2 * steps << '\n';
  } else {
    std::cerr << " has done " << steps << " steps, --stop-after asks for " << config.last_step
              << "; to continue it, give a later step, or leave out --stop-after\n";
  }
  std::cerr << "nothing is trained or saved\n";
}

}  // namespace stagegpt
