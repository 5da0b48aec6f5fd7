// The memory plan is compared with the memory of real steps. Planning itself allocates no memory.
#include "common/train/memory_plan.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>

#include "common/backend/ops/elementwise.h"
#include "common/backend/planning_backend.h"
#include "common/comm/self_communicator.h"
#include "common/model/flops.h"
#include "common/model/kv_cache.h"
#include "common/model/presets.h"
#include "common/train/evaluate.h"
#include "stage0_serial/cpu_backend.h"
#include "tests/support/tensors.h"

namespace stagegpt::test {
namespace {

struct Training {
  const char* name;
  Gpt2Config config;
  std::int64_t T = 0, batch_size = 1, grad_accumulation = 1;
  Recompute recompute = Recompute::none;

  TrainerConfig trainer() const {
    TrainerConfig trainer;
    trainer.batch_size = batch_size;
    trainer.grad_accumulation = grad_accumulation;
    trainer.recompute = recompute;
    return trainer;
  }
};

const Gpt2Config& preset(std::string_view name) {
  return std::ranges::find(presets(), name, &Preset::name)->config;
}

Gpt2Config small() { return {.vocab_size = 101, .block_size = 40, .n_layer = 2, .n_head = 3, .n_embd = 96}; }

Gpt2Config small_with(double dropout, Activation activation) {
  Gpt2Config config = small();
  config.dropout = dropout;
  config.activation = activation;
  return config;
}

Gpt2Config untied_small() {
  Gpt2Config config = small();
  config.n_inner = 31;
  config.tie_word_embeddings = false;
  return config;
}

Gpt2Config small_with_frozen(const std::vector<std::string>& patterns) {
  Gpt2Config config = small();
  config.frozen = patterns;
  return config;
}

MemoryPlan plan(const Training& training, int ranks = 1) {
  return plan_memory({training.config, training.trainer(), training.T, ranks, NoGradientSync()});
}

// The memory statistics of the CPU backend after two steps. The arenas are laid out for `ranks` ranks.
MemoryStats real_stats(const Training& training, bool fused = true, int ranks = 1) {
  const std::unique_ptr<Backend> backend = make_cpu_backend(2);
  backend->set_fused(fused);
  Gpt2 model(*backend, training.config, DType::f32, ranks);
  model.parameters().initialize(1);
  const auto vocab_size = static_cast<std::int32_t>(training.config.vocab_size);
  const DataLoader data(random_ids(1, 0, 3 * training.T + 1, vocab_size), training.T, 1);
  SelfCommunicator communicator;
  NoGradientSync sync;
  Trainer trainer(*backend, communicator, sync, model, data, training.trainer());
  for (int step = 0; step < 2; ++step) trainer.step();
  return backend->memory_stats();
}

std::size_t real_peak(const Training& training, bool fused, int ranks = 1) {
  return real_stats(training, fused, ranks).peak_bytes_in_use;
}

const std::vector<Training>& trainings() {
  static const std::vector<Training> trainings = {
      {"nano", preset("nano"), 128, 8},
      {"nano, a short sequence", preset("nano"), 17, 1},
      {"one layer, one head",
       {.vocab_size = 37, .block_size = 20, .n_layer = 1, .n_head = 1, .n_embd = 48},
       20,
       3},
      {"one of everything", {.vocab_size = 1, .block_size = 1, .n_layer = 1, .n_head = 1, .n_embd = 1}, 1, 1},
      {"odd sizes", {.vocab_size = 1001, .block_size = 67, .n_layer = 3, .n_head = 3, .n_embd = 192}, 61, 5},
      {"dropout", small_with(0.1, Activation::gelu_new), 33, 3},
      {"relu", small_with(0, Activation::relu), 33, 3},
      {"gelu", small_with(0, Activation::gelu), 33, 3},
      {"an untied head and another width of the MLP", untied_small(), 33, 3},
      {"frozen matrices", small_with_frozen({"wte*", "*.mlp.c_fc.*"}), 33, 3},
      {"a frozen first block", small_with_frozen({"wte*", "wpe*", "h.0.*"}), 33, 3},
      {"two micro-steps", small(), 33, 3, 2},
      {"three micro-steps and dropout", small_with(0.1, Activation::gelu_new), 33, 3, 3},
      {"seven micro-steps", small(), 33, 3, 7},
      {"a hundred micro-steps",
       {.vocab_size = 1, .block_size = 1, .n_layer = 1, .n_head = 1, .n_embd = 1},
       1,
       1,
       100},
      {"nano, activations recomputed", preset("nano"), 128, 8, 1, Recompute::gelu},
      {"nano, blocks recomputed", preset("nano"), 128, 8, 1, Recompute::block},
      {"dropout, activations recomputed", small_with(0.1, Activation::gelu_new), 33, 3, 2, Recompute::gelu},
      {"dropout, blocks recomputed", small_with(0.1, Activation::gelu_new), 33, 3, 2, Recompute::block},
      {"untied, blocks recomputed", untied_small(), 33, 3, 1, Recompute::block},
      {"a frozen first block, recomputed", small_with_frozen({"wte*", "wpe*", "h.0.*"}), 33, 3, 1,
       Recompute::block},
  };
  return trainings;
}

TEST(MemoryPlan, is_what_two_real_steps_take_to_the_byte_fused_or_not) {
  for (const Training& training : trainings()) {
    const MemoryPlan planned = plan(training);
    const MemoryStats real = real_stats(training);
    EXPECT_EQ(planned.total(), real.peak_bytes_in_use) << training.name;
    EXPECT_EQ(planned.total() + planned.free_blocks, real.bytes_reserved) << training.name;
    EXPECT_EQ(planned.total(), real_peak(training, false)) << training.name << ", not fused";
  }
}

// What one more block adds to the activations. Between blocks there are the residual stream and the output of
// the branch that is still to be added to it (B,T,C). Inside, there are qkv, the outputs of attention and of
// its projection, x and its layernorm after the first branch, the output of the second one, 4C channels
// before and after the activation, and in f32 for each token two pairs of mean and 1/σ and a logarithm for
// each head.
TEST(MemoryPlan, of_recomputation_keeps_what_it_says_of_each_block) {
  const std::int64_t B = 4, T = 64, C = 256, NH = 4;
  const auto of_a_block = [&](Recompute recompute) {
    Training training = {
        "layers", {.vocab_size = 101, .block_size = T, .n_layer = 8, .n_head = NH, .n_embd = C}, T, B, 1,
        recompute};
    const std::size_t less = plan(training).activations;
    ++training.config.n_layer;
    return static_cast<std::int64_t>(plan(training).activations - less) /
           (B * T * std::int64_t{sizeof(float)});
  };
  const std::int64_t whole = of_a_block(Recompute::none);
  EXPECT_EQ(of_a_block(Recompute::block), 2 * C);
  EXPECT_EQ(of_a_block(Recompute::gelu), whole - 4 * C);
  EXPECT_GE(whole, (3 + 1 + 2 + 2 + 2 * 4) * C + 2 * 2 + NH);
  EXPECT_LE(whole, (3 + 1 + 1 + 2 + 1 + 2 + 2 * 4) * C + 2 * 2 + NH);
}

TEST(MemoryPlan, of_one_rank_is_that_of_its_share_of_the_batch) {
  Training training = {"small", small(), 33, 12, 2};
  const MemoryPlan quarter = plan(training, 4);
  EXPECT_LT(quarter.activations, plan(training).activations);
  training.batch_size = 3;
  EXPECT_EQ(quarter.total(), real_peak(training, true, 4));
}

TEST(MemoryPlan, refuses_a_batch_that_does_not_divide_among_the_ranks) {
  EXPECT_THROW(plan({"small", small(), 33, 7}, 2), UserError);
}

TEST(MemoryPlan, names_the_arenas) {
  const Training training = {"gpt2", preset("gpt2"), 64, 4};
  const std::int64_t elements = gpt2_parameter_table(training.config).arena_size(1);
  const auto arena = static_cast<std::size_t>(elements) * sizeof(float);
  const MemoryPlan gpt2 = plan(training);
  EXPECT_GE(gpt2.weights, arena);
  EXPECT_LE(gpt2.weights, arena + arena / 8);  // the allocator rounds up
  EXPECT_EQ(gpt2.gradients, gpt2.weights);
  // A block of 256 bytes each for the norm and for the rates of AdamW.
  EXPECT_EQ(gpt2.moments, 2 * gpt2.weights + 2 * 256);
  // At least two tensors (T,4C) per layer around the activation, and the logits.
  const std::int64_t saved = training.batch_size * training.T * (12 * 2 * 4 * 768 + 50304);
  EXPECT_GT(gpt2.activations, static_cast<std::size_t>(saved) * sizeof(float));
  EXPECT_EQ(gpt2.total(), gpt2.weights + gpt2.gradients + gpt2.moments + gpt2.activations);
}

TEST(MemoryPlan, grows_with_the_batch_and_only_in_activations) {
  Training training = {"small", small(), 33, 1};
  MemoryPlan before = plan(training);
  for (training.batch_size = 2; training.batch_size <= 1024; training.batch_size *= 2) {
    const MemoryPlan after = plan(training);
    EXPECT_GT(after.activations, before.activations) << training.batch_size;
    EXPECT_EQ(after.weights, before.weights) << training.batch_size;
    EXPECT_EQ(after.moments, before.moments) << training.batch_size;
    before = after;
  }
}

std::int64_t peak_kib_of_this_process() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_maxrss;
}

TEST(MemoryPlan, of_hundreds_of_gigabytes_takes_no_memory_itself) {
  const std::int64_t before = peak_kib_of_this_process();
  const MemoryPlan xl = plan({"gpt2-xl", preset("gpt2-xl"), 1024, 64, 1 << 20});
  EXPECT_GT(xl.total(), std::size_t{300} << 30);
  EXPECT_LT(xl.total(), std::size_t{600} << 30);
  EXPECT_LT(peak_kib_of_this_process() - before, 64 << 10);
}

TEST(MemoryPlan, of_a_huge_batch_grows_as_that_of_a_large_one) {
  const Gpt2Config config{.vocab_size = 101, .block_size = 1024, .n_layer = 1, .n_head = 1, .n_embd = 8};
  // The plan for 2²³ tokens is computed directly; the plan for 40 times as many is extrapolated from fewer.
  const MemoryPlan large = plan({"large", config, 1024, 1 << 13}),
                   huge = plan({"huge", config, 1024, 40 << 13});
  const auto times = [&](std::size_t MemoryPlan::*part) {
    return static_cast<double>(huge.*part) / static_cast<double>(large.*part);
  };
  EXPECT_NEAR(times(&MemoryPlan::activations), 40, 0.4);
  EXPECT_NEAR(times(&MemoryPlan::free_blocks), 40, 0.4) << large.free_blocks << ' ' << huge.free_blocks;
}

TEST(MemoryPlan, of_writing_is_what_a_first_token_or_the_longest_prompts_take_to_the_byte) {
  for (const auto& [matrices, texts] : {std::pair(DType::f32, 1), {DType::bf16, 1}, {DType::i8, 3}}) {
    const std::unique_ptr<Backend> backend = make_cpu_backend(2);
    Gpt2 model(*backend, small(), DType::f32, 1, Purpose::inference);
    model.parameters().initialize(1);
    if (matrices != DType::f32) model.narrow_matrices(matrices);
    KvCache cache(*backend, model, texts);
    const std::int64_t T = texts == 1 ? 1 : small().block_size;
    model.next_logits(*backend, std::vector<std::int32_t>(static_cast<std::size_t>(texts * T), 3), cache);
    EXPECT_EQ(plan_generation(small(), matrices, texts), backend->memory_stats().peak_bytes_in_use);
  }
}

TEST(MemoryPlan, is_what_an_evaluation_allocates) {
  for (const auto& [B, T] : {std::pair<std::int64_t, std::int64_t>{1, 16}, {5, 7}}) {
    const auto backend = make_cpu_backend(1);
    Gpt2 model(*backend, small(), DType::f32, 1, Purpose::inference);
    model.parameters().initialize(1);
    SingleProcess group;
    evaluate(group, *backend, model, TokenSequence(std::vector<std::int32_t>(100, 3)),
             strided_windows(100, T, T), {.batch_size = B});
    EXPECT_EQ(plan_evaluation(small(), B, T, DType::f32), backend->memory_stats().peak_bytes_in_use);
  }
}

// A limit on the address space must not limit the plan, because plans are compared with such limits.
TEST(MemoryPlan, needs_no_addresses_of_the_system) {
  const auto planned_under_a_limit = [] {
    constexpr rlim_t kBytes = rlim_t{64} << 30;
    const rlimit limit{kBytes, kBytes};
    const Training large = {"gpt2-xl", preset("gpt2-xl"), 1024, 64};
    setrlimit(RLIMIT_AS, &limit);
    std::_Exit(plan(large).total() > std::size_t{300} << 30 ? 0 : 1);
  };
  EXPECT_EXIT(planned_under_a_limit(), testing::ExitedWithCode(0), "");
}

TEST(PlanningBackend, reads_zeros_and_has_no_memory_to_touch) {
  const std::unique_ptr<Backend> backend = make_planning_backend();
  std::vector<float> values = {1, 2, 3};
  const Tensor x = to_device<float>(*backend, {3}, values);
  backend->copy_to_host(std::as_writable_bytes(std::span(values)), x);
  EXPECT_EQ(values, (std::vector<float>{0, 0, 0}));
  EXPECT_DEATH(*x.data<float>() = 1, "");
  EXPECT_DEATH(static_cast<void>(*const_cast<volatile float*>(x.data<float>())), "");
}

TEST(PlanningBackend, gives_each_address_once) {
  const std::unique_ptr<Backend> backend = make_planning_backend();
  const Tensor first = backend->allocate(DType::f32, {std::int64_t{1} << 28}),
               second = backend->allocate(DType::f32, {std::int64_t{1} << 29});
  const auto begin = [](const Tensor& tensor) { return reinterpret_cast<std::uintptr_t>(tensor.raw()); };
  EXPECT_TRUE(begin(first) + first.bytes() <= begin(second) ||
              begin(second) + second.bytes() <= begin(first));
}

TEST(PlanningBackend, checks_arguments_like_every_backend) {
  const std::unique_ptr<Backend> backend = make_planning_backend();
  const Tensor x = backend->zeros(DType::f32, {4}), y = backend->zeros(DType::f32, {5});
  EXPECT_THROW(backend->run(Add{x, x, y}), InternalError);
}

TEST(Flops, are_six_for_each_weight_and_for_each_score_of_causal_attention) {
  const Gpt2Config config = small();  // L = 2, C = 96
  EXPECT_EQ(flops_per_token(config, 1000, 33), 6.0 * 1000 + 6.0 * 2 * 96 * 33);
  EXPECT_EQ(step_flops(config, 1000, 5, 33), 5 * flops_per_token(config, 1000, 33));
  const double full = flops_per_token(config, 1000, 33, AttentionFlops::full);
  EXPECT_EQ(full, 6.0 * 1000 + 12.0 * 2 * 96 * 33);
  EXPECT_EQ(step_flops(config, 1000, 5, 33, AttentionFlops::full), 5 * full);
  // 101 rows of wte are looked up, not multiplied.
  EXPECT_EQ(flops_per_token(untied_small(), 10000, 33), 6.0 * (10000 - 101 * 96) + 6.0 * 2 * 96 * 33);
}

}  // namespace
}  // namespace stagegpt::test
