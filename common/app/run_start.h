// How a training run begins: its weights and its directory.
#pragma once

#include <cstdint>
#include <filesystem>

#include "common/app/resume.h"
#include "common/app/stage.h"
#include "common/app/train_flags.h"
#include "common/checkpoint/parameter_values.h"
#include "common/model/language_model.h"

namespace stagegpt {

// The weights that --model names, or, if they are `verified`, the checkpoint of a resumed run has. Opening
// them compares the files with their configuration, before a model of that size is allocated.
ParameterValues open_weights(const std::filesystem::path& path, bool verified);

// Gives the model of all ranks the same weights: those of files, whose values rank 0 alone needs, or random
// ones. A collective call. Throws Stopped if a signal comes meanwhile.
void set_initial_weights(const Machine& machine, bool from_files, const ParameterValues& values,
                         std::uint64_t seed, LanguageModel& model);

// The directory of a new run, with the tokenizer.
RunDirectory create_run(const TrainOptions& options, const Tokenizer& tokenizer);

// Writes the settings of the run, and prints where it is.
void begin_run(const TrainOptions& options, const Machine& machine, Json settings,
               const ParameterTable& table, const std::optional<ResumedRun>& resumed,
               RunDirectory& directory);

}  // namespace stagegpt
