// The directory of a training run, as it begins.
#pragma once

#include "common/app/resume.h"
#include "common/app/stage.h"
#include "common/app/train_flags.h"

namespace stagegpt {

// The directory of a new run, with the tokenizer.
RunDirectory create_run(const TrainOptions& options, const Tokenizer& tokenizer);

// Writes the settings of the run, and prints where it is.
void begin_run(const TrainOptions& options, const Machine& machine, Json settings,
               const ParameterTable& table, const std::optional<ResumedRun>& resumed,
               RunDirectory& directory);

}  // namespace stagegpt
