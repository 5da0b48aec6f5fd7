// Loss and accuracy of a model on windows of tokens that the caller chooses, computed by all ranks together.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "common/data/token_sequence.h"
#include "common/data/tokenizers/tokenizer.h"
#include "common/data/windows.h"
#include "common/model/language_model.h"
#include "common/train/batches_in_turn.h"

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

// Batches of windows are distributed over the ranks in turn. All ranks get the same bits, which do not depend
// on their number. Empty if it was stopped (batches_in_turn.h). `token_bytes`: bytes of text in each token of
// the vocabulary, kUnknownBytes if unknown; if it is empty, bytes are not counted.
std::optional<Evaluation> evaluate(RankGroup& group, Backend& backend, const LanguageModel& model,
                                   const TokenSequence& tokens, const Windows& windows,
                                   const BatchOptions& options = {},
                                   std::span<const std::int32_t> token_bytes = {});

// ---- Validation between training steps and after the last one

// A validation of more tokens is stopped by a signal.
inline constexpr std::int64_t kUnstoppedTokens = 1 << 15;

// The windows of `seq_len` tokens that are validated, of a validation part of `tokens` tokens: as many as
// there are whole ones in `eval_tokens`, at least one (0: all).
WindowSample validation_sample(std::int64_t tokens, std::int64_t seq_len, std::int64_t eval_tokens);

struct ValidationResult {
  double loss = 0;      // mean, in nats per token
  double accuracy = 0;  // share of the tokens to which the model gives the highest probability
  // The loss in bits per byte of the evaluated text, comparable between tokenizers. Empty if there are
  // unknown words, whose bytes are not known.
  std::optional<double> bits_per_byte;
  std::int64_t tokens = 0;  // number of evaluated tokens
  double seconds = 0;       // on this rank
};

class Validation {
 public:
  // Batches have `batch_size` windows of `seq_len` tokens, or fewer, to limit the memory of a rank. If
  // several ranks hold one model together, each has the logits of all of them (DividedGpt2::logits()): the
  // batches are as many times smaller.
  Validation(const TokenSequence& tokens, const Tokenizer& tokenizer, std::int64_t seq_len,
             std::int64_t batch_size, int ranks_of_model = 1);

  // The windows are divided among the ranks; all get the same bits. `on_tokens` is called with the number of
  // completed tokens and of all tokens. Empty if a signal has stopped it: on any rank of `stopping`, which
  // are the group's if it is null.
  std::optional<ValidationResult> run(RankGroup& group, Backend& backend, const LanguageModel& model,
                                      const WindowSample& windows,
                                      const std::function<void(std::int64_t, std::int64_t)>& on_tokens,
                                      RankGroup* stopping = nullptr) const;

 private:
  TokenSequence tokens_;
  std::int64_t seq_len_;
  std::int64_t batch_size_;
  std::vector<std::int32_t> token_bytes_;  // bytes of each token; kUnknownBytes for the unknown token
};

}  // namespace stagegpt
