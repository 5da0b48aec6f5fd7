// The exact messages about memory: of --dry-run, and if there is too little memory for training or for a
// model.
#include "common/app/memory_check.h"

#include <gtest/gtest.h>

#include <cstdio>

#include "common/app/dry_run.h"
#include "common/base/json.h"
#include "common/comm/self_communicator.h"
#include "common/train/memory_plan.h"
#include "tests/support/refusal.h"

namespace stagegpt::test {
namespace {

constexpr std::size_t kMiB = 1 << 20;

// Each of two ranks updates half of the parameters, as with --comm zero1.
class HalfSync final : public NoGradientSync {
 public:
  HalfSync() : NoGradientSync({.communicates = true}) {}
  ArenaParts owned(std::int64_t arena_size) const override { return {{0, arena_size / 2}}; }
};

class MemoryMessages : public testing::Test {
 protected:
  // The memory of a device with `bytes` bytes.
  static TensorMemory device(double bytes) {
    return {.device_bytes = static_cast<std::size_t>(bytes), .on_host = false};
  }
  TrainingMemory training(const TrainerConfig& trainer, const TensorMemory& memory, int ranks = 1) const {
    return {{config_, trainer, 64, ranks, sync_}, memory};
  }
  static TrainerConfig batches(std::int64_t batch_size, std::int64_t grad_accumulation,
                               bool reproducible = false) {
    TrainerConfig trainer;
    trainer.batch_size = batch_size;
    trainer.grad_accumulation = grad_accumulation;
    trainer.reproducible = reproducible;
    trainer.schedule.steps = 100;
    return trainer;
  }
  static TrainerConfig recomputed(TrainerConfig trainer) {
    trainer.recompute = Recompute::block;
    return trainer;
  }
  // The bytes that a training needs on a device: only its tensors.
  double bytes(const TrainerConfig& trainer, int ranks = 1) const {
    return static_cast<double>(plan_memory({config_, trainer, 64, ranks, sync_}).total());
  }
  std::string text(const TrainerConfig& trainer, int ranks = 1) const {
    return memory_text(bytes(trainer, ranks));
  }

  const Gpt2Config config_{.vocab_size = 1000, .block_size = 64, .n_layer = 8, .n_head = 4, .n_embd = 256};
  NoGradientSync sync_;
};

TEST_F(MemoryMessages, ADeviceNeedsItsTensorsAndAHostTheProgramToo) {
  const TensorMemory on_device = device(1), on_host{.host_ranks = 2};
  EXPECT_EQ(needed_memory(on_device, 1000, 24), 1000);
  EXPECT_EQ(needed_memory(on_host, 1000, 24), 1024 + 128.0 * kMiB);
  EXPECT_EQ(needed_memory(on_host, 1000), 1000 + 128.0 * kMiB);
}

TEST_F(MemoryMessages, ATrainingIsToldOfASmallerBatchThatFits) {
  const TrainerConfig whole = batches(12, 3), half = batches(6, 6);
  const TensorMemory memory = device(bytes(half));
  EXPECT_EQ(
      refusal([&] { require_training_memory(training(whole, memory), {}); }),
      concat("--batch-size: training with 12 sequences of 64 tokens takes ", text(whole), ", and ",
             text(half),
             " are available on the device; --batch-size 6 --grad-accumulation 6, the same step, takes ",
             text(half), "; --ignore-memory starts nevertheless"));
  EXPECT_EQ(refusal([&] { require_training_memory(training(half, memory), {}); }), "");
  const TensorMemory less = device(bytes(half) - 1);
  EXPECT_NE(refusal([&] { require_training_memory(training(half, less), {}); }), "");
}

TEST_F(MemoryMessages, AdviceKeepsBatchesThatDivide) {
  // Three sequences cannot be halved. In a reproducible step, eight sequences cannot be halved.
  EXPECT_EQ(advice(training(recomputed(batches(3, 1)), device(0)), bytes(recomputed(batches(1, 1)))),
            "a smaller --batch-size takes less");
  const std::string even =
      concat("even --recompute block --batch-size 8 takes ", text(recomputed(batches(8, 1, true))),
             "; a smaller --model or --block-size takes less");
  EXPECT_EQ(advice(training(batches(16, 1, true), device(0)), 1), even);
  EXPECT_EQ(advice(training(batches(16, 1, true), device(0)), bytes(batches(8, 2, true))),
            concat("--batch-size 8 --grad-accumulation 2, the same step, takes ", text(batches(8, 2, true))));
  // The losses of all micro-steps are stored. With them, the smallest batch may not fit; without them, it
  // would.
  EXPECT_EQ(
      advice(training(recomputed(batches(24, 1, true)), device(0)), bytes(recomputed(batches(8, 1, true)))),
      "a smaller --batch-size takes less");
}

TEST_F(MemoryMessages, ATrainingIsToldOfRecomputation) {
  const auto says = [&](const TrainerConfig& trainer, double available) {
    return advice(training(trainer, device(0)), available);
  };
  // Only where no smaller batch fits.
  const TrainerConfig whole = batches(12, 3), least = batches(3, 12), again = recomputed(batches(12, 3));
  EXPECT_EQ(says(whole, bytes(least)),
            concat("--batch-size 3 --grad-accumulation 12, the same step, takes ", text(least)));
  EXPECT_EQ(says(batches(3, 1), bytes(recomputed(batches(3, 1)))),
            "--recompute block, the same step, takes " + text(recomputed(batches(3, 1))));
  const TrainerConfig half = recomputed(batches(6, 6));
  ASSERT_LT(bytes(half), bytes(least));
  const std::string of_half =
      concat("--batch-size 6 --grad-accumulation 6, the same step, takes ", text(half));
  EXPECT_EQ(says(whole, bytes(half)), "--recompute block " + of_half);
  EXPECT_EQ(says(again, bytes(half)), of_half);
  EXPECT_EQ(says(batches(3, 1), bytes(recomputed(batches(1, 1)))),
            "--recompute block with a smaller --batch-size takes less");
}

TEST_F(MemoryMessages, RanksAreToldOfWhatTheyShare) {
  const TensorMemory memory{.host_ranks = 3, .divides_moments = "--divide them"};
  const TrainingMemory two = training(batches(2, 1), memory, 2);
  const TrainingMemory two_recomputed = training(recomputed(batches(2, 1)), memory, 2);
  const std::string needed = memory_text(needed_memory(two));
  EXPECT_EQ(
      refusal(
          [&] { require_training_memory(two, {.machine = 30.0 * kMiB, .cgroup = {}, .address_space = {}}); }),
      concat(
          "--batch-size: training with 2 sequences of 64 tokens takes ", needed,
          " a rank, and 10.0 MiB are available on this machine, for each of 3 ranks; even --recompute "
          "block --batch-size 2 takes ",
          memory_text(needed_memory(two_recomputed)),
          "; a smaller --model or --block-size takes less, and --divide them, which divides AdamW's moments "
          "among the ranks, and fewer ranks on a node; --ignore-memory starts nevertheless"));
  const std::string smaller = "a smaller --batch-size takes less";
  TensorMemory gpu = device(1);
  const TrainerConfig six = recomputed(batches(6, 1)), least = recomputed(batches(2, 1));
  EXPECT_EQ(advice(training(six, gpu, 2), bytes(least, 2)), smaller);
  gpu.divides_moments = "--divide them";
  EXPECT_EQ(advice(training(six, gpu, 2), bytes(least, 2)),
            smaller + ", and --divide them, which divides AdamW's moments among the ranks");
  HalfSync half;
  EXPECT_EQ(advice({{config_, six, 64, 2, half}, gpu}, 1e12), smaller);
  EXPECT_EQ(
      advice(training(recomputed(batches(24, 1, true)), gpu, 2), bytes(recomputed(batches(8, 1, true)), 2)),
      smaller);
}

TEST_F(MemoryMessages, NameTheTightestLimit) {
  const auto where = [](const FreeMemory& host, int ranks) {
    const auto available = available_memory({.host_ranks = ranks}, host);
    return concat(available->bytes, ' ', available->where);
  };
  EXPECT_EQ(where({.machine = 6, .cgroup = 8, .address_space = 10}, 1), "6 on this machine");
  EXPECT_EQ(where({.machine = 10, .cgroup = 8, .address_space = 10}, 2),
            "4 under the limit of this container or job, for each of 2 ranks");
  EXPECT_EQ(where({.machine = 10, .cgroup = 8, .address_space = 3}, 2), "3 under `ulimit -v`");
  EXPECT_EQ(available_memory(device(7), {.machine = 1, .cgroup = 1, .address_space = 1})->where,
            "on the device");
}

TEST_F(MemoryMessages, AModelThatHasNoRoomToWriteIsToldOfItsMatrices) {
  const auto says = [&](DType matrices, double available = 10.0 * kMiB) {
    return refusal([&] { require_generation_memory(config_, matrices, device(available), {}); });
  };
  const auto takes = [&](DType matrices) {
    return memory_text(static_cast<double>(plan_generation(config_, matrices)));
  };
  const auto needed = static_cast<double>(plan_generation(config_, DType::f32));
  EXPECT_EQ(says(DType::f32, needed), "");
  EXPECT_NE(says(DType::f32, needed - 1), "");
  EXPECT_EQ(says(DType::f32), concat("--model: generation takes ", takes(DType::f32),
                                     ", and 10.0 MiB are available on the device; a smaller model takes "
                                     "less; --ignore-memory starts nevertheless"));
  EXPECT_EQ(says(DType::bf16), concat("--model: generation takes ", takes(DType::bf16),
                                      ", and 10.0 MiB are available on the device; a smaller model, or "
                                      "--weights f32, which needs no second copy while it loads, takes less; "
                                      "--ignore-memory starts nevertheless"));
}

TEST_F(MemoryMessages, AsManyTextsGrowTogetherAsHaveRoom) {
  const auto texts = [&](double available) {
    return texts_that_fit(20, config_, DType::f32, device(available), {});
  };
  const auto needed = static_cast<double>(plan_generation(config_, DType::f32, 5));
  EXPECT_EQ(texts(1e12), 20);
  EXPECT_EQ(texts(needed), 5);
  EXPECT_EQ(texts(needed - 1), 2);
  EXPECT_EQ(texts(1), 1);
}

TEST_F(MemoryMessages, AnEvaluationThatHasNoRoomIsToldOfItsBatch) {
  const auto says = [&](const EvaluationBatch& batch) {
    return refusal(
        [&] { require_evaluation_memory(config_, batch, DType::f32, DType::f32, device(10.0 * kMiB), {}); });
  };
  const auto expected = [&](std::int64_t B, const char* rows, const char* less) {
    return concat("--batch-size: evaluation in batches of ", B, ' ', rows, " of 16 tokens takes ",
                  memory_text(static_cast<double>(plan_evaluation(config_, B, 16, DType::f32))),
                  ", and 10.0 MiB are available on the device; a smaller ", less,
                  "model takes less; --ignore-memory starts nevertheless");
  };
  EXPECT_EQ(says({100, 16, "windows", "--seq-len"}), expected(100, "windows", "--batch-size or "));
  EXPECT_EQ(says({1, 16, "windows", "--seq-len"}), expected(1, "windows", "--seq-len or "));
  EXPECT_EQ(says({1, 16, "endings"}), expected(1, "endings", ""));
  // Before the text or the task has been read: not even the smallest batch has room.
  EXPECT_EQ(says({1, 1}),
            concat("--model: an evaluation takes at least ",
                   memory_text(static_cast<double>(plan_evaluation(config_, 1, 1, DType::f32))),
                   ", and 10.0 MiB are available on the device; a smaller model takes less; --ignore-memory "
                   "starts nevertheless"));
}

TEST_F(MemoryMessages, AGibibyteIsTheFirstInGibibytes) {
  EXPECT_EQ(memory_text(340.25 * 1024 * kMiB), "340.2 GiB");
  EXPECT_EQ(memory_text(1024.0 * kMiB), "1.0 GiB");
  EXPECT_EQ(memory_text(1023.0 * kMiB), "1023.0 MiB");
}

class DryRun : public MemoryMessages {
 protected:
  std::string printed(const TrainingMemory& training, bool json = false) const {
    SelfCommunicator communicator;
    testing::internal::CaptureStdout();
    print_plan(
        training, communicator.group(), [] { return 1e10; }, json);
    std::fflush(stdout);
    return testing::internal::GetCapturedStdout();
  }
  static std::string row(const char* name, double bytes, const std::string& more = "") {
    char text[64];
    std::snprintf(text, sizeof text, "  %-12s%12.1f", name, bytes / static_cast<double>(kMiB));
    return text + more + '\n';
  }
};

TEST_F(DryRun, TellsWhereNothingIsAvailable) {
  const std::string text = printed(training(batches(12, 3), device(0)));
  EXPECT_NE(text.find(row("available", 0, "  on the device") + "fits        no"), std::string::npos) << text;
}

// Parameters: (1000 + 64) · 256 + 8 · (12 · 256² + 13 · 256) + 2 · 256 = 6,590,976.
// Tokens per step: 12 · 3 · 64. FLOPs per token: 6 · 6,590,976 + 6 · 8 · 64 · 256.
TEST_F(DryRun, HasALineForEachFigure) {
  const TrainerConfig trainer = batches(12, 3);
  const TensorMemory memory = device(bytes(trainer));
  const MemoryPlan plan = plan_memory({config_, trainer, 64, 1, sync_});
  const std::string head =
      "parameters  6,590,976\n"
      "tokens      2,304 a step, 230,400 in all\n"
      "FLOPs       4.03e+07 a token, 9.29e+12 in all\n"
      "time        at least 15:29 (min:s): training alone, at the peak of 1e+10 FLOP/s\n";
  const auto rows = [](const MemoryPlan& of) {
    return row("weights", static_cast<double>(of.weights), "  with padding; the parameters alone take 25.1") +
           row("gradients", static_cast<double>(of.gradients)) +
           row("moments", static_cast<double>(of.moments)) +
           row("activations", static_cast<double>(of.activations)) +
           row("total", static_cast<double>(of.total()));
  };
  const auto total = static_cast<double>(plan.total());
  EXPECT_EQ(printed(training(trainer, memory)),
            head + "memory of the process, in MiB\n" + rows(plan) + row("needed", total) +
                row("available", total, "  on the device") + "fits        yes\n");
  const TensorMemory less = device(bytes(batches(6, 6)));
  EXPECT_TRUE(printed(training(trainer, less))
                  .ends_with("\nfits        no; --batch-size 6 --grad-accumulation 6, the same step, takes " +
                             text(batches(6, 6)) + '\n'));
  const TensorMemory unknown{.on_host = false};
  const MemoryPlan of_two = plan_memory({config_, trainer, 64, 2, sync_});
  const double needed = static_cast<double>(of_two.total() + of_two.free_blocks) + 128.0 * kMiB;
  EXPECT_EQ(printed(training(trainer, unknown, 2)),
            head + "memory of each rank, in MiB\n" + rows(of_two) +
                row("needed", needed, "  with the program, an estimate"));
}

TEST_F(DryRun, HasThemAllAsJson) {
  const TrainerConfig trainer = batches(12, 3);
  const TensorMemory memory = device(bytes(trainer) - 1), unknown{.on_host = false};
  const MemoryPlan plan = plan_memory({config_, trainer, 64, 2, sync_});
  Json expected = {{"parameters", 6590976},
                   {"trained_parameters", 6590976},
                   {"tokens_per_step", 2304.0},
                   {"flops_per_token", 40332288.0},
                   {"total_flops", 40332288.0 * 230400},
                   {"peak_flops_per_second", 1e10},
                   {"seconds_at_peak", 40332288.0 * 230400 / 1e10},
                   {"ranks", 2},
                   {"memory_bytes",
                    {{"weights", plan.weights},
                     {"gradients", plan.gradients},
                     {"moments", plan.moments},
                     {"activations", plan.activations},
                     {"total", plan.total()}}},
                   {"needed_bytes", static_cast<double>(plan.total())},
                   {"available_bytes", bytes(trainer) - 1},
                   {"fits", true}};
  EXPECT_EQ(printed(training(trainer, memory, 2), true), expected.dump(2) + '\n');  // half per rank
  const auto of_one = nlohmann::json::parse(printed(training(trainer, memory), true));
  EXPECT_EQ(of_one["ranks"], 1);
  EXPECT_EQ(of_one["fits"], false);
  EXPECT_TRUE(of_one["seconds_at_peak"].is_null());
  const auto of_none = nlohmann::json::parse(printed(training(trainer, unknown), true));
  EXPECT_TRUE(of_none["available_bytes"].is_null());
  EXPECT_TRUE(of_none["fits"].is_null());
}

}  // namespace
}  // namespace stagegpt::test
