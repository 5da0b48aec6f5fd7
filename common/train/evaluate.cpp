#include "common/train/evaluate.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "common/autograd/ops/cross_entropy.h"
#include "common/comm/agreement.h"
#include "common/train/non_finite.h"

namespace stagegpt {
namespace {

// Sums over the targets of a batch.
struct Sums {
  double loss = 0, correct = 0;
  std::int64_t bytes = 0, unknown = 0;
};

void count_bytes(const Batch& batch, std::span<const std::int32_t> token_bytes, Sums& sums) {
  for (const std::int32_t id : batch.targets) {
    const std::int32_t bytes = token_bytes[static_cast<std::size_t>(id)];
    if (bytes == kUnknownBytes) {
      ++sums.unknown;
    } else {
      sums.bytes += bytes;
    }
  }
}

Sums evaluate_batch(Backend& backend, const Gpt2& model, const Batch& batch, std::int64_t seq_len) {
  const std::int64_t V = model.config().vocab_size;
  const Shape shape{std::ssize(batch.ids) / seq_len, seq_len};
  const Tensor ids = to_device<std::int32_t>(backend, shape, batch.ids);          // (B,T)
  const Tensor targets = to_device<std::int32_t>(backend, shape, batch.targets);  // (B,T)
  const Tensor correct = backend.allocate(DType::i32, {1});
  Tape tape(backend, Tape::Mode::inference);
  const Var logits = model.logits(tape, ids);  // (B,T,Vp)
  backend.count_correct(correct, logits.value(), targets, V);
  const Var loss = cross_entropy(tape, logits, targets, V);
  return {to_host<float>(backend, loss.value())[0] * static_cast<double>(batch.targets.size()),
          static_cast<double>(to_host<std::int32_t>(backend, correct)[0])};
}

}  // namespace

std::optional<Evaluation> evaluate(RankGroup& group, Backend& backend, const Gpt2& model,
                                   const DataLoader& data, const EvaluateOptions& options) {
  const WindowSample& windows = options.windows;
  const std::int64_t ranks = group.size(), B = options.batch_size, batches = (windows.count + B - 1) / B;
  std::vector<Sums> own(static_cast<std::size_t>((batches + ranks - 1) / ranks));
  for (std::int64_t turn = 0; turn < std::ssize(own); ++turn) {
    group.enter("validation");
    if (options.stoppable && any(group, StopSignals::requested())) return std::nullopt;
    if (options.on_windows) options.on_windows(std::min(windows.count, turn * ranks * B));
    const std::int64_t first = (turn * ranks + group.rank()) * B;
    if (first >= windows.count) break;  // in the last round, some ranks have no batch
    std::vector<std::int64_t> taken;
    for (std::int64_t i = first; i < std::min(windows.count, first + B); ++i) taken.push_back(windows[i]);
    const Batch batch = data.in_order(taken);
    own[turn] = evaluate_batch(backend, model, batch, data.seq_len());
    if (!options.token_bytes.empty()) count_bytes(batch, options.token_bytes, own[turn]);
  }
  const std::vector<Sums> all = gather(group, own);
  Sums sum;
  // Added in the order of batches, which does not depend on the number of ranks.
  for (std::int64_t batch = 0; batch < batches; ++batch) {
    const Sums& part = all[batch % ranks * std::ssize(own) + batch / ranks];
    sum.loss += part.loss;
    sum.correct += part.correct;
    sum.bytes += part.bytes;
    sum.unknown += part.unknown;
  }
  if (options.on_windows) options.on_windows(windows.count);
  const std::int64_t tokens = windows.count * data.seq_len();
  Evaluation evaluation{unsigned_nan(sum.loss / static_cast<double>(tokens)),
                        sum.correct / static_cast<double>(tokens), tokens, std::nullopt};
  if (!options.token_bytes.empty() && sum.unknown == 0) evaluation.bytes = sum.bytes;
  return evaluation;
}

}  // namespace stagegpt
