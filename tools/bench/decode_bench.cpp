#include "tools/bench/decode_bench.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <span>

#include "common/backend/ops/largest_logits.h"
#include "common/base/grouped.h"
#include "common/base/json.h"
#include "common/base/seconds_since.h"
#include "common/model/kv_cache.h"
#include "tools/bench/device_report.h"
#include "tools/bench/memory_read.h"

namespace stagegpt {
namespace {

// Bytes of weights that are read for one token: all matrices, but one row only of the position embedding, and
// of the token embedding unless it is the head too.
double weight_bytes(const LanguageModel& model) {
  const Parameters& parameters = model.parameters();
  double bytes = 0;
  for (std::size_t i = 0; i < parameters.table().size(); ++i) {
    const std::string& name = parameters.table()[i].name;
    const bool one_row =
        name == "wpe.weight" || (name == "wte.weight" && !model.config().tie_word_embeddings);
    const Tensor& weight = parameters.var(i).value();
    bytes += static_cast<double>(weight.bytes()) / static_cast<double>(one_row ? weight.shape()[0] : 1);
  }
  return bytes;
}

// Generates tokens greedily; each call returns when the token is known on the host.
class Decoder {
 public:
  Decoder(Backend& backend, const LanguageModel& model)
      : backend_(backend), model_(model), cache_(backend, model) {}

  // Number of tokens in the KV cache.
  double context() const { return static_cast<double>(cache_.size()); }
  double timed_token() {
    const Gpt2Config& config = model_.config();
    if (cache_.size() == config.block_size) cache_.clear();
    const auto start = std::chrono::steady_clock::now();
    const Tensor logits = model_.next_logits(backend_, std::span(&token_, 1), cache_);  // (1,1,Vp)
    const Tensor largest = backend_.allocate(DType::f32, {1}), id = backend_.allocate(DType::i32, {1});
    backend_.run(LargestLogits{largest, id, logits.slice(0, {config.vocab_size})});
    token_ = to_host<std::int32_t>(backend_, id).front();
    return seconds_since(start);
  }

 private:
  Backend& backend_;
  const LanguageModel& model_;
  KvCache cache_;
  std::int32_t token_ = 0;
};

}  // namespace

DecodeReport bench_decoding(Backend& backend, const LanguageModel& model, const DecodeBenchConfig& config,
                            const BenchProgress& progress) {
  constexpr std::int64_t kTokensPerRead = 4;
  Decoder decoder(backend, model);
  const auto write = [&](std::int64_t tokens) {
    for (std::int64_t i = 0; i < tokens; ++i) decoder.timed_token();
  };
  write(1);
  DecodeReport report;
  report.peak_bytes = backend.memory_stats().peak_bytes_in_use;
  MemoryRead memory(backend);
  write(std::max<std::int64_t>(1, config.warmup) - 1);  // tokens are recorded beside this memory
  Samples read_ms;
  double context = 0;
  for (std::int64_t i = 0; i < config.tokens; ++i) {
    profiled(config.profile, i + 1, [&] {
      const std::optional<DeviceWork> before = backend.device_work();
      report.token_ms.add(1e3 * decoder.timed_token());
      report.device_work = difference(backend.device_work(), before);
    });
    context += decoder.context();
    if (i % kTokensPerRead == 0) read_ms.add(1e3 * memory.timed_pass());
    progress(i + 1, config.tokens);
  }
  const Gpt2Config& gpt2 = model.config();
  const double row_bytes =
      2.0 * gpt2.n_embd * gpt2.n_layer * static_cast<double>(size_of(model.parameters().activations()));
  report.bytes_per_token = weight_bytes(model) + row_bytes * context / static_cast<double>(config.tokens);
  report.memory_bytes_per_second = 1e3 * memory.bytes() / read_ms.median();
  return report;
}

Json decode_json(const DecodeSubject& subject, const DecodeReport& report) {
  return {{"model", subject.model},
          {"parameters", subject.parameters},
          {"weights", subject.weights},
          {"threads", subject.threads},
          {"tokens_per_second", 1e3 / report.token_ms.median()},
          {"ms_per_token",
           {{"median", report.token_ms.median()},
            {"min", report.token_ms.quantile(0)},
            {"max", report.token_ms.quantile(1)}}},
          {"bytes_per_token", report.bytes_per_token},
          {"gbytes_per_second", report.bytes_per_second() / 1e9},
          {"memory_gbytes_per_second", report.memory_bytes_per_second / 1e9},
          {"bandwidth_share", report.bandwidth_share()},
          {"peak_memory_bytes", report.peak_bytes},
          {"device_work", device_work_json(report.device_work)},
          {"busy", busy_json(report.load)}};
}

void print_decode_table(const DecodeSubject& subject, const DecodeReport& report) {
  std::printf("%s, %s parameters, matrices in %s\n%s\n", subject.model.c_str(),
              grouped(subject.parameters).c_str(), subject.weights.c_str(), subject.machine.c_str());
  std::printf("token     %.2f ms (median of %lld; %.2f to %.2f), %s tokens/s\n", report.token_ms.median(),
              static_cast<long long>(report.token_ms.size()), report.token_ms.quantile(0),
              report.token_ms.quantile(1), grouped(1e3 / report.token_ms.median(), 1).c_str());
  std::printf("reads     %.1f MB a token: %.1f GB/s, %.0f %% of the %.1f GB/s that memory gives\n",
              report.bytes_per_token / 1e6, report.bytes_per_second() / 1e9, 100 * report.bandwidth_share(),
              report.memory_bytes_per_second / 1e9);
  std::printf("memory    %s MiB\n", grouped(static_cast<double>(report.peak_bytes) / (1 << 20), 1).c_str());
  if (report.device_work) print_device_work(*report.device_work, "a token");
}

}  // namespace stagegpt
