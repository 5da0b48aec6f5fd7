// What rank 0 tells of a training run: progress on standard error, metrics.jsonl, TensorBoard's files.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "common/checkpoint/run_directory.h"
#include "common/comm/rank_group.h"
#include "common/logging/metrics_log.h"
#include "common/logging/progress.h"
#include "common/logging/tensorboard_log.h"
#include "common/train/slow_ranks.h"
#include "common/train/step_metrics.h"

namespace stagegpt {

class RunLog {
 public:
  // The log of a run that has done `first` of `steps` steps. Both references are borrowed.
  RunLog(RankGroup& group, const RunDirectory& directory, std::int64_t first, std::int64_t steps,
         std::int64_t tokens_per_step);
  RunLog(const RunLog&) = delete;
  RunLog& operator=(const RunLog&) = delete;

  // Opens metrics and TensorBoard's files, and removes entries after the first `first` steps. Needed before
  // step().
  void open_files(std::int64_t first);
  // After each step.
  void step(const StepMetrics& metrics);
  // During a validation: the tokens done and in total.
  void validation(std::int64_t done, std::int64_t total) { progress_->validation(done, total); }
  // Adds the validation of all tokens to the metrics of the last step, unless it is there already.
  void validation_of_all(std::int64_t step, const ValidationResult& validation);
  void sample(std::int64_t step, const std::string& text);
  // Prints a line, until end_progress().
  void note(const std::string& text) {
    if (progress_) progress_->note(text);
  }
  // Afterwards the metrics of all steps are on the disk.
  void sync() { metrics_->sync(); }
  // The mean over the steps; 0 if there were none.
  double tokens_per_second() const { return progress_->tokens_per_second(); }
  // Leaves standard error as others expect it. The files stay open.
  void end_progress() { progress_.reset(); }

 private:
  RankGroup& group_;
  const RunDirectory& directory_;
  std::optional<Progress> progress_;
  std::optional<MetricsLog> metrics_;
  std::optional<TensorBoardLog> tensorboard_;
  SlowRanks slow_ranks_;
};

}  // namespace stagegpt
