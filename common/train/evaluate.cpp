#include "common/train/evaluate.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <vector>

#include "common/autograd/ops/cross_entropy.h"
#include "common/train/non_finite.h"

namespace stagegpt {
namespace {

// Sums over the targets of a batch.
struct Sums {
  double loss = 0, correct = 0;
  std::int64_t tokens = 0, bytes = 0, unknown = 0;
};

// A batch of windows of the same length, of which the last `scored` predictions count.
struct WindowBatch {
  std::vector<std::int32_t> ids, targets;  // (B,T)
  std::int64_t length = 0, scored = 0;

  // Reads windows from index `first` on, at most `most`. The batch ends before a window of another length or
  // with another number of predictions.
  static WindowBatch read(const TokenSequence& tokens, const Windows& windows, std::int64_t first,
                          std::int64_t most) {
    WindowBatch batch;
    for (std::int64_t i = first; i < first + most; ++i) {
      const Window window = windows.at(i);
      if (i > first && (window.length != batch.length || window.scored != batch.scored)) break;
      batch.length = window.length, batch.scored = window.scored;
      const std::vector<std::int32_t> read = tokens.read(window.first, window.length + 1);
      batch.ids.insert(batch.ids.end(), read.begin(), read.end() - 1);
      batch.targets.insert(batch.targets.end(), read.begin() + 1, read.end());
    }
    return batch;
  }
  std::int64_t size() const { return std::ssize(ids) / length; }
};

void count_bytes(std::span<const std::int32_t> targets, std::span<const std::int32_t> token_bytes,
                 Sums& sums) {
  for (const std::int32_t id : targets) {
    const std::int32_t bytes = token_bytes[static_cast<std::size_t>(id)];
    if (bytes == kUnknownBytes) {
      ++sums.unknown;
    } else {
      sums.bytes += bytes;
    }
  }
}

// Adds the losses of logits (N,Vp), and counts the predictions that are right. targets (N).
void add_rows(Backend& backend, const Tensor& logits, const Tensor& targets, std::int64_t V, Sums& sums) {
  const Tensor correct = backend.allocate(DType::i32, {1});
  backend.run(CountCorrect{correct, logits, targets, V});
  Tape tape(backend, Tape::Mode::inference);
  const Var loss = cross_entropy(tape, Var(logits), targets, V);
  sums.tokens += targets.numel();
  sums.loss += to_host<float>(backend, loss.value())[0] * static_cast<double>(targets.numel());
  sums.correct += static_cast<double>(to_host<std::int32_t>(backend, correct)[0]);
}

void add_batch(Backend& backend, const LanguageModel& model, const WindowBatch& batch,
               std::span<const std::int32_t> token_bytes, Sums& sums) {
  const std::int64_t V = model.config().vocab_size, T = batch.length, skipped = T - batch.scored;
  const Shape shape{batch.size(), T};
  const Tensor ids = to_device<std::int32_t>(backend, shape, batch.ids);          // (B,T)
  const Tensor targets = to_device<std::int32_t>(backend, shape, batch.targets);  // (B,T)
  Tape tape(backend, Tape::Mode::inference);
  const Tensor logits = model.logits(tape, ids).value();  // (B,T,Vp)
  // If all predictions count, the windows are one matrix; else each is one.
  const std::int64_t parts = skipped == 0 ? 1 : batch.size(),
                     rows = skipped == 0 ? targets.numel() : batch.scored, Vp = logits.shape()[-1];
  for (std::int64_t part = 0; part < parts; ++part) {
    const std::int64_t first = part * T + skipped;
    add_rows(backend, logits.slice(first * Vp, {1, rows, Vp}), targets.slice(first, {1, rows}), V, sums);
    if (!token_bytes.empty()) {
      count_bytes(
          std::span(batch.targets).subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(rows)),
          token_bytes, sums);
    }
  }
}

}  // namespace

std::optional<double> bits_per_byte(const Evaluation& evaluation) {
  if (evaluation.bytes.value_or(0) == 0) return std::nullopt;
  return evaluation.loss / std::numbers::ln2 * static_cast<double>(evaluation.tokens) /
         static_cast<double>(*evaluation.bytes);
}

std::vector<std::int32_t> bytes_of_tokens(const Tokenizer& tokenizer) {
  std::vector<std::int32_t> bytes;
  for (std::int32_t id = 0; id < tokenizer.size(); ++id) {
    const std::string& token = tokenizer.vocabulary().tokens[static_cast<std::size_t>(id)];
    bytes.push_back(tokenizer.is_special(id) ? 0 : static_cast<std::int32_t>(token.size()));
  }
  if (const auto unknown = tokenizer.unknown()) bytes[static_cast<std::size_t>(*unknown)] = kUnknownBytes;
  return bytes;
}

std::int64_t evaluation_batch(std::int64_t T) {
  constexpr std::int64_t kTokens = 1 << 12;
  return std::max<std::int64_t>(1, kTokens / T);
}

std::optional<Evaluation> evaluate(RankGroup& group, Backend& backend, const LanguageModel& model,
                                   const TokenSequence& tokens, const Windows& windows,
                                   const BatchOptions& options, std::span<const std::int32_t> token_bytes) {
  const auto all = compute_in_turn<Sums>(
      group, windows.count, 1, options, [&](std::int64_t first, std::int64_t end, std::span<Sums> sums) {
        while (first < end) {
          const WindowBatch batch = WindowBatch::read(tokens, windows, first, end - first);
          add_batch(backend, model, batch, token_bytes, sums[0]);
          first += batch.size();
        }
      });
  if (!all) return std::nullopt;
  Sums sum;
  for (const Sums& part : *all) {
    sum.loss += part.loss;
    sum.correct += part.correct;
    sum.tokens += part.tokens;
    sum.bytes += part.bytes;
    sum.unknown += part.unknown;
  }
  const auto scored = static_cast<double>(sum.tokens);
  Evaluation evaluation{unsigned_nan(sum.loss / scored), sum.correct / scored, sum.tokens, std::nullopt};
  if (!token_bytes.empty() && sum.unknown == 0) evaluation.bytes = sum.bytes;
  return evaluation;
}

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
  BatchOptions options{
      .batch_size = batch_size_, .stoppable = tokens > kUnstoppedTokens, .stopping = stopping};
  if (on_tokens) options.on_done = [&](std::int64_t done) { on_tokens(done * T, tokens); };
  const std::optional<Evaluation> evaluation =
      evaluate(group, backend, model, tokens_, sampled_windows(windows, T), options, token_bytes_);
  if (!evaluation) return std::nullopt;
  return ValidationResult{evaluation->loss, evaluation->accuracy, bits_per_byte(*evaluation),
                          evaluation->tokens};
}

}  // namespace stagegpt
