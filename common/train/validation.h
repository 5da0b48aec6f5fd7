// Validation between training steps and at the end: which windows of the validation part are taken, and the
// result per token and per byte of text. The windows are computed by evaluate.h.
#pragma once

#include <optional>

#include "common/comm/rank_group.h"
#include "common/data/data_loader.h"
#include "common/data/tokenizers/tokenizer.h"
#include "common/train/evaluate.h"

namespace stagegpt {

// What is validated of a long validation part between steps, unless --eval-tokens says otherwise. A
// validation of more tokens ends early when a signal comes.
inline constexpr std::int64_t kSampleTokens = 1 << 15;

// The windows that are validated between steps, of a validation part of `tokens` tokens: whole windows of
// `seq_len` tokens of `eval_tokens`, at least one (0: all). Where nothing was asked for, all where their
// forward passes are at most a tenth of the work of the `trained_windows` that are trained on between two
// validations (a window's training counts as three passes), else those of kSampleTokens. Of the machine they
// do not depend.
WindowSample validation_sample(std::int64_t tokens, std::int64_t seq_len,
                               std::optional<std::int64_t> eval_tokens, double trained_windows);

struct ValidationResult {
  double loss = 0;      // mean, in nats per token
  double accuracy = 0;  // share of the tokens that the model takes for the most probable
  // The loss in bits per byte of the text that was evaluated: comparable between tokenizers. Nothing where
  // words are unknown: what they were is lost.
  std::optional<double> bits_per_byte;
  std::int64_t tokens = 0;  // that were evaluated
};

class Validation {
 public:
  // The loss is taken over batches of windows of `seq_len` tokens: `batch_size`, or fewer where those would
  // be many for a rank that has a small part of a training batch.
  Validation(const TokenSequence& tokens, const Tokenizer& tokenizer, std::int64_t seq_len,
             std::int64_t batch_size);

  // Windows of the whole part. What remains behind the last one is never evaluated.
  WindowSample all() const { return {data_.windows_in_order(), data_.windows_in_order()}; }

  // The ranks share the work; all get the same bits. `on_tokens` is called as work goes on, with the number
  // of tokens done of those to do. Nothing when a signal has ended it.
  std::optional<ValidationResult> run(RankGroup& group, Backend& backend, const Gpt2& model,
                                      const WindowSample& windows,
                                      const std::function<void(std::int64_t, std::int64_t)>& on_tokens) const;

 private:
  DataLoader data_;
  std::int64_t batch_size_;
  std::vector<std::int32_t> token_bytes_;  // of each token; kUnknownBytes for the unknown one
};

}  // namespace stagegpt
