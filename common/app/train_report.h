// What stageN_train tells its user: on standard error, and with --json on standard output.
#pragma once

#include <filesystem>
#include <string>

#include "common/app/resume.h"
#include "common/app/stage.h"
#include "common/app/train_flags.h"

namespace stagegpt {

// Before the run: model, data, validation, machine. `config` has the vocabulary of the corpus.
void describe_run(const TrainOptions& options, const Gpt2Config& config, const Corpus& corpus,
                  const Machine& machine);

// After the run, which is in the directory `run`.
void print_result(const TrainingRunConfig& config, const std::filesystem::path& run,
                  const TrainingResult& result);
void print_result_json(const std::string& model, const ParameterTable& table,
                       const std::filesystem::path& run, const TrainingResult& result,
                       const std::string& sample);

// Why this call trains no step of a run, and what would continue the run.
void explain_nothing_left(const TrainingRunConfig& config, const ResumedRun& resumed);

}  // namespace stagegpt
