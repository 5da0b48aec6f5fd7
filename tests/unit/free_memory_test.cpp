// Free memory, from made-up files of the kernel; and how ranks share it.
#include "common/system/free_memory.h"

#include <gtest/gtest.h>

#include "common/app/memory_check.h"
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

TEST(MemoryText, HasItsUnit) {
  EXPECT_EQ(memory_text(340.25 * kGibibyte), "340.2 GiB");
  EXPECT_EQ(memory_text(1.5 * kMebibyte), "1.5 MiB");
}

}  // namespace
}  // namespace stagegpt::test
