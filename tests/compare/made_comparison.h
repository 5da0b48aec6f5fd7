// Comparisons with made-up numbers.
#pragma once

#include <string>
#include <vector>

#include "tools/compare/comparison.h"

namespace stagegpt::compare::test {

inline StageProgram program(int stage, Hardware hardware = Hardware::cpu) {
  return {.stage = stage, .hardware = hardware, .path = "stage_train", .flags = {"--threads"}};
}

inline Contestant contestant(int stage, std::int64_t ranks = 1, std::int64_t threads = 1) {
  return {.program = program(stage, stage < 2 ? Hardware::cpu : Hardware::emulator),
          .ranks = ranks,
          .threads = threads,
          .batch_size = 8};
}

// A run of `steps` steps. The loss decreases from 4 and the norm from 2. Each step takes `seconds`, a quarter
// of which is communication.
inline Trial trial(std::size_t steps, double seconds) {
  Trial trial{.steps = {}, .tokens_per_step = 256, .peak_memory_bytes = 1 << 20, .weights_xxh3_128 = "a"};
  for (std::size_t i = 0; i < steps; ++i) {
    const auto at = static_cast<double>(i);
    trial.steps.push_back({.loss = 4 - 0.1 * at,
                           .grad_norm = 2 - 0.01 * at,
                           .seconds = seconds,
                           .ms = {0, 250 * seconds, 500 * seconds, 250 * seconds, 0}});
  }
  return trial;
}

inline Entry entry(const Contestant& who, std::size_t trials, double seconds) {
  return {.contestant = who,
          .command = {"stage_train", "--steps", "5"},
          .machine = "a machine",
          .trials = std::vector<Trial>(trials, trial(5, seconds)),
          .failure = {}};
}

// Stage 0, and stage 1 with 1 and 2 ranks, which take half and a quarter of stage 0's time.
inline Comparison made_comparison() {
  Comparison comparison;
  comparison.title = "A comparison";
  comparison.command = {"compare_stages", "--output", "there"};
  comparison.provenance = {{"date", "2026-01-01T00:00:00Z"}, {"machine", {{"memory_bytes", 1048576}}}};
  comparison.settings = {{"n_layer", 2}, {"learning_rate", 0.003}};
  comparison.model = "a model";
  comparison.data = "some data";
  comparison.experiment.warmup = 1;
  comparison.experiment.cores = 2;
  comparison.entries = {entry(contestant(0, 1, 2), 2, 0.4), entry(contestant(1, 1, 2), 2, 0.2),
                        entry(contestant(1, 2, 1), 2, 0.1)};
  return comparison;
}

inline void check(Comparison& comparison) {
  comparison.checks = check_agreement(comparison.entries, comparison.experiment.limits);
  comparison.divergences.resize(comparison.checks.size());
}

}  // namespace stagegpt::compare::test
