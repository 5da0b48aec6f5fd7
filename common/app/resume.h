// --resume: which run, from which checkpoint, with which settings.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <set>
#include <string>

#include "common/base/json.h"
#include "common/checkpoint/run_directory.h"
#include "common/comm/rank_group.h"
#include "common/train/training_run_config.h"

namespace stagegpt {

struct ResumedRun {
  std::optional<RunDirectory> directory;  // locked; on rank 0
  std::filesystem::path path;             // the run's
  std::filesystem::path checkpoint;       // verified
  Json settings;                          // of run.json
  std::int64_t worse_validations = 0;     // in a row, since the best one
};

// `given` is the value of --resume: empty (then the run is in run_dir), a run, or the newest checkpoint of
// one. Of a run the newest checkpoint that verifies is taken; a checkpoint that is named is taken or refused.
// Rank 0 opens the run, and sends the others what it has found. Throws UserError; AgreedStop
// when a signal comes meanwhile.
ResumedRun open_resumed_run(RankGroup& group, const std::string& given,
                            const std::optional<std::string>& run_dir);

// The steps of a resumed run that its checkpoint has done.
std::int64_t steps_done(const ResumedRun& resumed);
// Whether its validations have not been better than the best one for so long that it ends.
bool is_out_of_patience(const ResumedRun& resumed, const TrainingRunConfig& config);
// Whether a run, new or resumed, has a step to train.
bool has_steps_left(const std::optional<ResumedRun>& resumed, const TrainingRunConfig& config);

// Throws std::runtime_error where `data` is what the run was trained on and does not exist now. That is no
// mistake in a flag: a file system may not be mounted, and the same command may succeed later.
void require_data_of_run(const ResumedRun& resumed, const std::string& data);

// The values that were derived when the run began, of settings that are not given (null) in `now`: the run
// keeps them. But a final learning rate is derived again from a new peak, and the size of a validation where
// another number of steps lies between two. Throws UserError where kDerived is no object.
Json kept_values(const Json& run, const Json& now);

// Compares the settings of a run with those it is to go on with, after kept_values(). Throws UserError,
// naming the flag, for one that cannot change.
void refuse_changes(const Json& run, const Json& now);
// Prints on standard error the settings that change what the run computes, and all of a stage's own
// (`stage_keys`), where they differ. Derived values belong to both.
void announce_changes(const Json& run, const Json& settings, const std::set<std::string>& stage_keys);

}  // namespace stagegpt
