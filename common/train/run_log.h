// What rank 0 tells of a training run: progress on standard error, metrics.jsonl, TensorBoard's files.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "common/checkpoint/run_directory.h"
#include "common/comm/rank_group.h"
#include "common/logging/metrics_log.h"
#include "common/logging/progress.h"
#include "common/logging/tensorboard_log.h"
#include "common/train/step_metrics.h"

namespace stagegpt {

// Detects a rank that delays the others. Ranks with equal work all wait for the slowest one. Because single
// steps vary, times are added over kSteps steps: a rank is slow if its time is more than kFactor times the
// median of the others.
class SlowRanks {
 public:
  static constexpr std::int64_t kSteps = 50;
  static constexpr double kFactor = 1.5;

  struct Slow {
    int rank;
    double factor;  // its time divided by the median of the others
  };

  // Adds the seconds of a step by rank, without the time of communication. After every kSteps steps, returns
  // the slowest rank if it is slow and has not been returned before.
  std::optional<Slow> add(std::span<const double> seconds);

 private:
  std::vector<double> sums_;  // by rank, over the current kSteps steps
  std::int64_t steps_ = 0;
  std::set<int> named_;
};

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
  // After each step. `share_done` is that of the work of this call.
  void step(const StepMetrics& metrics, double share_done);
  // During a validation: the tokens done and in total.
  void validation(std::int64_t done, std::int64_t total) { progress_->validation(done, total); }
  void sample(std::int64_t step, const std::string& text);
  // Prints a line, until end_progress().
  void note(const std::string& text) {
    if (progress_) progress_->note(text);
  }
  // Afterwards the metrics of all steps are on the disk.
  void sync() { metrics_->sync(); }
  // The mean over the steps; 0 if there were none.
  double tokens_per_second() const { return progress_->tokens_per_second(); }
  // Of all steps of the run, by metrics.jsonl; without validation, samples and checkpoints.
  double training_seconds() const {
    return metrics_->seconds_before().training + progress_->training_seconds();
  }
  // Of the validations at steps before this call.
  double validation_seconds_before() const { return metrics_->seconds_before().validation; }
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
