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
  const std::int64_t B = cache.texts(), T = std::ssize(tokens) / B;
  check(T > 0 && std::ssize(tokens) == B * T, "gpt2: ", tokens.size(), " tokens of ", B, " texts");
  const auto pass = [&](const Tensor& ids) {
    Tape tape(backend, Tape::Mode::inference);
    const Tensor logits = last_logits(tape, ids, cache).value(), out = cache.logits_of_pass();
    if (logits.dtype() == DType::bf16) return backend.run(Cast{out, logits});
    backend.copy(out, logits);
  };
  const auto of_text = [&](std::int64_t b) {
    return tokens.subspan(static_cast<std::size_t>(b * T), static_cast<std::size_t>(T));
  };
  if (T == 1) {
    const Tensor ids = cache.enter(backend, tokens, 0, B);
    backend.repeat(cache.token_pass(), [&] { pass(ids); });
  } else {
    for (std::int64_t b = 0; b < B; ++b) {
      std::int64_t same = cache.size() == 0 ? 0 : b;  // the first text that begins like text b
      while (same < b && !std::ranges::equal(of_text(same), of_text(b))) ++same;
      same < b ? cache.copy_text(backend, same, b, T) : pass(cache.enter(backend, of_text(b), b, 1));
    }
  }
  cache.add(T);
  return cache.logits();
}

}  // namespace stagegpt
