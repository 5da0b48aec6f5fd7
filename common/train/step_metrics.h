// The measurements of a step, formatted for metrics.jsonl and for TensorBoard. Fields: docs/file_formats.md.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/base/json_fwd.h"
#include "common/logging/step_report.h"
#include "common/logging/tensorboard_log.h"
#include "common/train/choices.h"
#include "common/train/evaluate.h"
#include "common/train/layer_watch.h"

namespace stagegpt {

struct StepMetrics {
  StepReport report;
  int ranks = 1;
  std::string slowest_host = {};     // the node of report.slowest_rank
  std::int64_t tokens_seen = 0;      // in the whole run
  std::int64_t step_tokens = 0;      // in this step
  double step_flops = 0;             // of the model, in this step
  double peak_flops_per_second = 0;  // of all ranks' machines
  std::size_t peak_memory_bytes = 0;
  std::optional<ValidationResult> validation;  // of the validation between steps, if there was one
  std::optional<ChoiceResult> task;            // of the questions answered with it, if there are any
  std::vector<LayerHealth> layers = {};        // of this step, if they were measured
};

// The fields of answered questions; null for NaN.
Json to_json(const ChoiceResult& task);

// A line of metrics.jsonl. Infinity and NaN, for which JSON has no number, become null.
Json to_json(const StepMetrics& metrics);

// The metrics as TensorBoard curves.
std::vector<Scalar> to_scalars(const StepMetrics& metrics);

}  // namespace stagegpt
