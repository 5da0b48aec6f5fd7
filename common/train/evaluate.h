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

// A selection of a text's windows, spread evenly: the i-th one is window floor(i · all / count).
struct WindowSample {
  std::int64_t all = 0;    // number of windows of the text, which do not overlap
  std::int64_t count = 0;  // number of selected windows, at most `all`

  std::int64_t operator[](std::int64_t i) const { return i * (all / count) + i * (all % count) / count; }
  bool is_all() const { return count == all; }
};

struct Evaluation {
  double loss = 0;          // mean, in nats per token
  double accuracy = 0;      // share of the tokens to which the model gives the highest probability
  std::int64_t tokens = 0;  // number of evaluated tokens
  // Bytes of text in these tokens. Empty if it is unknown for some of them, or if token_bytes is empty.
  std::optional<std::int64_t> bytes;
};

inline constexpr std::int32_t kUnknownBytes = -1;

struct EvaluateOptions {
  WindowSample windows;
  std::int64_t batch_size = 1;  // windows per batch, on a rank
  // Bytes of text in each token of the vocabulary; kUnknownBytes if unknown. Empty: bytes are not counted.
  std::span<const std::int32_t> token_bytes = {};
  bool stoppable = false;                             // whether a signal stops the evaluation
  std::function<void(std::int64_t)> on_windows = {};  // called with the number of completed windows
};

// Batches are distributed over the ranks in turn. All ranks get the same bits, which do not depend on their
// number. Empty if `stoppable` and any rank has received a signal (stop_signals.h); the ranks stop after
// their current batches.
std::optional<Evaluation> evaluate(RankGroup& group, Backend& backend, const Gpt2& model,
                                   const DataLoader& data, const EvaluateOptions& options);

}  // namespace stagegpt
