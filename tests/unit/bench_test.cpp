// The benchmark, on a model.
#include "tools/bench/bench.h"

#include <gtest/gtest.h>

#include <cstring>

#include "common/comm/gradient_sync.h"
#include "common/comm/self_communicator.h"
#include "common/model/gpt2.h"
#include "common/train/memory_plan.h"
#include "stage0_serial/cpu_backend.h"
#include "stage0_serial/host_memory.h"
#include "tests/support/tensors.h"

namespace stagegpt::test {
namespace {

constexpr std::int64_t kLength = 16;
const Gpt2Config kConfig{.vocab_size = 101, .block_size = kLength, .n_layer = 2, .n_head = 2, .n_embd = 32};
const TrainerConfig kTraining{
    .batch_size = 3, .grad_accumulation = 2, .schedule = {}, .adamw = {}, .seed = 1};

struct Measured {
  BenchReport report;
  std::vector<std::int64_t> progress;
};

Measured measure(const BenchConfig& config) {
  const std::unique_ptr<Backend> backend = make_cpu_backend(1);
  SelfCommunicator communicator;
  NoGradientSync sync;
  Gpt2 model(*backend, kConfig);
  model.parameters().initialize(1);
  const DataLoader data(random_ids(1, 0, 1000, 101), kLength, 1);
  Trainer trainer(*backend, communicator, sync, model, data, kTraining);
  Measured measured;
  measured.report =
      bench(*backend, trainer, model, {3 * kLength, 2}, config, [&](std::int64_t done, std::int64_t total) {
        EXPECT_EQ(total, config.warmup + config.steps + config.profiled);
        measured.progress.push_back(done);
      });
  return measured;
}

TEST(Bench, times_steps_and_their_bound) {
  const auto [report, progress] = measure({.steps = 4, .warmup = 2, .profiled = 1});
  EXPECT_EQ(report.step_ms.size(), 4);
  EXPECT_EQ(report.products_ms.size(), 4);
  EXPECT_EQ(report.adamw_ms.size(), 4);
  EXPECT_GT(report.products_ms.quantile(0), 0);
  EXPECT_GT(report.adamw_ms.quantile(0), 0);
  EXPECT_GT(report.peak.flops_per_second, 0);
  EXPECT_TRUE(report.peak.name.starts_with("measured GEMM ")) << report.peak.name;
  // A product cannot be faster than multiply-adds that need no memory; a margin for a busy machine.
  ASSERT_TRUE(report.machine);
  EXPECT_GT(report.machine->flops_per_second, 0.5 * report.peak.flops_per_second);
  EXPECT_GT(report.machine->bytes_per_second, 1e8);
  EXPECT_EQ(progress, (std::vector<std::int64_t>{1, 2, 3, 4, 5, 6, 7}));
}

TEST(Bench, has_the_phases_of_its_steps) {
  const auto [report, progress] = measure({.steps = 1, .warmup = 0, .profiled = 1});
  EXPECT_GT(report.phases.forward, 0);
  EXPECT_GT(report.phases.backward, 0);
  EXPECT_LE(1e3 * report.phases.total(), report.step_ms.median());  // the phases are parts of a step
}

// A backend that computes nothing and counts calls of synchronize().
class WaitedFor final : public Backend {
 public:
  WaitedFor() : Backend(std::make_unique<HostMemory>(), nullptr) {}
  void synchronize() override { ++waits; }
  int waits = 0;

 private:
  void do_copy_from_host(void*, const void*, std::size_t) override {}
  void do_copy_to_host(std::span<const HostCopy> copies) override {
    for (const HostCopy& copy : copies) std::ranges::fill(copy.out, std::byte(0));
  }
};

// A device works asynchronously. So the device must be idle when a measurement begins and when it ends.
TEST(Bench, waits_for_the_device_before_and_after_what_it_times) {
  WaitedFor backend;
  SelfCommunicator communicator;
  NoGradientSync sync;
  Gpt2 model(backend, kConfig);
  model.parameters().initialize(1);
  const DataLoader data(random_ids(1, 0, 1000, 101), kLength, 1);
  Trainer trainer(backend, communicator, sync, model, data, kTraining);
  trainer.step();
  const int of_a_step = std::exchange(backend.waits, 0);
  bench(backend, trainer, model, {3 * kLength, 2},
        {.steps = 2, .warmup = 0, .profiled = 0, .peak = Peak{5e9, "a peak"}},
        [](std::int64_t, std::int64_t) {});
  EXPECT_EQ(backend.waits, 2 * (of_a_step + 2 * 3)) << "a step, its products and AdamW are timed";
}

TEST(Bench, measures_no_peak_where_one_is_known) {
  const auto [report, progress] =
      measure({.steps = 1, .warmup = 0, .profiled = 1, .peak = Peak{5e9, "a peak"}});
  EXPECT_EQ(report.peak.flops_per_second, 5e9);
  EXPECT_EQ(report.peak.name, "a peak");
}

TEST(Bench, shows_the_ops_of_one_step) {
  const auto entry = [](const BenchReport& report, const std::string& name) {
    for (const Profiler::Entry& kernel : report.kernels) {
      if (kernel.name == name) return kernel;
    }
    return Profiler::Entry{};
  };
  const auto [report, progress] = measure({.steps = 1, .warmup = 0, .profiled = 3});
  // Two micro-steps of two layers with four linear layers each, and the head.
  EXPECT_EQ(entry(report, "linear_backward").calls, 2 * (2 * 3 + 1));
  EXPECT_EQ(entry(report, "activation_linear_backward").calls, 2 * 2);
  EXPECT_EQ(entry(report, "adamw").calls, 1);
  const auto arena = static_cast<double>(gpt2_parameter_table(kConfig).arena_size(1));
  EXPECT_EQ(entry(report, "squared_norm").work.flops, 2 * arena);
}

TEST(Bench, reports_the_memory_of_a_step_alone) {
  const auto [report, progress] = measure({.steps = 2, .warmup = 0, .profiled = 1});
  EXPECT_EQ(report.peak_bytes, plan_memory({kConfig, kTraining, kLength, 1, NoGradientSync()}).total());
}

}  // namespace
}  // namespace stagegpt::test
