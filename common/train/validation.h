// How well a model predicts text that it has not been trained on.
#pragma once

#include <optional>

#include "common/comm/rank_group.h"
#include "common/data/data_loader.h"
#include "common/data/tokenizers/tokenizer.h"
#include "common/model/gpt2.h"

namespace stagegpt {

struct ValidationResult {
  double loss = 0;      // mean, in nats per token
  double accuracy = 0;  // share of the tokens that the model takes for the most probable
  // The loss in bits per byte of text: comparable between tokenizers. Nothing where words are unknown: what
  // they were is lost.
  std::optional<double> bits_per_byte;
};

// Over the first windows of the validation tokens, without overlap, at most 32,768 tokens of them.
class Validation {
 public:
  // The loss is taken over batches of windows of `seq_len` tokens: `batch_size`, or fewer where those would
  // be many for a rank that has a small part of a training batch.
  Validation(const TokenSequence& tokens, const Tokenizer& tokenizer, std::int64_t seq_len,
             std::int64_t batch_size);

  // The ranks share the work; all get the same bits.
  ValidationResult run(RankGroup& group, Backend& backend, const Gpt2& model) const;

 private:
  DataLoader data_;
  std::int64_t batch_size_, windows_;
  std::optional<double> bytes_per_token_;
};

}  // namespace stagegpt
