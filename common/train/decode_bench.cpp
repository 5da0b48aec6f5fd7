#include "common/train/decode_bench.h"

#include <algorithm>
#include <chrono>

#include "common/model/kv_cache.h"

namespace stagegpt {
namespace {

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return (values[(values.size() - 1) / 2] + values[values.size() / 2]) / 2;
}

// What one token reads of the weights: all but the positions, of which it is one row.
double weight_bytes(const ParameterTable& table, DType matrices) {
  double bytes = 0;
  for (const Parameter& row : table.rows()) {
    const bool is_matrix = row.shape.rank() == 2;
    if (row.name == "wpe.weight") {
      bytes += static_cast<double>(row.shape[1]) * size_of(DType::f32);
    } else {
      bytes += static_cast<double>(row.arena_shape().numel()) *
               static_cast<double>(size_of(is_matrix ? matrices : DType::f32));
    }
  }
  return bytes;
}

}  // namespace

double DecodeReport::median_ms() const { return median(token_ms); }

DecodeReport bench_decoding(Backend& backend, const Gpt2& model, const DecodeBenchConfig& config) {
  constexpr std::int64_t kReadElements = std::int64_t{1} << 26;  // 256 MiB: no cache holds it
  constexpr int kTokensPerRead = 4;
  const Tensor large = backend.zeros(DType::f32, {kReadElements}), sum = backend.zeros(DType::f64, {1});
  const Gpt2Config& gpt2 = model.config();
  KvCache cache(backend, model);
  DecodeReport report;
  std::vector<double> reads;
  double cached_tokens = 0;
  std::int32_t id = 0;
  for (std::int64_t i = 0; i < config.warmup + config.tokens; ++i) {
    if (cache.size() == gpt2.block_size) cache.clear();
    const double before = static_cast<double>(cache.size());
    const auto start = std::chrono::steady_clock::now();
    const Tensor ids = to_device<std::int32_t>(backend, {1, 1}, std::span(&id, 1));
    const auto logits =
        to_host<float>(backend, model.next_logits(backend, ids, cache).slice(0, {gpt2.vocab_size}));
    id = static_cast<std::int32_t>(std::ranges::max_element(logits) - logits.begin());
    if (i < config.warmup) continue;
    report.token_ms.push_back(1e3 * seconds_since(start));
    cached_tokens += before;
    if (i % kTokensPerRead != 0) continue;
    const auto read_start = std::chrono::steady_clock::now();
    backend.squared_norm(sum, large);
    backend.synchronize();
    reads.push_back(seconds_since(read_start));
  }
  std::ranges::sort(report.token_ms);
  const double row_bytes = 2.0 * gpt2.n_embd * gpt2.n_layer * static_cast<double>(size_of(DType::f32));
  report.bytes_per_token = weight_bytes(model.parameters().table(), config.matrices) +
                           row_bytes * cached_tokens / static_cast<double>(config.tokens);
  report.memory_bytes_per_second = static_cast<double>(large.bytes()) / median(reads);
  return report;
}

}  // namespace stagegpt
