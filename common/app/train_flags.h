// The command line of stageN_train.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "common/app/command_line.h"
#include "common/app/data_flags.h"
#include "common/app/model_flags.h"
#include "common/app/profile_flags.h"
#include "common/data/corpus.h"
#include "common/train/training_run_config.h"

namespace stagegpt {

// What a call of stageN_train asks for.
struct TrainOptions {
  std::string model_name, model_label;           // as given; with what differs from the preset
  std::optional<std::filesystem::path> weights;  // a Hugging Face directory; without one they are random
  Gpt2Config config;  // with the patterns of --freeze; a preset gets the vocabulary of the tokenizer
  CorpusConfig corpus;
  TrainingRunConfig run;
  std::string eval_task;  // a file of questions; empty: none
  std::optional<std::string> run_dir;
  std::int64_t sample_tokens = 0;
  bool no_fused = false, dry_run = false, ignore_memory = false, json = false;
};

class TrainFlags {
 public:
  TrainFlags();
  void add(CommandLine& command_line);

  // Fills in what was not given and depends on other flags. Throws UserError where flags disagree.
  void resolve();
  // Uses the tokenizer of a run, whatever --tokenizer and --tokenizer-path say.
  void take_tokenizer(const std::filesystem::path& tokenizer) { tokenizer_.load(tokenizer); }

  // The rest is for flags that have been resolved.
  TrainOptions options() const;
  // The model, with the patterns of --freeze.
  Gpt2Config model_config() const;
  CorpusConfig corpus() const;
  TrainingRunConfig run() const;

  ModelFlags model;
  std::optional<std::string> run_dir;

  // Of this call alone.
  std::optional<std::string> resume;  // "" for the run of --run-dir
  ProfileFlags profile;
  bool dry_run = false, print_config = false, ignore_memory = false, json = false;

 private:
  std::int64_t steps_ = 2000, sample_tokens_ = 500, patience_ = 0;
  std::string data_, eval_task_;
  bool no_fused_ = false;
  double val_fraction_ = 0.1;
  TokenizerFlags tokenizer_;
  TrainerConfig trainer_;
  std::string schedule_ = "cosine";
  std::string recompute_ = "none", non_finite_ = "stop";
  std::string freeze_;
  std::int64_t eval_every_ = 100, checkpoint_every_ = 1000, sample_every_ = 0, trace_steps_ = 0;
  std::int64_t watch_layers_ = 0, seed_ = 1337;
  std::optional<std::int64_t> eval_tokens_, warmup_steps_, stop_after_;
  std::optional<double> learning_rate_, min_lr_;
  KeepRule keep_;
};

}  // namespace stagegpt
