// Free memory, from made-up files of the kernel; and how ranks share it.
#include "common/system/free_memory.h"

#include <gtest/gtest.h>

#include "common/app/memory_check.h"
#include "common/base/error.h"
#include "common/model/kv_cache.h"
#include "common/train/memory_plan.h"
#include "tests/support/program.h"

namespace stagegpt::test {
namespace {

constexpr double kMebibyte = 1 << 20, kGibibyte = 1 << 30;

class Cgroups : public testing::Test {
 protected:
  void write(const std::string& group, const std::string& limit_file, const std::string& limit,
             const std::string& usage_file, double usage, const std::string& stat = "") const {
    std::filesystem::create_directories(root_.path() / group);
    root_.write(group + "/" + limit_file, limit + "\n");
    root_.write(group + "/" + usage_file, std::to_string(static_cast<long long>(usage)) + "\n");
    root_.write(group + "/memory.stat", stat);
  }
  void write_v2(const std::string& group, const std::string& limit, double usage,
                const std::string& stat = "") const {
    write(group, "memory.max", limit, "memory.current", usage, stat);
  }
  void write_v1(const std::string& group, const std::string& limit, double usage,
                const std::string& stat = "") const {
    write(group, "memory.limit_in_bytes", limit, "memory.usage_in_bytes", usage, stat);
  }
  std::optional<CgroupMemory> found(const std::string& groups) const {
    return cgroup_memory(root_.path(), groups);
  }

  ScratchDirectory root_;
};

TEST_F(Cgroups, OfVersion2LeaveTheLimitLessWhatIsNoCache) {
  write_v2("job", "1000000", 700000, "anon 5\ninactive_file 150000\nactive_file 50000\n");
  const auto memory = found("0::/job\n");
  ASSERT_TRUE(memory);
  EXPECT_EQ(memory->limit, 1e6);
  EXPECT_EQ(memory->left, 5e5);
  write_v2("job", "1000000", 1200000);
  EXPECT_EQ(found("0::/job\n")->left, 0);
  write_v2("job", "max", 700000);
  EXPECT_FALSE(found("0::/job\n"));
  EXPECT_FALSE(found(""));
}

TEST_F(Cgroups, OfVersion1LeaveTheSame) {
  write_v1("memory/job", "1000000", 700000,
           "inactive_file 1\ntotal_inactive_file 150000\ntotal_active_file 50000\n");
  EXPECT_EQ(found("5:cpu,cpuacct:/other\n4:memory:/job\n")->left, 5e5);
  EXPECT_FALSE(found("5:cpu,cpuacct:/job\n"));
  write_v1("memory/job", "9223372036854771712", 700000);
  EXPECT_FALSE(found("4:memory:/job\n"));
}

TEST_F(Cgroups, LeaveWhatTheTightestOfThoseAroundDoes) {
  write_v2("user", "500000", 100000);
  write_v2("user/job", "1000000", 100000);
  write_v2("user/job/step", "max", 100000);
  EXPECT_EQ(found("0::/user/job/step\n")->left, 4e5);
  // In a container, the group may have another name than outside. Then the limit of the root group counts.
  EXPECT_FALSE(found("0::/nowhere/at/all\n"));
  write_v2(".", "300000", 100000);
  EXPECT_EQ(found("0::/nowhere/at/all\n")->left, 2e5);
}

TEST(Meminfo, HasBytes) {
  const std::string text = "MemTotal:       24683520 kB\nMemFree:        1 kB\nMemAvailable:   23564288 kB\n";
  EXPECT_EQ(meminfo_bytes(text, "MemTotal"), 24683520.0 * 1024);
  EXPECT_EQ(meminfo_bytes(text, "MemAvailable"), 23564288.0 * 1024);
  EXPECT_FALSE(meminfo_bytes(text, "Available"));
  EXPECT_FALSE(meminfo_bytes("", "MemTotal"));
}

TEST(AvailableMemory, IsTheLeastAndSharedByRanks) {
  const FreeMemory host{.machine = 8e9, .cgroup = 6e9, .address_space = 5e9};
  const auto bytes = [&](const TensorMemory& memory) { return available_memory(memory, host)->bytes; };
  EXPECT_EQ(bytes({}), 5e9);
  EXPECT_EQ(bytes({.host_ranks = 2}), 3e9);  // address space is per process
  EXPECT_NE(available_memory({.host_ranks = 2}, host)->where.find("each of 2 ranks"), std::string::npos);
  EXPECT_EQ(available_memory({}, {.machine = 8e9, .cgroup = {}, .address_space = {}})->bytes, 8e9);
  EXPECT_FALSE(available_memory({}, {}));
  // A GPU has its own memory. An emulated GPU uses the host's memory, in a reserved address range.
  EXPECT_EQ(bytes({.device_bytes = 7'000'000'000, .on_host = false, .host_ranks = 4}), 7e9);
  EXPECT_EQ(bytes({.device_bytes = 7'000'000'000}), 6e9);
  EXPECT_EQ(bytes({.device_bytes = 1'000'000'000, .host_ranks = 4}), 1e9);
}

class Needs : public testing::Test {
 protected:
  // The error message if only `available` bytes are available; empty if the training fits.
  std::string refusal(double available, std::int64_t batch_size = 12, int ranks = 1) const {
    TrainerConfig trainer;
    trainer.batch_size = batch_size;
    const TensorMemory memory{.host_ranks = ranks, .divides_moments = "--comm zero1"};
    try {
      require_training_memory({config_, trainer, 64, ranks, sync_, memory},
                              {.machine = available, .cgroup = {}, .address_space = {}});
    } catch (const UserError& error) {
      return error.what();
    }
    return "";
  }
  double needed(std::int64_t batch_size, int ranks = 1, Recompute recompute = Recompute::none) const {
    TrainerConfig trainer;
    trainer.batch_size = batch_size;
    trainer.recompute = recompute;
    const TensorMemory memory;
    return needed_memory(TrainingMemory{config_, trainer, 64, ranks, sync_, memory});
  }

  Gpt2Config config_{.vocab_size = 1000, .block_size = 64, .n_layer = 8, .n_head = 4, .n_embd = 256};
  NoGradientSync sync_;
};

TEST_F(Needs, AreComparedToTheByte) {
  EXPECT_EQ(refusal(needed(12)), "");
  const std::string text = refusal(needed(12) - 1);
  EXPECT_TRUE(text.starts_with("--batch-size: training with 12 sequences of 64 tokens takes ")) << text;
  EXPECT_NE(text.find(memory_text(needed(12))), std::string::npos) << text;
  EXPECT_NE(text.find("are available on this machine; "), std::string::npos) << text;
  EXPECT_NE(text.find("; --ignore-memory starts nevertheless"), std::string::npos) << text;
}

TEST_F(Needs, AreMetByMoreMicroStepsWhereTheyCanBe) {
  constexpr double kLosses = 4096;  // bytes for the losses of more micro-steps
  EXPECT_NE(refusal(needed(6) + kLosses).find("--batch-size 6 --grad-accumulation 2, the same step, takes"),
            std::string::npos);
  EXPECT_NE(refusal(needed(6) - 1).find("--batch-size 3 --grad-accumulation 4"), std::string::npos);
  const double least = needed(1, 1, Recompute::block);
  EXPECT_NE(refusal(least).find("--recompute block with a smaller --batch-size takes less; "),
            std::string::npos);
  EXPECT_NE(refusal(least / 2).find(concat("even --recompute block --batch-size 1 takes ", memory_text(least),
                                           "; a smaller --model or --block-size takes less; ")),
            std::string::npos);
}

TEST_F(Needs, OfManyRanksAreDividedByZero1AndMoreNodes) {
  const std::string text = refusal(2 * needed(2, 2) / 4, 2, 2);
  EXPECT_NE(text.find(" a rank, and "), std::string::npos) << text;
  EXPECT_NE(text.find("--comm zero1"), std::string::npos) << text;
  EXPECT_NE(text.find("fewer ranks on a node"), std::string::npos) << text;
}

TEST_F(Needs, OfAModelThatWritesAreItsWeightsAndItsCache) {
  const auto says = [&](DType matrices, double available) -> std::string {
    try {
      require_generation_memory(config_, matrices, {},
                                {.machine = available, .cgroup = {}, .address_space = {}});
    } catch (const UserError& error) {
      return error.what();
    }
    return "";
  };
  const double bytes = needed_memory(TensorMemory{}, plan_generation(config_, DType::f32));
  EXPECT_EQ(says(DType::f32, bytes), "");
  EXPECT_TRUE(says(DType::f32, bytes - 1).starts_with("--model: generation takes "))
      << says(DType::f32, bytes - 1);
  EXPECT_NE(says(DType::bf16, bytes).find("--weights f32"), std::string::npos);
}

TEST(MemoryText, HasItsUnit) {
  EXPECT_EQ(memory_text(340.25 * kGibibyte), "340.2 GiB");
  EXPECT_EQ(memory_text(1.5 * kMebibyte), "1.5 MiB");
}

}  // namespace
}  // namespace stagegpt::test
