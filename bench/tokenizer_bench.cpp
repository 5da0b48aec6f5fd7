// Speed of tokenizing text, and of learning merges.
//   tokenizer_bench FILE [--tokenizer PATH] [flags of Google Benchmark]
// bench/peers/tokenizer_peers.py measures tiktoken and Hugging Face's tokenizers in the same way.
#include <benchmark/benchmark.h>

#include <iostream>
#include <string>

#include "common/base/error.h"
#include "common/data/make_tokenizer.h"
#include "common/data/text_source.h"
#include "common/data/tokenizers/bpe_trainer.h"
#include "common/data/tokenizers/load_tokenizer.h"

namespace stagegpt {
namespace {

void set_megabytes(benchmark::State& state, std::int64_t bytes) {
  state.counters["MB/s"] =
      benchmark::Counter(static_cast<double>(bytes) / 1e6, benchmark::Counter::kIsIterationInvariantRate);
}

// Encodes the whole file; the benchmark's argument is the number of threads.
void encode(benchmark::State& state, const TextSource& text, const Tokenizer& tokenizer) {
  TokenizeOptions options;
  options.threads = static_cast<int>(state.range(0));
  std::int64_t tokens = 0;
  for (auto _ : state) {
    tokens = 0;
    tokenize(text, text.all(), tokenizer, options,
             [&](std::span<const std::int32_t> ids) { tokens += std::ssize(ids); });
  }
  state.counters["tokens"] = static_cast<double>(tokens);
  set_megabytes(state, text.bytes());
}

// Counts the pieces of the file and learns merges; the argument is the size of the vocabulary.
void train(benchmark::State& state, const TextSource& text) {
  TokenizeOptions options;
  options.threads = static_cast<int>(state.range(1));
  TokenizerChoice choice;
  choice.vocab_size = state.range(0);
  for (auto _ : state) benchmark::DoNotOptimize(make_tokenizer(choice, text, options));
  set_megabytes(state, text.bytes());
}

int bench_main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (argc != 2 && !(argc == 4 && std::string_view(argv[2]) == "--tokenizer")) {
    user_error("usage: tokenizer_bench FILE [--tokenizer PATH] [flags of Google Benchmark]");
  }
  const TextSource text({argv[1]}, "FILE");
  const auto tokenizer =
      load_tokenizer(argc == 4 ? argv[3] : STAGEGPT_SOURCE_DIR "/data/gpt2", "--tokenizer");
  const auto unit = benchmark::kMillisecond;
  benchmark::RegisterBenchmark("encode/threads",
                               [&](benchmark::State& state) { encode(state, text, *tokenizer); })
      ->RangeMultiplier(2)
      ->Range(1, 8)
      ->UseRealTime()
      ->Unit(unit);
  benchmark::RegisterBenchmark("train/vocabulary/threads",
                               [&](benchmark::State& state) { train(state, text); })
      ->ArgsProduct({{5000, 50257}, {1, 2}})
      ->UseRealTime()
      ->Unit(unit);
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}

}  // namespace
}  // namespace stagegpt

int main(int argc, char** argv) {
  try {
    return stagegpt::bench_main(argc, argv);
  } catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
    return 2;
  }
}
