#include "common/model/language_model.h"

#include <algorithm>
#include <array>

#include "common/backend/ops/elementwise.h"
#include "common/model/kv_cache.h"

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

Tensor LanguageModel::next_logits(Backend& backend, std::span<const std::int32_t> tokens,
                                  KvCache& cache) const {
  const Tensor ids = cache.enter(backend, tokens);
  const auto pass = [&] {
    Tape tape(backend, Tape::Mode::inference);
    const Tensor logits = last_logits(tape, ids, cache).value();
    if (logits.dtype() == DType::bf16) return backend.run(Cast{cache.logits(), logits});
    backend.copy(cache.logits(), logits);
  };
  tokens.size() == 1 ? backend.repeat(cache.token_pass(), pass) : pass();
  cache.add(std::ssize(tokens));
  return cache.logits();
}

}  // namespace stagegpt
