// All messages of doctor, word for word, for made-up machines.
#include <gtest/gtest.h>

#include "tools/doctor/build_facts.h"
#include "tools/doctor/disk_and_memory.h"
#include "tools/doctor/gpu.h"
#include "tools/doctor/mpi.h"
#include "tools/doctor/processor.h"

namespace stagegpt::test {
namespace {

using Mark = Finding::Mark;

// The findings as doctor prints them. A line is added after each finding that prevents stage 0.
std::string text_of(const Findings& findings) {
  std::string text;
  for (const Finding& finding : findings) {
    text += to_text({finding});
    if (finding.prevents_stage0) text += "stage 0 does not run\n";
  }
  return '\n' + text;
}

BuildFacts built(const std::string& type, bool native, const std::string& nvcc = "") {
  return {.compiler = "GCC 12.2.0",
          .build_type = type,
          .native = native,
          .nvcc = nvcc,
          .architectures = {"80-real", "90"}};
}

TEST(DoctorText, of_the_build) {
  BuildFacts sanitized = built("Release", true);
  sanitized.sanitized = true;
  BuildFacts portable = built("Release", false);
  portable.processor = "x86-64-v3";
  EXPECT_EQ(
      text_of({judge_build(built("Release", true, "12.4.131")), judge_build(built("RelWithDebInfo", true)),
               judge_build(built("Release", false)), judge_build(built("Debug", true)),
               judge_build(built("", false)), judge_build(sanitized), judge_build(portable)}),
      R"(
ok       build             GCC 12.2.0, Release, for the processor of the build machine, nvcc 12.4.131
ok       build             GCC 12.2.0, RelWithDebInfo, for the processor of the build machine, without nvcc
note     build             GCC 12.2.0, Release, for any processor, without nvcc
                           -> faster on this machine, if built with -DSTAGEGPT_NATIVE=ON
note     build             GCC 12.2.0, Debug, for the processor of the build machine, without nvcc
                           -> not optimised; for training: cmake --preset release
note     build             GCC 12.2.0, , for any processor, without nvcc
                           -> not optimised; for training: cmake --preset release
note     build             GCC 12.2.0, Release, for the processor of the build machine, without nvcc, with sanitizers
                           -> many times slower; for training: cmake --preset release
note     build             GCC 12.2.0, Release, for x86-64-v3, without nvcc
                           -> faster on this machine, if built with -DSTAGEGPT_NATIVE=ON
)");
}

TEST(DoctorText, of_the_processor) {
  const auto cores = [](ProcessorFacts facts) { return judge_processor(facts).front(); };
  EXPECT_EQ(text_of({cores({.model = "AMD EPYC", .cores = 1}), cores({.model = "", .cores = 4}),
                     cores({.model = "AMD EPYC", .cores = 4, .quota = 2.75}),
                     cores({.model = "", .cores = 1, .quota = 0.5}),
                     cores({.model = "", .cores = 4, .quota = 4.0})}),
            R"(
ok       processor         1 core, AMD EPYC
ok       processor         4 cores
note     processor         4 cores, AMD EPYC, of which this container may use 2.75
                           -> more threads are slower: --threads 2
note     processor         1 core, of which this container may use 0.5
                           -> more threads are slower: --threads 1
ok       processor         4 cores
)");
}

TEST(DoctorText, of_instructions) {
  const auto instructions = [](std::vector<InstructionSet> sets) {
    return judge_processor({.model = "", .instructions = std::move(sets)}).at(1);
  };
  EXPECT_EQ(
      text_of({instructions({{"A", true, true}, {"B", true, true}, {"C", false, false}}), instructions({}),
               instructions({{"A", false, true}, {"B", true, true}, {"C", false, true}}),
               instructions({{"A", true, false}, {"B", false, true}, {"C", true, false}})}),
      R"(
ok       instructions      A, B
ok       instructions      baseline only
note     instructions      this processor has A, C, which the programs do not use
                           -> they were built for another processor, or for any: configure and build on this one
problem  instructions      the programs use A, C, which this processor lacks
                           -> they were built on another machine: configure and build on this one
stage 0 does not run
)");
}

TEST(DoctorText, of_threads) {
  const auto with = [](const char* name, const char* value) {
    return judge_threads({.cores = 8, .environment = {{name, value}}});
  };
  EXPECT_EQ(
      text_of({judge_threads({}), judge_threads({.cores = 8, .limit = 8}), with("OMP_WAIT_POLICY", "PASSIVE"),
               with("OMP_WAIT_POLICY", "Active"), with("OMP_DYNAMIC", "TRUE"), with("OMP_DYNAMIC", "false"),
               with("OMP_PROC_BIND", "close"), with("OMP_PLACES", "cores"), with("GOMP_CPU_AFFINITY", "0-3"),
               with("OMP_NUM_THREADS", "2"), with("OPENBLAS_CORETYPE", "Haswell"),
               with("OMP_THREAD_LIMIT", "9")}),
      R"(
ok       OpenMP            1 thread, one per core
ok       OpenMP            8 threads, one per core
note     OpenMP            8 threads, one per core, OMP_WAIT_POLICY=PASSIVE
                           -> threads sleep between parallel loops, which is slower: unset OMP_WAIT_POLICY
ok       OpenMP            8 threads, one per core, OMP_WAIT_POLICY=Active
note     OpenMP            8 threads, one per core, OMP_DYNAMIC=TRUE
                           -> OpenMP may use fewer threads than cores: unset OMP_DYNAMIC
ok       OpenMP            8 threads, one per core, OMP_DYNAMIC=false
ok       OpenMP            8 threads, one per core, OMP_PROC_BIND=close
ok       OpenMP            8 threads, one per core, OMP_PLACES=cores
ok       OpenMP            8 threads, one per core, GOMP_CPU_AFFINITY=0-3
note     OpenMP            8 threads, one per core, OMP_NUM_THREADS=2
                           -> it is the default of --threads, in place of all cores
note     OpenMP            8 threads, one per core, OPENBLAS_CORETYPE=Haswell
                           -> it overrides OpenBLAS's choice of kernels for this processor: unset it
ok       OpenMP            8 threads, one per core, OMP_THREAD_LIMIT=9
)");
}

// If there are several reasons, the advice is about the first one. A thread limit comes before all others.
TEST(DoctorText, of_threads_with_several_variables) {
  ThreadFacts facts{.cores = 8, .environment = {{"OMP_DYNAMIC", "true"}, {"OMP_NUM_THREADS", "2"}}};
  const Finding first = judge_threads(facts);
  facts.limit = 7;
  EXPECT_EQ(text_of({first, judge_threads(facts)}), R"(
note     OpenMP            8 threads, one per core, OMP_DYNAMIC=true, OMP_NUM_THREADS=2
                           -> OpenMP may use fewer threads than cores: unset OMP_DYNAMIC
note     OpenMP            8 threads, one per core, OMP_DYNAMIC=true, OMP_NUM_THREADS=2
                           -> it limits OpenMP to fewer threads than cores: unset OMP_THREAD_LIMIT
)");
}

TEST(DoctorText, of_blas) {
  EXPECT_EQ(text_of({judge_blas(true, "OpenBLAS 0.3.21 Haswell"), judge_blas(false, "no libopenblas")}), R"(
ok       BLAS              OpenBLAS 0.3.21 Haswell, OpenMP build
note     BLAS              no libopenblas
                           -> --cpu-matmul blas and the emulated stages 2 and 3 need it: ./scripts/setup.sh installs it
)");
}

const Gpu kV100{.name = "V100", .driver = "535.1", .capability = 70, .gibibytes = 31.7};
const Gpu kT4{.name = "T4", .driver = "580.1", .capability = 75, .gibibytes = 15.0};
const Gpu kA6000{.name = "A6000", .driver = "535.1", .capability = 86, .gibibytes = 48.2};
const Gpu kB300{.name = "B300", .driver = "580.1", .capability = 103, .gibibytes = 267.4};

GpuFacts there(std::vector<Gpu> gpus, std::optional<CudaVersion> driver_supports) {
  return {.has_nvidia_smi = true, .gpus = std::move(gpus), .driver_supports = driver_supports};
}

TEST(DoctorText, where_there_is_no_gpu) {
  const BuildFacts build = built("Release", true, "12.4.131");
  Findings findings;
  for (const GpuFacts& facts : {GpuFacts{}, GpuFacts{.has_nvidia_smi = true, .failure = "no driver"},
                                there({}, CudaVersion{12, 4})}) {
    std::ranges::copy(judge_gpus(facts, build), std::back_inserter(findings));
  }
  EXPECT_EQ(text_of(findings), R"(
note     GPU               none: nvidia-smi not found
                           -> without a GPU, stages 2 and 3 run on the emulator: stage2_train_emulated
note     GPU               not usable: no driver
                           -> if this machine has one: install and load its driver; start containers with --gpus all
note     GPU               none: nvidia-smi lists no device
                           -> without a GPU, stages 2 and 3 run on the emulator: stage2_train_emulated
)");
}

TEST(DoctorText, of_gpus_and_a_build_for_them) {
  const BuildFacts build = built("Release", true, "12.4.131");
  EXPECT_EQ(text_of(judge_gpus(there({kA6000, kV100}, CudaVersion{12, 4}), build)), R"(
ok       GPU               2 GPUs, the first: A6000, 48 GiB, compute capability 8.6
ok       driver            535.1, for CUDA up to 12.4; built with 12.4
ok       architecture      compiled for 80-real, 90; A6000 has 8.6
)");
  EXPECT_EQ(text_of(judge_gpus(there({kV100}, CudaVersion{12, 3}), build)), R"(
ok       GPU               V100, 32 GiB, compute capability 7.0
note     driver            535.1, for CUDA up to 12.3; built with 12.4
                           -> it runs compiled kernels, but cannot compile PTX of this toolkit: update the driver if a kernel fails
problem  architecture      compiled for 80-real, 90; V100 has 7.0
                           -> stage 2 needs a GPU of compute capability 7.5 or newer
)");
  EXPECT_EQ(text_of(judge_gpus(there({kT4}, CudaVersion{13, 0}), build)), R"(
ok       GPU               T4, 15 GiB, compute capability 7.5
ok       driver            580.1, for CUDA up to 13.0; built with 12.4
problem  architecture      compiled for 80-real, 90; T4 has 7.5
                           -> build for it: cmake --preset release -DCMAKE_CUDA_ARCHITECTURES=75-real
)");
  EXPECT_EQ(text_of(judge_gpus(there({kB300}, CudaVersion{11, 8}), build)), R"(
ok       GPU               B300, 267 GiB, compute capability 10.3
problem  driver            580.1, for CUDA up to 11.8; built with 12.4
                           -> too old for these programs: install a driver for CUDA 12, or build with CUDA 11
note     architecture      compiled for 80-real, 90; B300 has 10.3
                           -> the driver compiles kernels at the first start, which is slow; to avoid it: -DCMAKE_CUDA_ARCHITECTURES=103
)");
}

TEST(DoctorText, of_a_gpu_and_a_build_without_nvcc) {
  EXPECT_EQ(text_of(judge_gpus(there({kA6000}, CudaVersion{13, 0}), built("Release", true))), R"(
ok       GPU               A6000, 48 GiB, compute capability 8.6
ok       driver            535.1, for CUDA up to 13.0
note     toolkit           not found when these programs were built, so they use no GPU
                           -> install the CUDA toolkit, 12 or newer, and configure again: cmake --preset release
)");
  EXPECT_EQ(text_of({judge_gpus(there({kA6000}, {}), built("Release", true)).at(1)}), R"(
ok       driver            535.1
)");
}

TEST(DoctorText, of_mpi) {
  const Findings whole = judge_mpi({.version = "Open MPI 4.1.4", .slots = 2, .cuda_aware = true}, true);
  const Findings small = judge_mpi({.version = "Open MPI 4.1.4", .slots = 1, .cuda_aware = false}, true);
  const Findings no_gpu = judge_mpi({.version = "Open MPI 4.1.4", .cuda_aware = false}, false);
  EXPECT_EQ(text_of(whole) + text_of(small) + text_of(no_gpu), R"(
ok       MPI               Open MPI 4.1.4
ok       MPI slots         2 ranks without --oversubscribe
ok       CUDA-aware MPI    yes

ok       MPI               Open MPI 4.1.4
note     MPI slots         1 rank without --oversubscribe
                           -> to start more ranks than that: mpirun --oversubscribe -np 2
note     CUDA-aware MPI    no
                           -> stage 3's ranks exchange gradients through host memory or NCCL; --transport selects one

ok       MPI               Open MPI 4.1.4
)");
}

TEST(DoctorText, of_mpi_that_does_not_run) {
  Findings findings;
  for (const MpiFacts& facts : {MpiFacts{}, MpiFacts{.version = "", .failure = "no libmpi"},
                                MpiFacts{.version = "Open MPI 5.0.3", .refuses_root = true}}) {
    std::ranges::copy(judge_mpi(facts, true), std::back_inserter(findings));
  }
  EXPECT_EQ(text_of(findings), R"(
note     MPI               mpirun not found
                           -> stages 1 and 3 need it: ./scripts/setup.sh installs Open MPI
problem  MPI               mpirun does not run: no libmpi
                           -> install it again: ./scripts/setup.sh
problem  MPI               Open MPI 5.0.3, which refuses to run as root
                           -> in a container: export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
)");
}

TEST(DoctorText, of_nccl) {
  EXPECT_EQ(text_of({judge_nccl(21805, 0), judge_nccl({}, 1), judge_nccl({}, 2)}), R"(
ok       NCCL              2.18.5
ok       NCCL              none; used with several GPUs only
note     NCCL              none: libnccl.so.2 cannot be loaded
                           -> stage 3 is fastest with it: install libnccl2 and libnccl-dev for this CUDA, and configure again
)");
  EXPECT_EQ(nccl_version_text(9999), "9.9.99");
  EXPECT_EQ(nccl_version_text(10000), "1.0.0");
}

TEST(DoctorText, of_the_disk) {
  const auto disk = [](bool writable, double free_bytes) {
    return judge_disk({"/runs", writable, free_bytes}, 1.5e9);
  };
  EXPECT_EQ(
      text_of({disk(true, 6e9), disk(true, 5.94e9), disk(true, 1e8), disk(true, 9.9e7), disk(false, 6e9)}),
      R"(
ok       disk              6.0 GB free for runs in "/runs"
note     disk              5.9 GB free for runs in "/runs"
                           -> enough for nano; a run of gpt2 needs 6.0 GB, 1.5 GB per checkpoint
note     disk              0.1 GB free for runs in "/runs"
                           -> enough for nano; a run of gpt2 needs 6.0 GB, 1.5 GB per checkpoint
problem  disk              0.1 GB free for runs in "/runs"
                           -> not enough for checkpoints: free space, or use --run-dir
stage 0 does not run
problem  disk              cannot write to "/runs"
                           -> runs are written to runs/ in this directory: use another one, or --run-dir
stage 0 does not run
)");
}

TEST(DoctorText, of_memory) {
  constexpr double kGibibyte = 1024.0 * 1024 * 1024;
  const auto memory = [](double available, std::optional<double> limit) {
    MemoryFacts facts{.total_bytes = 64 * kGibibyte, .available_bytes = available * kGibibyte};
    if (limit) facts.limit_bytes = *limit * kGibibyte;
    return judge_memory(facts, {.nano_bytes = 0.5 * kGibibyte, .gpt2_bytes = 8 * kGibibyte});
  };
  EXPECT_EQ(text_of({memory(8, {}), memory(7.9, 64), memory(0.5, 32), memory(20, 16), memory(20, 0.25)}), R"(
ok       memory            8.0 GiB available of 64.0 GiB; training gpt2 needs 8.0 GiB (--dry-run)
note     memory            7.9 GiB available of 64.0 GiB
                           -> enough for nano; gpt2 needs 8.0 GiB (--dry-run); less with a smaller --batch-size or --block-size
note     memory            0.5 GiB available of 32.0 GiB, the limit of this container
                           -> enough for nano; gpt2 needs 8.0 GiB (--dry-run); less with a smaller --batch-size or --block-size
ok       memory            16.0 GiB available of 16.0 GiB, the limit of this container; training gpt2 needs 8.0 GiB (--dry-run)
problem  memory            0.2 GiB available of 0.2 GiB, the limit of this container
                           -> nano needs 0.5 GiB: close other programs, or use a smaller --batch-size
stage 0 does not run
)");
}

TEST(DoctorText, of_programs) {
  const std::set<std::string> names = {
      "stage0_train", "stage0_generate", "stage0_evaluate", "stage0_inspect",        "stage0_verify",
      "stage0_bench", "stage1_verify",   "stage2_bench",    "stage2_train_emulated", "stage3_generate"};
  EXPECT_EQ(text_of(judge_programs(names, built("Release", true), "/build")), R"(
ok       stage 0           stage0_train, stage0_generate, stage0_evaluate, stage0_inspect, stage0_verify, stage0_bench
note     stage 1           not built: stage1_train, stage1_generate, stage1_evaluate, stage1_inspect, stage1_bench
                           -> cmake --build /build
note     stage 2           not built: nvcc was not found
                           -> for a GPU, install the CUDA toolkit, 12 or newer, and configure again; the emulated programs do not need it
note     stage 2, emulated not built: stage2_generate_emulated, stage2_evaluate_emulated, stage2_inspect_emulated, stage2_verify_emulated, stage2_bench_emulated
                           -> cmake --build /build
note     stage 3           not built: nvcc was not found
                           -> for a GPU, install the CUDA toolkit, 12 or newer, and configure again; the emulated programs do not need it
note     stage 3, emulated not built: stage3_train_emulated, stage3_generate_emulated, stage3_evaluate_emulated, stage3_inspect_emulated, stage3_verify_emulated, stage3_bench_emulated
                           -> cmake --build /build
)");
  const Findings with_nvcc =
      judge_programs({"stage0_generate", "stage2_train"}, built("Release", true, "12.4"), "/b");
  EXPECT_EQ(text_of({with_nvcc.at(0), with_nvcc.at(2)}), R"(
problem  stage 0           not built: stage0_train, stage0_evaluate, stage0_inspect, stage0_verify, stage0_bench
                           -> cmake --build /b
stage 0 does not run
note     stage 2           not built: stage2_generate, stage2_evaluate, stage2_inspect, stage2_verify, stage2_bench
                           -> cmake --build /b
)");
  EXPECT_EQ(text_of({judge_programs({"stage0_train"}, built("Release", true), "/b").front()}), R"(
note     stage 0           not built: stage0_generate, stage0_evaluate, stage0_inspect, stage0_verify, stage0_bench
                           -> cmake --build /b
)");
}

TEST(DoctorText, is_one_object_as_json) {
  const Findings findings = {{"MPI", Mark::ok, "Open MPI 4.1.4"},
                             {"GPU", Mark::note, "none: \xff", "buy one"},
                             {"disk", Mark::problem, "full", "make room", /*prevents_stage0=*/true}};
  EXPECT_EQ(to_json_text(findings), R"({
  "stage0_runs": false,
  "findings": [
    {
      "subject": "MPI",
      "mark": "ok",
      "found": "Open MPI 4.1.4",
      "advice": null,
      "prevents_stage0": false
    },
    {
      "subject": "GPU",
      "mark": "note",
      "found": "none: �",
      "advice": "buy one",
      "prevents_stage0": false
    },
    {
      "subject": "disk",
      "mark": "problem",
      "found": "full",
      "advice": "make room",
      "prevents_stage0": true
    }
  ]
}
)");
  EXPECT_EQ(to_json_text({}), "{\n  \"stage0_runs\": true,\n  \"findings\": []\n}\n");
}

TEST(DoctorText, of_a_probe_that_fails) {
  EXPECT_EQ(text_of(examine("GPU", []() -> Findings { throw std::runtime_error("no answer"); })), R"(
note     GPU               check failed: no answer
                           -> training may work nevertheless
)");
}

}  // namespace
}  // namespace stagegpt::test
