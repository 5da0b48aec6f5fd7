// Loss and accuracy of a model on windows of tokens that the caller chooses, computed by all ranks together.
// Which windows a validation takes, and what a loss is per byte of text, is in validation.h.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>

#include "common/comm/rank_group.h"
#include "common/data/data_loader.h"
#include "common/model/gpt2.h"

namespace stagegpt {

// Some of a text's windows, spread evenly over it: the i-th of them is window floor(i · all / count).
struct WindowSample {
  std::int64_t all = 0;    // windows of the text, in order and without overlap
  std::int64_t count = 0;  // that are taken, at most all

  std::int64_t operator[](std::int64_t i) const { return i * (all / count) + i * (all % count) / count; }
  bool is_all() const { return count == all; }
};

struct Evaluation {
  double loss = 0;          // mean, in nats per token
  double accuracy = 0;      // share of the tokens that the model takes for the most probable
  std::int64_t tokens = 0;  // that were evaluated
  // Of text that these tokens stand for. Nothing where some of them are unknown, or bytes were not asked for.
  std::optional<std::int64_t> bytes;
};

inline constexpr std::int32_t kUnknownBytes = -1;

struct EvaluateOptions {
  WindowSample windows;
  std::int64_t batch_size = 1;  // windows at once, on a rank
  // Bytes that each token of the vocabulary stands for, kUnknownBytes where that is lost. Empty: not counted.
  std::span<const std::int32_t> token_bytes = {};
  bool stoppable = false;                             // whether a signal ends it early
  std::function<void(std::int64_t)> on_windows = {};  // called with the number of windows that are done
};

// The ranks take turns with batches; all get the same bits, whatever their number. Nothing when a signal has
// come to any of them (see stop_signals.h) and may end it: after the batches under way.
std::optional<Evaluation> evaluate(RankGroup& group, Backend& backend, const Gpt2& model,
                                   const DataLoader& data, const EvaluateOptions& options);

}  // namespace stagegpt
