#include "common/train/validation.h"

#include <algorithm>
#include <numbers>

#include "common/train/trainer.h"

namespace stagegpt {
namespace {

constexpr std::int64_t kTokens = 1 << 15;       // validation takes no more than this
constexpr std::int64_t kBatchTokens = 1 << 12;  // nor at once, however large the batch over all ranks

// Bytes of text that a token stands for, on average. Special tokens stand for none.
std::optional<double> bytes_per_token(const Tokenizer& tokenizer, const std::vector<std::int32_t>& ids) {
  std::size_t bytes = 0;
  for (const std::int32_t id : ids) {
    if (id == tokenizer.unknown()) return std::nullopt;
    if (!tokenizer.is_special(id))
      bytes += tokenizer.vocabulary().tokens[static_cast<std::size_t>(id)].size();
  }
  return static_cast<double>(bytes) / static_cast<double>(ids.size());
}

}  // namespace

Validation::Validation(const TokenSequence& tokens, const Tokenizer& tokenizer, std::int64_t seq_len,
                       std::int64_t batch_size)
    : data_(tokens, seq_len, 0),  // the seed is for shuffling, which is not done
      batch_size_(std::min(batch_size, std::max<std::int64_t>(1, kBatchTokens / seq_len))),
      windows_(std::min(data_.windows_in_order(), std::max<std::int64_t>(1, kTokens / seq_len))),
      bytes_per_token_(bytes_per_token(tokenizer, tokens.read(1, windows_ * seq_len))) {}  // of the targets

ValidationResult Validation::run(RankGroup& group, Backend& backend, const Gpt2& model) const {
  const Evaluation evaluation = evaluate(group, backend, model, data_, batch_size_, windows_);
  ValidationResult result{evaluation.loss, evaluation.accuracy, std::nullopt};
  if (bytes_per_token_) result.bits_per_byte = evaluation.loss / std::numbers::ln2 / *bytes_per_token_;
  return result;
}

}  // namespace stagegpt
