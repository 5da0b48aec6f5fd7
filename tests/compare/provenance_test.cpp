// The machine and source in a report, compared with the system's own output and that of two scripts.
#include "tools/compare/provenance.h"

#include <sched.h>
#include <sys/utsname.h>

#include <chrono>
#include <fstream>
#include <thread>

#include "common/base/json.h"
#include "common/system/system_files.h"
#include "tests/compare/fake_stages.h"

namespace stagegpt::compare::test {
namespace {

using ProvenanceTest = FakeStages;

TEST_F(ProvenanceTest, NamesTheCommitAndWhetherFilesAreChanged) {
  EXPECT_EQ(find_provenance("", {.commit = "abc123", .changed = true})["source"].dump(),
            R"({"commit":"abc123","changed":true})");
  EXPECT_EQ(find_provenance("", {.commit = "abc123"})["source"].dump(),
            R"({"commit":"abc123","changed":false})");
  EXPECT_EQ(find_provenance("", {})["source"].dump(), R"({"commit":null,"changed":null})");
}

TEST_F(ProvenanceTest, NamesGpusAndTheirDriver) {
  script("nvidia-smi",
         "if [ \"$*\" = -q ]; then printf 'Driver : 1\\nCUDA Version                  : 12.9\\n'; exit; fi\n"
         "[ \"$*\" = '--query-gpu=name,memory.total,driver_version --format=csv,noheader' ] || exit 1\n"
         "echo 'A GPU, 8 MiB, 1.2'; echo 'Another, 9 MiB, 1.2'");
  const Json provenance = find_provenance("mpirun 1", {});
  EXPECT_EQ(provenance["machine"]["gpus"], "A GPU, 8 MiB, 1.2; Another, 9 MiB, 1.2");
  EXPECT_EQ(provenance["libraries"]["mpi"], "mpirun 1");
  EXPECT_EQ(provenance["libraries"]["cuda_of_driver"], "12.9");
  script("nvidia-smi", "exit 9");
  const Json without = find_provenance("", {});
  EXPECT_TRUE(without["machine"]["gpus"].is_null());
  EXPECT_TRUE(without["libraries"]["cuda_of_driver"].is_null());
  EXPECT_TRUE(without["libraries"]["mpi"].is_null());
}

// Converts "2026-01-02T03:04:05Z" to seconds since 1970.
std::time_t seconds_of(const std::string& date) {
  std::tm utc{};
  EXPECT_NE(strptime(date.c_str(), "%Y-%m-%dT%H:%M:%SZ", &utc), nullptr) << date;
  return timegm(&utc);
}

TEST_F(ProvenanceTest, KnowsItsMachine) {
  // The clock of time() advances a few milliseconds later than system_clock, which the report uses.
  const auto clock = [] { return std::chrono::system_clock::to_time_t(std::chrono::system_clock::now()); };
  const std::time_t before = clock();
  const Json provenance = find_provenance("", {});
  EXPECT_GE(seconds_of(provenance["date"]), before);
  EXPECT_LE(seconds_of(provenance["date"]), clock());
  const Json& machine = provenance["machine"];
  EXPECT_EQ(machine["cores_online"], std::thread::hardware_concurrency());
  EXPECT_EQ(machine["cores_usable"], usable_cores());
  std::string word;
  std::int64_t kibibytes = 0;
  std::ifstream("/proc/meminfo") >> word >> kibibytes;  // the first line is MemTotal
  EXPECT_EQ(machine["memory_bytes"], 1024 * kibibytes);
  std::ifstream cpuinfo("/proc/cpuinfo");
  const std::string cpu{std::istreambuf_iterator<char>(cpuinfo), {}};
  if (!value_of(cpu, "cpu family").empty()) {
    EXPECT_EQ(machine["processor"], value_of(cpu, "model name") + " (family " + value_of(cpu, "cpu family") +
                                        " model " + value_of(cpu, "model") + ")");
  }
  utsname name{};
  ASSERT_EQ(uname(&name), 0);
  EXPECT_EQ(provenance["system"]["kernel"], concat(name.sysname, " ", name.release, " ", name.machine));
  std::ifstream release("/etc/os-release");
  const std::string os{std::istreambuf_iterator<char>(release), {}};
  EXPECT_EQ(provenance["system"]["system"], value_of(os, "PRETTY_NAME"));
  std::vector<std::string> keys;
  for (const auto& [key, value] : provenance["build"].items()) {
    keys.push_back(key);
    EXPECT_TRUE(value.is_string()) << key;
  }
  EXPECT_EQ(keys, (std::vector<std::string>{"compiler", "flags", "build_type"}));
}

TEST(UsableCores, AreThoseOfTheProcess) {
  cpu_set_t before, one;
  ASSERT_EQ(sched_getaffinity(0, sizeof before, &before), 0);
  EXPECT_EQ(usable_cores(), CPU_COUNT(&before));
  int first = 0;
  while (!CPU_ISSET(first, &before)) ++first;
  CPU_ZERO(&one);
  CPU_SET(first, &one);
  ASSERT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
  EXPECT_EQ(usable_cores(), 1);
  sched_setaffinity(0, sizeof before, &before);
}

TEST(ValueOf, IsThatOfTheFirstLineWithTheKey) {
  EXPECT_EQ(value_of("a: 1\na: 2\n", "a"), "1");
  EXPECT_EQ(value_of("ab: 1\n a = 2 \n", "a"), "");  // no space before it
  EXPECT_EQ(value_of("a\t : \"x: y=z\"\r\n", "a"), "x: y=z");
  EXPECT_EQ(value_of("a=1", "a"), "1");
  EXPECT_EQ(value_of("a:", "a"), "");
  EXPECT_EQ(value_of("a: \" \"", "a"), "");
  EXPECT_EQ(value_of(": 1", ""), "");
  EXPECT_EQ(value_of("a 1", "a"), "");
  EXPECT_EQ(value_of("a\nb: 1", "a"), "");  // a line without a separator
  EXPECT_EQ(value_of("a: x", "a"), "x");
}

}  // namespace
}  // namespace stagegpt::compare::test
