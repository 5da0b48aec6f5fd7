// Training with its steps in CUDA graphs (--gpu-graph): on the emulator and on a GPU.
#include <gtest/gtest.h>

#include <algorithm>

#include "common/model/kv_cache.h"
#include "stage2_cuda/cuda_backend.h"
#include "stage2_cuda/device_memory_source.h"
#include "stage2_cuda/device_objects.h"
#include "stage2_cuda/repeated_work.h"
#include "stage2_cuda/runtime.h"
#include "tests/support/small_training.h"

namespace stagegpt::test {
namespace {

struct Variant {
  const char* name = "f32";
  DType activations = DType::f32;
  gpu::GpuAttention attention = gpu::GpuAttention::flash;
  Recompute recompute = Recompute::none;
  bool reproducible = false;  // with eight passes in a micro-step
};
std::ostream& operator<<(std::ostream& out, const Variant& variant) { return out << variant.name; }

// Every gradient is clipped, and the learning rate differs from step to step.
TrainerConfig config_of(const Variant& variant) {
  TrainerConfig config =
      variant.reproducible ? small_config(kReproducibleSubBatches, 1) : small_config(2, /*micro-steps*/ 2);
  config.schedule = {.kind = LrSchedule::Kind::cosine, .learning_rate = 1e-2, .warmup_steps = 2, .steps = 6};
  config.adamw.grad_clip = 0.2;
  config.recompute = variant.recompute;
  config.reproducible = variant.reproducible;
  return config;
}

SmallTraining training(bool graph, const Variant& variant = {}) {
  gpu::open_device(0);
  Gpt2Config model = SmallTraining::model_config(/*dropout=*/0.2);
  model.n_layer = 1;
  model.n_head = 2;
  model.n_embd = 16;
  return {gpu::make_cuda_backend({.attention = variant.attention, .graph = graph}), config_of(variant),
          random_tokens(1000), model, variant.activations};
}

void expect_same_step(SmallTraining& a, SmallTraining& b) {
  const StepReport report = a.trainer.step(), expected = b.trainer.step();
  EXPECT_EQ(report.loss, expected.loss) << "step " << report.step;
  EXPECT_EQ(report.grad_norm, expected.grad_norm) << "step " << report.step;
  EXPECT_GT(report.grad_norm, 0.2);
}

void expect_same_arenas(SmallTraining& a, SmallTraining& b) {
  EXPECT_EQ(a.weights() == b.weights(), true);
  EXPECT_EQ(a.grads() == b.grads(), true);
}

class GraphsOf : public testing::TestWithParam<Variant> {};

TEST_P(GraphsOf, HaveTheSameBits) {
  SmallTraining with = training(true, GetParam()), without = training(false, GetParam());
  for (int step = 0; step < 4; ++step) expect_same_step(with, without);
  expect_same_arenas(with, without);
}

constexpr Variant kVariants[] = {
    {},
    {.name = "bf16_recompute_block", .activations = DType::bf16, .recompute = Recompute::block},
    {.name = "materialised_recompute_gelu",
     .attention = gpu::GpuAttention::materialised,
     .recompute = Recompute::gelu},
    {.name = "reproducible", .reproducible = true},
};

INSTANTIATE_TEST_SUITE_P(Stage2, GraphsOf, testing::ValuesIn(kVariants),
                         [](const auto& variant) { return variant.param.name; });

TEST(GraphTraining, HasTheSameBitsTwice) {
  SmallTraining once = training(true), again = training(true);
  for (int step = 0; step < 3; ++step) expect_same_step(once, again);
  expect_same_arenas(once, again);
}

// A graph has one launch, whatever is in it. The first step is done op by op, and the second is recorded.
TEST(GraphTraining, LaunchesGraphsAloneAndAllocatesNothing) {
  SmallTraining run = training(true);
  for (int step = 0; step < 2; ++step) run.trainer.step();
  const DeviceWork before = run.backend->device_work().value();
  run.trainer.step();
  const DeviceWork work = run.backend->device_work().value() - before;
  EXPECT_EQ(work.graphs, 3) << "two micro-steps and an update";
  EXPECT_GT(work.in_graphs, 2 * 20);
  EXPECT_EQ(work.launches(), work.in_graphs);
  EXPECT_EQ(work.allocations, 0);
  EXPECT_EQ(work.waits, 1);
}

// What a graph frees, other tensors may have. As long as they exist, it may not write there.
TEST(GraphTraining, LeavesTheMemoryOfOtherTensorsAlone) {
  SmallTraining with = training(true), without = training(false);
  for (int step = 0; step < 3; ++step) expect_same_step(with, without);
  const std::int64_t allocations = with.backend->memory_stats().source_allocations;
  std::vector<Tensor> others;
  for (std::int64_t bytes = 256; bytes <= 65536; bytes += 256) {
    others.push_back(with.backend->allocate(DType::i32, {bytes / 4}));
    with.backend->fill(others.back(), 12345);
  }
  const std::int64_t new_blocks = with.backend->memory_stats().source_allocations - allocations;
  EXPECT_LT(new_blocks, std::ssize(others)) << "none of the tensors has memory of a graph";
  for (int step = 0; step < 2; ++step) expect_same_step(with, without);
  for (const Tensor& other : others) {
    const auto values = to_host<std::int32_t>(*with.backend, other);
    EXPECT_EQ(std::ranges::count(values, 12345), std::ssize(values)) << other.bytes() << " bytes";
  }
  expect_same_arenas(with, without);
}

// Device memory of 1,024 bytes.
class SmallMemory final : public gpu::DeviceMemorySource {
 public:
  void* allocate(std::size_t bytes) override {
    if (used_ + bytes > 1024) return nullptr;
    used_ += bytes;
    return DeviceMemorySource::allocate(bytes);
  }
  void deallocate(void* block, std::size_t bytes) noexcept override {
    used_ -= bytes;
    DeviceMemorySource::deallocate(block, bytes);
  }

 private:
  std::size_t used_ = 0;
};

// While a graph is recorded, no free block goes back to the source, so that memory may be too little.
TEST(RepeatedWork, ThatFindsTooLittleMemoryIsRecordedLater) {
  gpu::open_device(0);
  const gpu::Stream stream;
  const gpu::DeviceBlock in = gpu::device_block(4), out = gpu::device_block(4);
  CachingAllocator allocator(std::make_unique<SmallMemory>());
  Recording recording;
  int calls = 0;
  float value = 1;
  const auto expect_copy = [&] {
    gpu::copy_to_device(in.get(), &++value, sizeof(value), stream);
    gpu::synchronize(stream);
    gpu::repeat(recording, allocator, stream, [&] {
      ++calls;
      void* const block = allocator.allocate(512);
      gpu::copy_on_device(block, in.get(), sizeof(value), stream);
      gpu::copy_on_device(out.get(), block, sizeof(value), stream);
      allocator.deallocate(block, 512);
    });
    float copied = 0;
    gpu::copy_to_host(&copied, out.get(), sizeof(copied), stream);
    gpu::synchronize(stream);
    EXPECT_EQ(copied, value);
  };
  expect_copy();
  void* const other = allocator.allocate(512);
  allocator.deallocate(allocator.allocate(256), 256);
  expect_copy();
  EXPECT_EQ(recording.recorded, nullptr);
  EXPECT_EQ(calls, 3) << "op by op, a recording without an end, op by op";
  expect_copy();
  EXPECT_NE(recording.recorded, nullptr);
  expect_copy();
  EXPECT_EQ(calls, 4) << "the graph was launched";
  allocator.deallocate(other, 512);
}

// A trace reads every tensor of a pass, which is then done op by op.
TEST(GraphTraining, AWatchedStepChangesNoBit) {
  SmallTraining with = training(true), without = training(false);
  for (int step = 0; step < 4; ++step) {
    int ops = 0;
    const auto watch = [&](std::string_view, std::span<const Var>, std::span<const Var>) { ++ops; };
    const StepReport report = with.trainer.step(step == 2 ? Tape::OpWatch(watch) : Tape::OpWatch());
    EXPECT_EQ(report.loss, without.trainer.step().loss) << "step " << step;
    EXPECT_EQ(ops > 0, step == 2);
  }
  expect_same_arenas(with, without);
}

// A token that is launched as a graph has no op that would check it.
TEST(TokenGraph, RefusesMoreTokensThanTheContext) {
  SmallTraining run = training(true);
  const std::int64_t context = run.model.config().block_size;
  KvCache cache(*run.backend, run.model);
  const std::vector<std::int32_t> token = {1};
  for (std::int64_t i = 0; i < context; ++i) run.model.next_logits(*run.backend, token, cache);
  EXPECT_NE(cache.token_pass().recorded, nullptr);
  EXPECT_THROW(run.model.next_logits(*run.backend, token, cache), InternalError);
  EXPECT_EQ(cache.size(), context);
}

}  // namespace
}  // namespace stagegpt::test
