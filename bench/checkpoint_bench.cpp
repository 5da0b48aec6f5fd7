// Time of a checkpoint of GPT-2 124M with optimizer, next to that of the bare bytes: weights and
// moments written as they lie in memory, and synced. In turns, on one file system.
//
//   checkpoint_bench [directory [rounds]]
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <thread>
#include <vector>

#include "common/checkpoint/checkpoint.h"
#include "common/checkpoint/run_directory.h"
#include "common/data/tokenizers/bpe_trainer.h"
#include "stage0_serial/cpu_backend.h"

namespace stagegpt {
namespace {

namespace fs = std::filesystem;

double seconds_of(const auto& action) {
  const auto start = std::chrono::steady_clock::now();
  action();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

// The arenas as they lie in memory: nothing is looked for, turned, hashed or named.
void write_bare(const fs::path& directory, const std::vector<std::vector<Tensor>>& files) {
  fs::create_directory(directory);
  for (std::size_t i = 0; i < files.size(); ++i) {
    OutputFile file(directory / std::to_string(i));
    for (const Tensor& arena : files[i])
      file.write(std::as_bytes(std::span(arena.data<float>(), arena.numel())));
    file.sync();
  }
  sync_directory(directory);
}

int checkpoint_bench(const fs::path& directory, int rounds) {
  const auto backend =
      make_cpu_backend(static_cast<int>(std::thread::hardware_concurrency()), CpuMatmul::blas);
  Gpt2 model(*backend, Gpt2Config{});
  model.parameters().initialize(1337);
  const AdamW optimizer(*backend, model.parameters(), {});
  for (const Tensor& moment : {optimizer.m(), optimizer.v()})
    backend->copy(moment, model.parameters().weights());
  PieceCounts counts;
  counts.add("text");
  const auto tokenizer = train_bpe(counts, 257);
  RunDirectory run = RunDirectory::create(directory / "run");
  std::vector<double> save, commit, prune, bare;
  std::vector<FileEntry> files;
  for (int round = 1; round <= rounds; ++round) {
    const auto time_bare = [&] {
      bare.push_back(seconds_of([&] {
        write_bare(directory / "bare", {{model.parameters().weights()}, {optimizer.m(), optimizer.v()}});
      }));
      fs::remove_all(directory / "bare");
    };
    // First one, then the other, so that neither always finds the memory that the other has just freed.
    if (round % 2 == 0) time_bare();
    TrainerState state;
    state.step = round;
    save.push_back(seconds_of([&] {
      files = write_checkpoint(run.begin_checkpoint(round), *backend, model, optimizer, *tokenizer, state);
    }));
    commit.push_back(seconds_of([&] { run.commit_checkpoint(round, files); }));
    prune.push_back(seconds_of([&] { run.prune({}); }));
    if (round % 2 == 1) time_bare();
    std::printf("write %.2f s, commit %.2f s, prune %.2f s; bare bytes %.2f s\n", save.back(), commit.back(),
                prune.back(), bare.back());
    std::fflush(stdout);
  }
  std::printf("medians: write %.2f s, commit %.2f s, prune %.2f s; bare bytes %.2f s\n", median(save),
              median(commit), median(prune), median(bare));
  fs::remove_all(directory / "run");
  return 0;
}

}  // namespace
}  // namespace stagegpt

int main(int argc, char** argv) {
  const std::filesystem::path directory = argc > 1 ? argv[1] : ".";
  return stagegpt::checkpoint_bench(directory, argc > 2 ? std::atoi(argv[2]) : 5);
}
