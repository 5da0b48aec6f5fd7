// Time to write a checkpoint of GPT-2 124M with optimizer state, compared with writing the same weights and
// moments as plain bytes, both with fsync. Each also removes as many old bytes; they alternate, on one file
// system.
//
//   checkpoint_bench DIRECTORY [ROUNDS]
#include <fcntl.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <thread>
#include <vector>

#include "common/checkpoint/checkpoint.h"
#include "common/checkpoint/run_directory.h"
#include "common/data/tokenizers/bpe_trainer.h"
#include "common/model/gpt2.h"
#include "common/optim/adamw.h"
#include "stage0_serial/cpu_backend.h"

namespace stagegpt {
namespace {

namespace fs = std::filesystem;

std::span<const std::byte> bytes_of(const Tensor& arena) {
  return std::as_bytes(std::span(arena.data<float>(), arena.numel()));
}

using Arenas = std::vector<std::vector<Tensor>>;  // of each file

// Writes the arenas as they are in memory: without lookup, transposition, hash or names. The I/O is that of a
// checkpoint, so that the time is that of the disk.
void write_bare(const fs::path& directory, const Arenas& files) {
  for (std::size_t i = 0; i < files.size(); ++i) {
    OutputFile file(directory / std::to_string(i));
    for (const Tensor& arena : files[i]) file.write(bytes_of(arena));
    file.sync();
  }
}

// Writes in the usual way, through the page cache.
void write_cached(const fs::path& directory, const Arenas& files) {
  for (std::size_t i = 0; i < files.size(); ++i) {
    const fs::path path = directory / std::to_string(i);
    const FileDescriptor file(open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0666));
    for (const Tensor& arena : files[i]) write_fully(file, bytes_of(arena), path);
    if (fsync(file.get()) != 0) fail_to_write(path);
  }
}

// Median seconds of each kind of work, over the rounds.
class Times {
 public:
  void measure(const char* name, const auto& action) {
    const auto start = std::chrono::steady_clock::now();
    action();
    seconds_[name].push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
  void print() {
    for (auto& [name, seconds] : seconds_) {
      std::ranges::sort(seconds);
      std::printf("%-28s %6.2f s (%.2f to %.2f)\n", name.c_str(), seconds[seconds.size() / 2],
                  seconds.front(), seconds.back());
    }
  }

 private:
  std::map<std::string, std::vector<double>> seconds_;
};

int checkpoint_bench(const fs::path& directory, int rounds) {
  const auto backend =
      make_cpu_backend(static_cast<int>(std::thread::hardware_concurrency()), CpuMatmul::packed);
  Gpt2 model(*backend, Gpt2Config{});
  model.parameters().initialize(1337);
  const AdamW optimizer(*backend, model.parameters(), {});
  const Moments& moments = optimizer.moments();
  for (const Tensor& moment : {moments.m, moments.v}) backend->copy(moment, model.parameters().weights());
  const ParameterTable& table = model.parameters().table();
  const CheckpointValues values = {
      arena_values(*backend, table, model.parameters().weights()),
      {arena_values(*backend, table, moments.m), arena_values(*backend, table, moments.v)}};
  PieceCounts counts;
  counts.add("text");
  const auto tokenizer = train_bpe(counts, 257);
  RunDirectory run = RunDirectory::create(directory / "run");
  const Arenas arenas = {{model.parameters().weights()}, {moments.m, moments.v}};
  const fs::path bare = directory / "bare";
  Times times;
  // What each rank does before a checkpoint, to compare its weights with those of the others.
  const auto time_hash = [&] {
    constexpr std::int64_t kElements = 1 << 20;
    const Tensor& weights = model.parameters().weights();
    ContentHash hash;
    std::vector<float> elements(kElements);
    for (std::int64_t begin = 0; begin < weights.numel(); begin += kElements) {
      const std::int64_t size = std::min(kElements, weights.numel() - begin);
      const std::span<float> piece = std::span(elements).first(static_cast<std::size_t>(size));
      backend->copy_to_host(std::as_writable_bytes(piece), weights.slice(begin, {size}));
      hash.add(std::as_bytes(piece));
    }
  };
  const auto time_bare = [&](const char* name, const auto& write) {
    fs::create_directory(bare);
    times.measure(name, [&] {
      write(bare, arenas);
      sync_directory(bare);
      fs::remove_all(bare);
    });
  };
  for (int round = 1; round <= rounds; ++round) {
    const auto time_checkpoint = [&] {
      TrainerState state;
      state.step = round;
      times.measure("checkpoint", [&] {
        const fs::path path = run.begin_checkpoint(round);
        run.commit_checkpoint(round, write_checkpoint(path, model.config(), values, *tokenizer, state));
        run.prune({});
      });
      times.measure("reading it back, meanwhile", [&] { run.read_back_newest().wait(); });
    };
    // In alternating order, so that neither is always measured after the other.
    if (round % 2 == 1) time_checkpoint();
    times.measure("hash of the weights", time_hash);
    time_bare("bare bytes", write_bare);
    time_bare("bare bytes, page cache", write_cached);
    if (round % 2 == 0) time_checkpoint();
  }
  times.print();
  fs::remove_all(directory / "run");
  return 0;
}

}  // namespace
}  // namespace stagegpt

int main(int argc, char** argv) {
  CLI::App app{
      "The time of a checkpoint of GPT-2 124M with its optimizer, compared with that of the bare bytes."};
  std::filesystem::path directory;
  int rounds = 5;
  app.add_option("DIRECTORY", directory, "where the files, of 1.5 GB each, are written; none is left there")
      ->required()
      ->check(CLI::ExistingDirectory);
  app.add_option("ROUNDS", rounds, "number of rounds, each with a checkpoint and the bare bytes")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  return stagegpt::checkpoint_bench(directory, rounds);
}
