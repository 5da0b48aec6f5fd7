// The facts that doctor reads from this machine, compared with the kernel, the build and other programs.
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include <cstdlib>
#include <fstream>
#include <sstream>

#include "tests/support/program.h"
#include "tools/doctor/build_facts.h"
#include "tools/doctor/disk_and_memory.h"
#include "tools/doctor/gpu.h"
#include "tools/doctor/mpi.h"
#include "tools/doctor/processor.h"

namespace stagegpt::test {
namespace {

namespace fs = std::filesystem;

// Sets an environment variable, and restores its value at the end.
class Variable {
 public:
  Variable(const char* name, const char* value) : name_(name) {
    if (const char* before = std::getenv(name)) before_ = before;
    set(value);
  }
  ~Variable() { set(before_ ? before_->c_str() : nullptr); }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;

 private:
  void set(const char* value) const { value != nullptr ? setenv(name_, value, 1) : unsetenv(name_); }

  const char* name_;
  std::optional<std::string> before_;
};

// The value of a variable in CMakeCache.txt; empty if it is not there.
std::string cached(const std::string& name) {
  std::ifstream lines(fs::path(STAGEGPT_BIN_DIR).parent_path() / "CMakeCache.txt");
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with(name + ':')) return line.substr(line.find('=') + 1);
  }
  return "";
}

TEST(DoctorFacts, of_the_build_are_those_of_cmake) {
  const BuildFacts facts = build_facts();
  EXPECT_EQ(facts.build_type, cached("CMAKE_BUILD_TYPE"));
  EXPECT_EQ(facts.native, cached("STAGEGPT_NATIVE") == "ON");
  EXPECT_EQ(facts.sanitized, cached("STAGEGPT_SANITIZE") == "ON");
  EXPECT_EQ(facts.nvcc.empty(), facts.architectures.empty());
#if defined(__clang__)
  EXPECT_NE(facts.compiler.find("Clang"), std::string::npos) << facts.compiler;
#else
  EXPECT_EQ(facts.compiler, "GCC " __VERSION__);
#endif
}

TEST(DoctorFacts, of_the_processor_are_those_of_the_kernel) {
  const ProcessorFacts facts = processor_facts();
  cpu_set_t ours;
  ASSERT_EQ(sched_getaffinity(0, sizeof ours, &ours), 0);
  EXPECT_EQ(facts.cores, CPU_COUNT(&ours));
  EXPECT_EQ(thread_facts().cores, CPU_COUNT(&ours));
#if defined(__x86_64__)
  const std::string cpuinfo = read_bytes("/proc/cpuinfo");
  EXPECT_NE(cpuinfo.find("\nmodel name\t: " + facts.model + "\n"), std::string::npos) << facts.model;
  const std::string flags =
      cpuinfo.substr(cpuinfo.find("\nflags"), cpuinfo.find('\n', cpuinfo.find("\nflags") + 1)) + ' ';
  ASSERT_EQ(facts.instructions.size(), 3u);
  const char* const names[] = {"avx2", "fma", "avx512f"};
  for (std::size_t i = 0; i < 3; ++i) {
    const InstructionSet& set = facts.instructions[i];
    EXPECT_EQ(set.name, (std::vector<std::string>{"AVX2", "FMA", "AVX-512"})[i]);
    EXPECT_EQ(set.here, flags.find(std::string(" ") + names[i] + ' ') != std::string::npos) << set.name;
  }
#if defined(__AVX2__)  // the test is compiled with doctor's flags
  EXPECT_TRUE(facts.instructions[0].compiled_for);
#else
  EXPECT_FALSE(facts.instructions[0].compiled_for);
#endif
#if defined(__FMA__)
  EXPECT_TRUE(facts.instructions[1].compiled_for);
#else
  EXPECT_FALSE(facts.instructions[1].compiled_for);
#endif
#if defined(__AVX512F__)
  EXPECT_TRUE(facts.instructions[2].compiled_for);
#else
  EXPECT_FALSE(facts.instructions[2].compiled_for);
#endif
#endif
}

TEST(DoctorFacts, of_threads_are_variables_that_are_set) {
  const Variable limit("OMP_THREAD_LIMIT", "6"), policy("OMP_WAIT_POLICY", "active"),
      dynamic("OMP_DYNAMIC", nullptr), bind("OMP_PROC_BIND", "close"), places("OMP_PLACES", nullptr),
      affinity("GOMP_CPU_AFFINITY", nullptr), number("OMP_NUM_THREADS", "3"),
      kernels("OPENBLAS_CORETYPE", nullptr);
  EXPECT_EQ(thread_facts().environment,
            (std::vector<std::pair<std::string, std::string>>{{"OMP_THREAD_LIMIT", "6"},
                                                              {"OMP_WAIT_POLICY", "active"},
                                                              {"OMP_PROC_BIND", "close"},
                                                              {"OMP_NUM_THREADS", "3"}}));
}

TEST(DoctorFacts, of_memory_are_those_of_the_kernel) {
  std::istringstream meminfo(read_bytes("/proc/meminfo"));
  std::string name;
  double kibibytes = 0;
  meminfo >> name >> kibibytes;
  ASSERT_EQ(name, "MemTotal:");
  const MemoryFacts facts = memory_facts();
  EXPECT_EQ(facts.total_bytes, 1024 * kibibytes);
  EXPECT_GT(facts.available_bytes, 0);
  EXPECT_LT(facts.available_bytes,
            facts.limit_bytes ? std::min(*facts.limit_bytes, facts.total_bytes) : facts.total_bytes);
}

// Weights and both moments in f32, for 124,439,808 parameters.
TEST(DoctorFacts, of_a_checkpoint_are_those_of_gpt2) {
  EXPECT_EQ(gpt2_checkpoint_bytes(), 3 * 4 * 124439808.0);
}

TEST(DoctorFacts, of_the_disk_are_those_of_the_file_system) {
  const ScratchDirectory scratch;
  const DiskFacts facts = disk_facts(scratch.path());
  struct statvfs info {};
  ASSERT_EQ(statvfs(scratch.path().c_str(), &info), 0);
  const double free_bytes = static_cast<double>(info.f_bavail) * static_cast<double>(info.f_frsize);
  EXPECT_NEAR(facts.free_bytes, free_bytes, 0.3 * free_bytes);  // other programs may write meanwhile
  EXPECT_EQ(facts.directory, scratch.path());
  EXPECT_TRUE(facts.writable);
  EXPECT_TRUE(fs::is_empty(scratch.path()));  // nothing is left behind
  const DiskFacts nowhere = disk_facts(scratch.path() / "none");
  EXPECT_FALSE(nowhere.writable);
  EXPECT_EQ(nowhere.free_bytes, 0);
}

class DoctorAsks : public testing::Test {
 protected:
  void script(const std::string& name, const std::string& body) const {
    constexpr mode_t kMode = 0755;
    chmod(scratch_.write(name, "#!/bin/sh\n" + body).c_str(), kMode);
  }

  ScratchDirectory scratch_;
  // Only the scripts are in PATH. The permission to run mpirun as root, which tests may have, is removed.
  Variable path_{"PATH", scratch_.path().c_str()};
  Variable root_{"OMPI_ALLOW_RUN_AS_ROOT", nullptr}, confirmed_{"OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", nullptr};
};

TEST_F(DoctorAsks, programs_that_can_be_run) {
  script("stage0_train", "");
  scratch_.write("notes.txt", "");
  fs::create_directory(scratch_.path() / "directory");
  EXPECT_EQ(programs_in(scratch_.path()), std::set<std::string>{"stage0_train"});
}

TEST_F(DoctorAsks, nvidia_smi_for_devices_and_for_the_driver) {
  EXPECT_FALSE(ask_nvidia_smi().has_nvidia_smi);
  script("nvidia-smi",
         "[ \"$*\" = '--query-gpu=name,driver_version,compute_cap,memory.total "
         "--format=csv,noheader,nounits' ] &&\n"
         "  printf 'A, 535.1, 8.6, 49152\\nB, 535.1, 10.3, 1536\\n'\n"
         "[ $# = 0 ] && echo '| CUDA Version: 12.2 |'\n"
         "exit 0\n");
  const GpuFacts facts = ask_nvidia_smi();
  EXPECT_TRUE(facts.has_nvidia_smi);
  EXPECT_EQ(facts.failure, "");
  EXPECT_EQ(facts.driver_supports, (CudaVersion{12, 2}));
  ASSERT_EQ(facts.gpus.size(), 2u);
  EXPECT_EQ(facts.gpus[0].name, "A");
  EXPECT_EQ(facts.gpus[0].gibibytes, 48);
  EXPECT_EQ(facts.gpus[1].driver, "535.1");
  EXPECT_EQ(facts.gpus[1].capability, 103);
  EXPECT_EQ(facts.gpus[1].gibibytes, 1.5);
}

TEST_F(DoctorAsks, nvidia_smi_what_has_failed) {
  script("nvidia-smi", "echo 'no driver'; echo 'more'; echo 'errors' >&2; exit 9");
  EXPECT_EQ(ask_nvidia_smi().failure, "no driver");
  script("nvidia-smi", "echo 'errors' >&2; echo 'more' >&2; exit 9");
  EXPECT_EQ(ask_nvidia_smi().failure, "errors");
  script("nvidia-smi", "exit 9");
  const GpuFacts facts = ask_nvidia_smi();
  EXPECT_EQ(facts.failure, "nvidia-smi: exit code 9");
  EXPECT_TRUE(facts.gpus.empty());
  EXPECT_FALSE(facts.driver_supports);
}

// A fake mpirun that refuses root unless both variables allow it. doctor sets them, except where it tests for
// the refusal (`mpirun true`).
constexpr const char* kMpirun =
    "allowed=$OMPI_ALLOW_RUN_AS_ROOT$OMPI_ALLOW_RUN_AS_ROOT_CONFIRM\n"
    "[ \"$*\" = true ] && [ \"$allowed\" = '' ] && { echo 'attempt to run as root' >&2; exit 1; }\n"
    "[ \"$allowed\" = 11 ] || exit 3\n"
    "case \"$*\" in --version) echo 'mpirun (Open MPI) 4.1.4' ;; 'sh -c echo slot') printf "
    "'slot\\nslot\\nslot\\n' ;; "
    "*) exit 4 ;; esac\n";

TEST_F(DoctorAsks, mpirun_for_all_that_it_tells) {
  EXPECT_FALSE(ask_mpirun().version);
  script("mpirun", kMpirun);
  const MpiFacts facts = ask_mpirun();
  EXPECT_EQ(facts.version, "Open MPI 4.1.4");
  EXPECT_EQ(facts.failure, "");
  EXPECT_TRUE(facts.refuses_root);
  EXPECT_EQ(facts.slots, 3);
  EXPECT_FALSE(facts.cuda_aware);
  script("ompi_info", "[ \"$*\" = '--parsable --all' ] && echo mca:mpi_built_with_cuda_support:value:true");
  EXPECT_EQ(ask_mpirun().cuda_aware, true);
}

TEST_F(DoctorAsks, mpirun_that_starts_nothing) {
  script("mpirun",
         "[ \"$1\" = --version ] && echo 'mpirun (Open MPI) 5.0.1' || { echo 'no slots' >&2; exit 1; }");
  const MpiFacts facts = ask_mpirun();
  EXPECT_EQ(facts.version, "Open MPI 5.0.1");
  EXPECT_FALSE(facts.refuses_root);
  EXPECT_FALSE(facts.slots);
  // This mpirun only prints a warning about root, and still starts programs.
  script("mpirun",
         "echo 'you run as root' >&2; [ \"$1\" = --version ] && echo 'mpirun (Open MPI) 5.0.1'; exit 0");
  EXPECT_FALSE(ask_mpirun().refuses_root);
  EXPECT_EQ(ask_mpirun().slots, 0);
}

TEST_F(DoctorAsks, mpirun_of_another_make_for_its_version_alone) {
  script("mpirun", "[ \"$*\" = --version ] && echo 'HYDRA build details:' || echo slot");
  const MpiFacts facts = ask_mpirun();
  EXPECT_EQ(facts.version, "HYDRA build details:");
  EXPECT_FALSE(facts.slots);
}

TEST_F(DoctorAsks, mpirun_what_has_failed) {
  script("mpirun", "echo 'first' >&2; echo 'no libmpi' >&2; exit 5");
  EXPECT_EQ(ask_mpirun().failure, "no libmpi");
  script("mpirun", "exit 5");
  EXPECT_EQ(ask_mpirun().failure, "exit code 5");
}

}  // namespace
}  // namespace stagegpt::test
