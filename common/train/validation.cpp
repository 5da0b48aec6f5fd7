#include "common/train/validation.h"

#include <algorithm>
#include <numbers>

namespace stagegpt {
namespace {

constexpr std::int64_t kBatchTokens = 1 << 12;  // maximum tokens per batch on a rank

// Bytes of text in each token; special tokens have 0.
std::vector<std::int32_t> bytes_of_tokens(const Tokenizer& tokenizer) {
  std::vector<std::int32_t> bytes;
  for (std::int32_t id = 0; id < tokenizer.size(); ++id) {
    const std::string& token = tokenizer.vocabulary().tokens[static_cast<std::size_t>(id)];
    bytes.push_back(tokenizer.is_special(id) ? 0 : static_cast<std::int32_t>(token.size()));
  }
  if (const auto unknown = tokenizer.unknown()) bytes[static_cast<std::size_t>(*unknown)] = kUnknownBytes;
  return bytes;
}

}  // namespace

WindowSample validation_sample(std::int64_t tokens, std::int64_t seq_len,
                               std::optional<std::int64_t> eval_tokens, double trained_windows) {
  constexpr double kPassesOfTraining = 3, kShare = 0.1;
  const std::int64_t all = std::max<std::int64_t>(0, tokens - 1) / seq_len;
  const bool cheap = static_cast<double>(all) <= kShare * kPassesOfTraining * trained_windows;
  const std::int64_t wanted = eval_tokens.value_or(cheap ? 0 : kSampleTokens);
  if (wanted == 0) return {all, all};
  return {all, std::min(all, std::max<std::int64_t>(1, wanted / seq_len))};
}

Validation::Validation(const TokenSequence& tokens, const Tokenizer& tokenizer, std::int64_t seq_len,
                       std::int64_t batch_size)
    : data_(tokens, seq_len, 0),  // seed 0: windows are not shuffled
      batch_size_(std::min(batch_size, std::max<std::int64_t>(1, kBatchTokens / seq_len))),
      token_bytes_(bytes_of_tokens(tokenizer)) {}

std::optional<ValidationResult> Validation::run(
    RankGroup& group, Backend& backend, const Gpt2& model, const WindowSample& windows,
    const std::function<void(std::int64_t, std::int64_t)>& on_tokens) const {
  const std::int64_t T = data_.seq_len(), tokens = windows.count * T;
  EvaluateOptions options{windows, batch_size_, token_bytes_, tokens > kSampleTokens, {}};
  if (on_tokens) options.on_windows = [&](std::int64_t done) { on_tokens(done * T, tokens); };
  const std::optional<Evaluation> evaluation = evaluate(group, backend, model, data_, options);
  if (!evaluation) return std::nullopt;
  ValidationResult result{evaluation->loss, evaluation->accuracy, std::nullopt, evaluation->tokens};
  if (evaluation->bytes && *evaluation->bytes > 0) {
    const double tokens_per_byte = static_cast<double>(tokens) / static_cast<double>(*evaluation->bytes);
    result.bits_per_byte = evaluation->loss / std::numbers::ln2 * tokens_per_byte;
  }
  return result;
}

}  // namespace stagegpt
