// The findings of doctor, for made-up facts.
#include <gtest/gtest.h>

#include "common/system/system_files.h"
#include "tools/doctor/build_facts.h"
#include "tools/doctor/disk_and_memory.h"
#include "tools/doctor/gpu.h"
#include "tools/doctor/mpi.h"
#include "tools/doctor/processor.h"

namespace stagegpt::test {
namespace {

using Mark = Finding::Mark;

constexpr const char* kH100 = "NVIDIA H100 80GB HBM3, 550.54.15, 9.0, 81559\n";
constexpr const char* kTable =
    "Sun Nov 22 04:00:00 2026\n"
    "+-----------------------------------------------------------------------------------------+\n"
    "| NVIDIA-SMI 550.54.15              Driver Version: 550.54.15      CUDA Version: 12.4     |\n"
    "|-----------------------------------------+------------------------+----------------------+\n";

const Finding& of(const Findings& findings, const std::string& subject) {
  static const Finding none{"none", Mark::ok, ""};
  for (const Finding& finding : findings) {
    if (finding.subject == subject) return finding;
  }
  ADD_FAILURE() << "nothing found about " << subject;
  return none;
}

// Expects a finding with this mark whose text and advice contain `found` and `advice`.
void expect(const Finding& finding, Mark mark, const std::string& found, const std::string& advice = "") {
  EXPECT_EQ(finding.mark, mark) << finding.subject << ": " << finding.found;
  EXPECT_NE(finding.found.find(found), std::string::npos) << finding.found;
  EXPECT_NE(finding.advice.find(advice), std::string::npos) << finding.advice;
  EXPECT_EQ(finding.advice.empty(), mark == Mark::ok) << finding.advice;
}

BuildFacts built_with(const std::string& nvcc, std::vector<std::string> architectures = {"80-real", "90"}) {
  return {.compiler = "GCC 12.2.0",
          .build_type = "Release",
          .nvcc = nvcc,
          .architectures = nvcc.empty() ? std::vector<std::string>{} : std::move(architectures)};
}

GpuFacts gpus(const std::string& csv, const std::string& table = kTable) {
  return {.has_nvidia_smi = true, .gpus = parse_gpus(csv), .driver_supports = parse_driver_support(table)};
}

TEST(DoctorOfTheBuild, TellsOfBuildsThatAreSlow) {
  expect(judge_build(built_with("12.4.131")), Mark::ok, "GCC 12.2.0, Release");
  BuildFacts build = built_with("");
  build.build_type = "Debug";
  expect(judge_build(build), Mark::note, "Debug", "--preset release");
  build.sanitized = true;
  expect(judge_build(build), Mark::note, "sanitizers", "--preset release");
}

TEST(DoctorOfTheProcessor, ReadsFilesOfTheKernel) {
  EXPECT_EQ(parse_processor_model("processor\t: 0\nmodel name\t: AMD EPYC\nflags\t: fpu\n"), "AMD EPYC");
  EXPECT_EQ(parse_processor_model(""), "");
  EXPECT_EQ(parse_cpu_quota("150000 100000\n"), 1.5);
  for (const char* none : {"max 100000\n", "", "-1 100000", "200000"})
    EXPECT_FALSE(parse_cpu_quota(none)) << none;
}

TEST(DoctorOfTheProcessor, TellsWhatAContainerMayUse) {
  expect(judge_processor({.model = "AMD EPYC", .cores = 4}).front(), Mark::ok, "4 cores, AMD EPYC");
  expect(judge_processor({.model = "", .cores = 4, .quota = 1.5}).front(), Mark::note, "1.5", "--threads 1");
  expect(judge_processor({.model = "", .cores = 4, .quota = 4.0}).front(), Mark::ok, "4 cores");
}

TEST(DoctorOfTheProcessor, KnowsProgramsThatWereBuiltElsewhere) {
  const auto judged = [](InstructionSet set) {
    return of(judge_processor({.model = "", .instructions = {{"AVX2", true, true}, std::move(set)}}),
              "instructions");
  };
  const Finding lacking = judged({"AVX-512", true, false});
  expect(lacking, Mark::problem, "AVX-512, which this processor lacks", "build on this one");
  EXPECT_TRUE(lacking.prevents_stage0);
  expect(judged({"AVX-512", false, true}), Mark::note, "which the programs do not use", "build on this one");
  expect(judged({"AVX-512", true, true}), Mark::ok, "AVX2, AVX-512");
  expect(judged({"AVX-512", false, false}), Mark::ok, "AVX2");
}

TEST(DoctorOfThreads, KnowsVariablesThatChangeThem) {
  expect(judge_threads({.cores = 8}), Mark::ok, "8 threads");
  expect(judge_threads({.cores = 8, .limit = 4, .environment = {{"OMP_THREAD_LIMIT", "4"}}}), Mark::note,
         "OMP_THREAD_LIMIT=4", "unset OMP_THREAD_LIMIT");
  expect(judge_threads({.cores = 8, .environment = {{"OMP_WAIT_POLICY", "passive"}}}), Mark::note, "passive",
         "unset OMP_WAIT_POLICY");
  expect(judge_threads({.cores = 8, .environment = {{"OMP_WAIT_POLICY", "active"}}}), Mark::ok, "active");
  expect(judge_threads({.cores = 8, .environment = {{"OMP_WAIT_POLICY", "ACTIVE"}}}), Mark::ok, "ACTIVE");
  expect(judge_threads({.cores = 8, .environment = {{"OMP_NUM_THREADS", "2"}}}), Mark::note,
         "OMP_NUM_THREADS=2", "--threads");
  expect(judge_threads({.cores = 8, .environment = {{"OMP_PROC_BIND", "true"}}}), Mark::ok,
         "OMP_PROC_BIND=true");
}

TEST(DoctorOfThreads, KnowsWhatNeedsBlas) {
  expect(judge_blas(true, "OpenBLAS 0.3.21 Haswell"), Mark::ok, "OpenBLAS 0.3.21 Haswell");
  const Finding missing = judge_blas(false, "OpenBLAS cannot be loaded");
  expect(missing, Mark::note, "cannot be loaded", "--cpu-matmul blas");
  EXPECT_FALSE(missing.prevents_stage0);
}

TEST(DoctorOfGpus, ReadsWhatNvidiaSmiPrints) {
  const std::vector<Gpu> found = parse_gpus(std::string(kH100) + "Tesla V100, 535.1, 7.0, 32510\n");
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[0].name, "NVIDIA H100 80GB HBM3");
  EXPECT_EQ(found[0].driver, "550.54.15");
  EXPECT_EQ(found[0].capability, 90);
  EXPECT_NEAR(found[0].gibibytes, 79.6, 0.1);
  EXPECT_EQ(found[1].capability, 70);
  EXPECT_EQ(parse_gpus("NVIDIA B300, 580.1, 10.3, 100\n").front().capability, 103);
  EXPECT_TRUE(parse_gpus("No devices were found\n").empty());
  EXPECT_TRUE(parse_gpus("").empty());
  EXPECT_EQ(parse_driver_support(kTable), (CudaVersion{12, 4}));
  EXPECT_EQ(parse_driver_support("| NVIDIA-SMI 590.1   KMD Version: 590.1   CUDA UMD Version: 13.1 |"),
            (CudaVersion{13, 1}));
  for (const char* none : {"", "CUDA", "CUDA Version: N/A\n12.4"})
    EXPECT_FALSE(parse_driver_support(none)) << none;
  EXPECT_EQ(parse_cuda_version("13.0.48"), (CudaVersion{13, 0}));
  for (const char* none : {"", "13", "x.y", "13."}) EXPECT_FALSE(parse_cuda_version(none)) << none;
}

TEST(DoctorOfGpus, TellsWhereThereIsNone) {
  expect(judge_gpus({}, built_with("12.4")).front(), Mark::note, "nvidia-smi not found", "emulat");
  expect(judge_gpus(gpus(""), built_with("12.4")).front(), Mark::note, "no device", "emulat");
  const char* kFailure =
      "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure that …";
  EXPECT_EQ(judge_gpus({}, built_with("12.4")).size(), 1u);
  expect(judge_gpus({.has_nvidia_smi = true, .failure = kFailure}, built_with("12.4")).front(), Mark::note,
         "couldn't communicate", "install and load its driver");
}

TEST(DoctorOfGpus, ComparesDriverAndToolkit) {
  const auto driver = [](const char* nvcc) {
    return of(judge_gpus(gpus(kH100), built_with(nvcc)), "driver");
  };
  expect(driver("12.4.131"), Mark::ok, "550.54.15, for CUDA up to 12.4; built with 12.4");
  expect(driver("12.0.1"), Mark::ok, "built with 12.0");
  expect(driver("12.8.61"), Mark::note, "built with 12.8", "update");
  expect(driver("13.0.48"), Mark::problem, "built with 13.0", "install a driver for CUDA 13");
  const auto old = judge_gpus(gpus(kH100, ""), built_with("13.0.48"));
  expect(of(old, "driver"), Mark::ok, "550.54.15");
}

TEST(DoctorOfGpus, ComparesArchitectures) {
  const auto judged = [](const char* csv) {
    return of(judge_gpus(gpus(csv), built_with("12.4.131")), "architecture");
  };
  expect(judged(kH100), Mark::ok, "80-real, 90");
  expect(judged("RTX 4090, 550.1, 8.9, 24564\n"), Mark::ok, "8.9");
  expect(judged("B200, 570.1, 10.0, 183359\n"), Mark::note, "10.0", "CMAKE_CUDA_ARCHITECTURES=100");
  expect(judged("Tesla V100, 550.1, 7.0, 32510\n"), Mark::problem, "7.0",
         "needs a GPU of compute capability 7.5");
  expect(judged("Tesla T4, 550.1, 7.5, 15360\n"), Mark::problem, "7.5", "CMAKE_CUDA_ARCHITECTURES=75-real");
  expect(of(judge_gpus(gpus(kH100), built_with("")), "toolkit"), Mark::note, "use no GPU", "CUDA toolkit");
}

TEST(DoctorOfGpus, KnowsWhichCodeRunsWhere) {
  EXPECT_EQ(coverage({"80-real"}, 86), Coverage::machine_code);
  EXPECT_EQ(coverage({"80-real"}, 90), Coverage::none);
  EXPECT_EQ(coverage({"80"}, 90), Coverage::compiled_when_loaded);
  EXPECT_EQ(coverage({"90-virtual"}, 90), Coverage::compiled_when_loaded);
  EXPECT_EQ(coverage({"86"}, 80), Coverage::none);
  EXPECT_EQ(coverage({"90a-real"}, 90), Coverage::machine_code);
  EXPECT_EQ(coverage({"90a"}, 100), Coverage::none);
  EXPECT_EQ(coverage({"100a"}, 103), Coverage::none);
  EXPECT_EQ(coverage({"100"}, 103), Coverage::machine_code);
  EXPECT_EQ(coverage({}, 90), Coverage::none);
}

TEST(DoctorOfMpi, ReadsWhatOpenMpiPrints) {
  EXPECT_EQ(parse_mpirun_version("mpirun (Open MPI) 4.1.4\n\nReport bugs to …\n"), "Open MPI 4.1.4");
  EXPECT_EQ(parse_mpirun_version("mpiexec (OpenRTE) 5.0.3\n"), "OpenRTE 5.0.3");
  EXPECT_EQ(parse_mpirun_version("HYDRA build details:\n    Version: 4.0.2\n"), "HYDRA build details:");
  EXPECT_EQ(parse_mpirun_version(""), "unknown MPI");
  EXPECT_TRUE(refuses_root("mpirun has detected an attempt to run as root.\n"));
  EXPECT_FALSE(refuses_root("There are not enough slots available\n"));
  EXPECT_EQ(count_slots("slot\nslot\n"), 2);
  EXPECT_EQ(count_slots("warning: slot\n"), 0);
  EXPECT_EQ(parse_cuda_awareness("mca:mpi:base:param:mpi_built_with_cuda_support:value:true\n"), true);
  EXPECT_EQ(parse_cuda_awareness("mca:mpi:base:param:mpi_built_with_cuda_support:source:default\n"
                                 "mca:mpi:base:param:mpi_built_with_cuda_support:value:false\n"),
            false);
  EXPECT_FALSE(parse_cuda_awareness("package:Open MPI\n"));
}

TEST(DoctorOfMpi, TellsWhatKeepsStage1FromRunning) {
  expect(of(judge_mpi({}, false), "MPI"), Mark::note, "mpirun not found", "./scripts/setup.sh");
  expect(of(judge_mpi({.version = "", .failure = "cannot open shared object file"}, false), "MPI"),
         Mark::problem, "does not run: cannot open", "./scripts/setup.sh");
  const MpiFacts root{.version = "Open MPI 4.1.4", .refuses_root = true, .slots = 2};
  expect(of(judge_mpi(root, false), "MPI"), Mark::problem, "refuses to run as root",
         "OMPI_ALLOW_RUN_AS_ROOT=1");
  const MpiFacts two{.version = "Open MPI 4.1.4", .slots = 2, .cuda_aware = false};
  expect(of(judge_mpi(two, false), "MPI"), Mark::ok, "Open MPI 4.1.4");
  expect(of(judge_mpi(two, false), "MPI slots"), Mark::ok, "2 ranks");
  expect(of(judge_mpi({.version = "Open MPI 4.1.4", .slots = 1}, false), "MPI slots"), Mark::note, "1 rank",
         "--oversubscribe");
}

TEST(DoctorOfMpi, AsksForCudaWhereThereIsAGpu) {
  const MpiFacts plain{.version = "Open MPI 4.1.4", .slots = 2, .cuda_aware = false};
  EXPECT_EQ(judge_mpi(plain, false).size(), 2u);
  expect(of(judge_mpi(plain, true), "CUDA-aware MPI"), Mark::note, "no", "host memory or NCCL");
}

TEST(DoctorOfNccl, KnowsBothWaysToNumberVersions) {
  EXPECT_EQ(nccl_version_text(21805), "2.18.5");
  EXPECT_EQ(nccl_version_text(22809), "2.28.9");
  EXPECT_EQ(nccl_version_text(2804), "2.8.4");
}

TEST(DoctorOfNccl, AsksForItWhereThereAreSeveralGpus) {
  expect(judge_nccl(21805, 0), Mark::ok, "2.18.5");
  expect(judge_nccl({}, 1), Mark::ok, "none");
  expect(judge_nccl({}, 2), Mark::note, "libnccl.so.2", "libnccl2");
}

TEST(DoctorOfRoom, ComparesTheDiskWithCheckpoints) {
  constexpr double kCheckpoint = 1.5e9;
  EXPECT_NEAR(gpt2_checkpoint_bytes(), kCheckpoint, 0.01e9);  // 124,439,808 parameters in three copies
  const auto judged = [](bool writable, double free) {
    return judge_disk({"/runs", writable, free}, kCheckpoint);
  };
  expect(judged(true, 10e9), Mark::ok, "10.0 GB free");
  EXPECT_FALSE(judged(true, 5e9).prevents_stage0);
  expect(judged(true, 5e9), Mark::note, "5.0 GB free", "6.0 GB");
  for (const Finding& finding : {judged(true, 1e6), judged(false, 10e9)}) {
    expect(finding, Mark::problem, "", "--run-dir");
    EXPECT_TRUE(finding.prevents_stage0);
  }
}

TEST(DoctorOfRoom, ComparesMemoryWithWhatTrainingTakes) {
  const MemoryNeeds needs{.nano_bytes = 1e8, .gpt2_bytes = 8e9};
  expect(judge_memory({.total_bytes = 2e10, .available_bytes = 1e10}, needs), Mark::ok, "9.3 GiB available");
  expect(judge_memory({.total_bytes = 2e10, .available_bytes = 1e9}, needs), Mark::note, "0.9 GiB available",
         "enough for nano; gpt2 needs 7.5 GiB");
  const Finding none = judge_memory({.total_bytes = 2e10, .available_bytes = 1e7}, needs);
  expect(none, Mark::problem, "available", "nano needs");
  EXPECT_TRUE(none.prevents_stage0);
  expect(judge_memory({.total_bytes = 2e10, .available_bytes = 1e10, .limit_bytes = 1e9}, needs), Mark::note,
         "the limit of this container", "gpt2 needs");
  const MemoryNeeds counted = memory_needs();
  EXPECT_LT(counted.nano_bytes, counted.gpt2_bytes / 10);
  EXPECT_GT(counted.gpt2_bytes, 16 * 124e6);  // weights, gradients and moments
}

TEST(DoctorOfPrograms, TellsWhyOnesAreMissing) {
  const std::set<std::string> stage0 = {"stage0_train",   "stage0_generate", "stage0_evaluate",
                                        "stage0_inspect", "stage0_verify",   "stage0_bench"};
  const Findings without_nvcc = judge_programs(stage0, built_with(""), "/build");
  expect(of(without_nvcc, "stage 0"), Mark::ok, "stage0_train, stage0_generate");
  expect(of(without_nvcc, "stage 1"), Mark::note, "stage1_train, stage1_generate", "cmake --build /build");
  expect(of(without_nvcc, "stage 2"), Mark::note, "nvcc was not found", "CUDA toolkit");
  expect(of(without_nvcc, "stage 3, emulated"), Mark::note, "stage3_train_emulated", "cmake --build /build");
  expect(of(judge_programs(stage0, built_with("12.4"), "/build"), "stage 2"), Mark::note, "stage2_train",
         "cmake --build /build");
  EXPECT_TRUE(stage0_runs(without_nvcc));
  EXPECT_FALSE(stage0_runs(judge_programs({}, built_with(""), "/build")));
}

TEST(Doctor, DoesNotEndWhereAProbeDoes) {
  const Findings findings =
      examine("GPU", []() -> Findings { throw std::runtime_error("cannot start nvidia-smi"); });
  ASSERT_EQ(findings.size(), 1u);
  expect(findings.front(), Mark::note, "cannot start nvidia-smi");
}

TEST(Doctor, HasALineForEachFindingAndAdvice) {
  const Findings findings = {{"MPI", Mark::ok, "Open MPI 4.1.4"}, {"GPU", Mark::note, "none", "buy one"}};
  EXPECT_EQ(to_text(findings),
            "ok       MPI               Open MPI 4.1.4\n"
            "note     GPU               none\n"
            "                           -> buy one\n");
}

}  // namespace
}  // namespace stagegpt::test
