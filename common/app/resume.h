// --resume: which run, from which checkpoint, with which settings.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "common/checkpoint/run_directory.h"
#include "common/comm/rank_group.h"

namespace stagegpt {

struct ResumedRun {
  std::optional<RunDirectory> directory;  // locked; on rank 0
  std::filesystem::path path;             // the run's
  std::filesystem::path checkpoint;       // verified
  nlohmann::ordered_json settings;        // of run.json
};

// `given` is what follows --resume: nothing (then the run is in run_dir), a run, or the newest checkpoint of
// one. Without a checkpoint's name it is the newest that verifies; one that is named is taken or refused.
// Rank 0 opens it, and tells the others. Throws UserError.
ResumedRun open_resumed_run(RankGroup& group, const std::string& given,
                            const std::optional<std::string>& run_dir);

// Compares the settings of a run with those it is to go on with. Throws UserError, naming the flag, for one
// that cannot change; tells on standard error of those that change what the run computes.
void announce_changes(const nlohmann::ordered_json& before, const nlohmann::ordered_json& now);

}  // namespace stagegpt
