// The health of a run's layers over its steps, as metrics.jsonl has it (--watch-layers).
#pragma once

#include <filesystem>
#include <optional>

#include "common/base/json_fwd.h"

namespace stagegpt {

// The metrics of the run that `model` names: the run itself, or one of its checkpoints. Nothing if it is no
// part of a run.
std::optional<std::filesystem::path> metrics_of(const std::filesystem::path& model);

// An object with `steps`, the names of `layers`, and for each field of a layer ("grad_norm", …) an array that
// has, for each layer, its values at these steps; null where a layer has no such value. At most 120 steps,
// spread evenly, with the first and the last one. Null if no step was measured. Throws UserError, which names
// the file and the line, for metrics that cannot be read.
Json layer_history(const std::filesystem::path& metrics);

}  // namespace stagegpt
