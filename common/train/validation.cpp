#include "common/train/validation.h"

#include <algorithm>

namespace stagegpt {

WindowSample validation_sample(std::int64_t tokens, std::int64_t seq_len, std::int64_t eval_tokens) {
  const std::int64_t all = std::max<std::int64_t>(0, tokens - 1) / seq_len;
  if (eval_tokens == 0) return {all, all};
  return {all, std::min(all, std::max<std::int64_t>(1, eval_tokens / seq_len))};
}

Validation::Validation(const TokenSequence& tokens, const Tokenizer& tokenizer, std::int64_t seq_len,
                       std::int64_t batch_size, int ranks_of_model)
    : tokens_(tokens),
      seq_len_(seq_len),
      batch_size_(
          std::max<std::int64_t>(1, std::min(batch_size, evaluation_batch(seq_len)) / ranks_of_model)),
      token_bytes_(bytes_of_tokens(tokenizer)) {}

std::optional<ValidationResult> Validation::run(
    RankGroup& group, Backend& backend, const LanguageModel& model, const WindowSample& windows,
    const std::function<void(std::int64_t, std::int64_t)>& on_tokens, RankGroup* stopping) const {
  const std::int64_t T = seq_len_, tokens = windows.count * T;
  EvaluateOptions options{batch_size_, token_bytes_, tokens > kUnstoppedTokens, stopping, {}};
  if (on_tokens) options.on_windows = [&](std::int64_t done) { on_tokens(done * T, tokens); };
  const std::optional<Evaluation> evaluation =
      evaluate(group, backend, model, tokens_, sampled_windows(windows, T), options);
  if (!evaluation) return std::nullopt;
  return ValidationResult{evaluation->loss, evaluation->accuracy, bits_per_byte(*evaluation),
                          evaluation->tokens};
}

}  // namespace stagegpt
