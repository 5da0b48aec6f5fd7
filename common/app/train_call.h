// A call of stageN_train: its command line, and the run that it resumes.
#pragma once

#include <optional>

#include "common/app/program_flags.h"
#include "common/app/resume.h"
#include "common/app/stage.h"
#include "common/app/train_flags.h"

namespace stagegpt {

struct TrainCall {
  TrainOptions options;
  ProfileFlags profile;               // resolved for the steps of this call
  Json settings;                      // of the run, for run.json
  std::optional<ResumedRun> resumed;  // empty for a new run
};

// Reads the command line on all ranks, and checks all that needs neither data nor weights. What was not given
// is filled in from the run that is resumed, so that a new default does not change it, otherwise from other
// flags. Empty if the call only asks for help, the version or the configuration; that has been printed.
// Throws UserError on all ranks. A collective call.
std::optional<TrainCall> read_train_call(Stage& stage, int argc, char** argv);

}  // namespace stagegpt
