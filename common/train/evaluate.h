// Loss and accuracy of a model on windows of tokens that the caller chooses, computed by all ranks together.
// Which windows a validation takes is in validation.h.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "common/comm/rank_group.h"
#include "common/data/token_sequence.h"
#include "common/data/tokenizers/tokenizer.h"
#include "common/data/windows.h"
#include "common/model/language_model.h"

namespace stagegpt {

struct Evaluation {
  double loss = 0;          // mean, in nats per token
  double accuracy = 0;      // share of the tokens to which the model gives the highest probability
  std::int64_t tokens = 0;  // number of evaluated tokens
  // Bytes of text in these tokens. Empty if it is unknown for some of them, or if token_bytes is empty.
  std::optional<std::int64_t> bytes;
};

// The loss in bits per byte of the evaluated text, comparable between tokenizers. Empty if bytes are unknown.
std::optional<double> bits_per_byte(const Evaluation& evaluation);

inline constexpr std::int32_t kUnknownBytes = -1;

// Bytes of text in each token; special tokens have 0, the unknown token kUnknownBytes.
std::vector<std::int32_t> bytes_of_tokens(const Tokenizer& tokenizer);

// Number of windows of T tokens in a batch on a rank, which limits the memory of its logits.
std::int64_t evaluation_batch(std::int64_t T);

struct EvaluateOptions {
  std::int64_t batch_size = 1;  // windows per batch, on a rank
  // Bytes of text in each token of the vocabulary; kUnknownBytes if unknown. Empty: bytes are not counted.
  std::span<const std::int32_t> token_bytes = {};
  bool stoppable = false;                             // whether a signal stops the evaluation
  RankGroup* stopping = nullptr;                      // ranks that stop together; null: those of the group
  std::function<void(std::int64_t)> on_windows = {};  // called with the number of completed windows
};

// Batches are distributed over the ranks in turn. All ranks get the same bits, which do not depend on their
// number. Empty if `stoppable` and any rank has received a signal (stop_signals.h); the ranks stop after
// their current batches.
std::optional<Evaluation> evaluate(RankGroup& group, Backend& backend, const LanguageModel& model,
                                   const TokenSequence& tokens, const Windows& windows,
                                   const EvaluateOptions& options = {});

}  // namespace stagegpt
