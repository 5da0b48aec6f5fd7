// Validation between training steps and after the last one: which windows of the validation part are taken,
// and the result per token and per byte of text. The windows are computed by evaluate.h.
#pragma once

#include <optional>

#include "common/comm/rank_group.h"
#include "common/data/token_sequence.h"
#include "common/data/tokenizers/tokenizer.h"
#include "common/train/evaluate.h"

namespace stagegpt {

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
