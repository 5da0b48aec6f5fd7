#include "common/model/language_model.h"

#include <algorithm>
#include <array>

#include "common/backend/ops/elementwise.h"

namespace stagegpt {
namespace {

// In the order of Recompute.
constexpr std::array<std::string_view, 3> kRecomputeNames = {"none", "gelu", "block"};

}  // namespace

std::optional<Recompute> recompute_named(std::string_view name) {
  const auto known = std::ranges::find(kRecomputeNames, name);
  if (known == kRecomputeNames.end()) return std::nullopt;
  return static_cast<Recompute>(known - kRecomputeNames.begin());
}

std::string_view name_of(Recompute recompute) { return kRecomputeNames[static_cast<std::size_t>(recompute)]; }

Tensor LanguageModel::next_logits(Backend& backend, const Tensor& ids, KvCache& cache) const {
  check(ids.shape()[0] == 1 && ids.shape()[1] > 0, "gpt2: expected tokens of one sequence, not ids ",
        ids.shape());
  Tape tape(backend, Tape::Mode::inference);
  const Tensor logits = last_logits(tape, ids, cache).value();
  if (logits.dtype() != DType::bf16) return logits;
  const Tensor wide = backend.allocate(DType::f32, logits.shape());
  backend.run(Cast{wide, logits});
  return wide;
}

}  // namespace stagegpt
