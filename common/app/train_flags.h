// The command line of stageN_train.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "common/app/command_line.h"
#include "common/app/model_flags.h"
#include "common/app/program_flags.h"
#include "common/data/corpus.h"
#include "common/train/training_run_config.h"

namespace stagegpt {

// What a call of stageN_train asks for.
struct TrainOptions {
  std::string model_name, model_label;           // as given; with what differs from the preset
  std::optional<std::filesystem::path> weights;  // files to start from; without them, random ones
  Gpt2Config config;  // with the patterns of --freeze; a preset gets the vocabulary of the tokenizer
  CorpusConfig corpus;
  TrainingRunConfig run;
  std::string eval_task;  // a file of questions; empty: none
  std::optional<std::string> run_dir;
  std::int64_t sample_tokens = 500;
  bool no_fused = false, dry_run = false, ignore_memory = false, json = false;
};

class TrainFlags {
 public:
  TrainFlags();
  void add(CommandLine& command_line);

  // Fills in what was not given and depends on other flags. Throws UserError where flags disagree.
  void resolve();
  // Uses the tokenizer of a run, whatever --tokenizer and --tokenizer-path say.
  void take_tokenizer(const std::filesystem::path& tokenizer) { tokenizer_.load(tokenizer, "--resume"); }

  const std::optional<std::string>& run_dir() const { return options_.run_dir; }
  // The rest is for flags that have been resolved.
  TrainOptions options() const;
  // The model, with the patterns of --freeze.
  Gpt2Config model_config() const;
  CorpusConfig corpus() const;
  TrainingRunConfig run() const;

  ModelFlags model;
  std::optional<std::string> resume;  // "" for the run of --run-dir
  ProfileFlags profile;
  bool print_config = false;

 private:
  // The part of resolve() for the schedule with a decay at the end.
  void resolve_decay();

  TrainOptions options_;  // set by the flags; options() adds what follows from the members below
  std::int64_t steps_ = 2000, seed_ = 1337;
  std::string data_, schedule_ = "cosine", recompute_ = "none", non_finite_ = "stop", freeze_;
  TokenizerFlags tokenizer_;
  std::optional<std::int64_t> eval_tokens_, warmup_steps_, decay_steps_, stop_after_;
  std::optional<double> learning_rate_, min_lr_;
};

}  // namespace stagegpt
