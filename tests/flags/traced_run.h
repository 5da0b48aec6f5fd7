// A run of stage0_train that records all tensors of its steps, and the expected values of these tensors.
#pragma once

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/support/program.h"
#include "tests/support/tensors.h"

namespace stagegpt::test {

using Arguments = std::vector<std::string>;

class TracedRun {
 public:
  // Creates a directory with "text.txt": 4,000 random letters from a to t. The run directory is "run".
  TracedRun();
  void train(const Arguments& arguments, const RunOptions& options = {});

  const std::string& text() const { return text_; }
  const ScratchDirectory& directory() const { return directory_; }
  std::filesystem::path in(const std::string& name) const { return directory_.path() / "run" / name; }
  const ProgramResult& result() const { return result_; }
  // The lines of metrics.jsonl.
  std::vector<nlohmann::json> metrics() const;

  // The number of traced steps.
  int steps() const { return static_cast<int>(steps_.size()); }
  // The values and the shape of a tensor of step `step` (from 1). Weights are those after the step.
  const Values& values(int step, const std::string& name) const { return tensor(step, name).values; }
  const std::vector<std::int64_t>& shape(int step, const std::string& name) const {
    return tensor(step, name).shape;
  }
  // Names of all tensors of a step.
  std::vector<std::string> names(int step) const;
  bool has(int step, const std::string& name) const { return steps_.at(step - 1).contains(name); }

 private:
  struct Traced {
    std::vector<std::int64_t> shape;
    Values values;
  };
  const Traced& tensor(int step, const std::string& name) const { return steps_.at(step - 1).at(name); }

  ScratchDirectory directory_;
  std::string text_;
  ProgramResult result_;
  std::vector<std::map<std::string, Traced>> steps_;
};

// The norm of all gradients of a traced step.
double norm_of_gradients(const TracedRun& run, int step);

// The values of the optimizer's flags.
struct OptimizerFlags {
  double learning_rate = 3e-3, min_lr = 3e-4;
  int warmup_steps = 0, steps = 1;
  std::string lr_schedule = "cosine";
  int decay_steps = 0;
  double weight_decay = 0.1, beta1 = 0.9, beta2 = 0.95, eps = 1e-8, grad_clip = 1;

  // The learning rate of step `step` (from 0).
  double rate(int step) const;
};

// The error of the weights, relative to AdamW (Loshchilov and Hutter, algorithm 2, in f64) with the traced
// gradients: the norm of the difference divided by the norm of the change, in the worst traced step.
// `initial` are the weights before the first step, by name.
double adamw_error(const TracedRun& run, const OptimizerFlags& flags,
                   const std::map<std::string, Values>& initial);

}  // namespace stagegpt::test
