// Machine flags at stage 0 and their effect: threads, kernels and GEMM implementations.
#include <gtest/gtest.h>

#include <filesystem>

#include "common/autograd/ops/linear.h"
#include "common/backend/ops/elementwise.h"
#include "stage0_serial/cpu_flags.h"
#include "stage0_serial/naive_backend.h"
#include "tests/support/parse.h"
#include "tests/support/program.h"
#include "tests/support/refusal.h"
#include "tests/support/tensors.h"

namespace stagegpt::test {
namespace {

namespace fs = std::filesystem;

CpuFlags cpu_flags_of(const std::vector<std::string>& arguments) {
  CpuFlags flags;
  CommandLine command_line("stage0_train", "", 0);
  flags.add(command_line, "");
  parse(command_line, arguments);
  return flags;
}

// The backend that the flags select.
std::unique_ptr<Backend> backend_of(const std::vector<std::string>& arguments) {
  const CpuFlags flags = cpu_flags_of(arguments);
  return flags.make_backend(flags.threads(/*processes=*/1));
}

// The product of a matrix (8,1000) and the transpose of a matrix (8,1000).
Values product(Backend& backend) {
  const Tensor x = to_tensor(backend, DType::f32, {8, 1000}, random_values(1, 0, 8000)),
               w = to_tensor(backend, DType::f32, {8, 1000}, random_values(1, 1, 8000)),
               out = backend.allocate(DType::f32, {8, 8});
  backend.run(LinearForward{out, x, w, Tensor()});
  return to_values(backend, out);
}

std::ptrdiff_t threads_of_this_process() {
  return std::distance(fs::directory_iterator("/proc/self/task"), fs::directory_iterator());
}

TEST(MachineFlags, SayHowManyThreadsThereAre) {
  // OpenMP creates threads when they are first needed, and does not end them.
  const std::ptrdiff_t before = threads_of_this_process();
  for (const int threads : {1, 3, 5}) {
    const auto backend = backend_of({"--threads", std::to_string(threads), "--cpu-matmul", "naive"});
    const Tensor large = backend->zeros(DType::f32, {1 << 20});
    backend->run(Add{large, large, large});
    EXPECT_EQ(threads_of_this_process() - before, threads - 1);
  }
}

TEST(MachineFlags, TakeTheThreadsOfTheEnvironment) {
  const CpuFlags flags = cpu_flags_of({});
  const int all = flags.threads(/*processes=*/1);
  for (const auto& [value, threads] :
       {std::pair{"3", 3}, {"4,2", 4}, {"0", all}, {"-1", all}, {"many", all}, {"5000", all}, {"", all}}) {
    setenv("OMP_NUM_THREADS", value, 1);
    EXPECT_EQ(flags.threads(/*processes=*/1), threads) << value;
  }
  unsetenv("OMP_NUM_THREADS");
}

// Each GEMM implementation adds in a different order, so the results differ in rounding. One of them is a
// library, which is loaded only when it is used.
TEST(MachineFlags, SayWhoMultipliesMatrices) {
  const auto library_is_loaded = [] {
    return read_bytes("/proc/self/maps").find("libopenblas") != std::string::npos;
  };
  const Values naive = product(*backend_of({"--threads", "1", "--cpu-matmul", "naive"})),
               tiled = product(*backend_of({"--threads", "1", "--cpu-matmul", "tiled"})),
               packed = product(*backend_of({"--threads", "1"}));
  EXPECT_FALSE(library_is_loaded());
  const Values blas = product(*backend_of({"--threads", "1", "--cpu-matmul", "blas"}));
  EXPECT_TRUE(library_is_loaded());
  EXPECT_NE(naive, tiled);
  EXPECT_NE(naive, blas);
  EXPECT_NE(tiled, blas);
  for (const Values& other : {naive, tiled, blas}) EXPECT_NE(packed, other);
  EXPECT_EQ(packed, product(*backend_of({"--threads", "1", "--cpu-matmul", "packed"})));
}

std::string refused(const std::vector<std::string>& arguments) {
  return refusal([&] { backend_of(arguments); });
}

TEST(MachineFlags, SayWhoseKernelsCompute) {
  const auto reference = make_naive_backend();
  const Values plain = product(*backend_of({"--cpu-kernels", "naive"}));
  EXPECT_EQ(plain, product(*reference));
  EXPECT_NE(plain, product(*backend_of({})));
  EXPECT_EQ(product(*backend_of({"--cpu-kernels", "vectorised"})), product(*backend_of({})));
  EXPECT_EQ(refused({"--cpu-kernels", "naive", "--threads", "1"}), "");
  EXPECT_EQ(refused({"--cpu-kernels", "naive", "--threads", "2"}),
            "--cpu-kernels naive: has one thread, not 2");
  EXPECT_EQ(refused({"--cpu-kernels", "naive", "--cpu-matmul", "blas"}),
            "--cpu-kernels naive: has matrix products of its own, not --cpu-matmul blas");
}

TEST(MachineFlags, SayInWhatPrecisionActivationsAre) {
  const std::vector<std::string> bf16 = {"--precision", "bf16"};
  EXPECT_EQ(cpu_flags_of({}).activations(), DType::f32);
  for (const char* precision : {"f32", "tf32"})
    EXPECT_EQ(cpu_flags_of({"--precision", precision}).activations(), DType::f32);
  EXPECT_EQ(cpu_flags_of(bf16).activations(), DType::bf16);
  EXPECT_TRUE(cpu_flags_of(bf16).rounds_to_bf16());
  EXPECT_FALSE(cpu_flags_of({}).rounds_to_bf16());
  EXPECT_NE(cpu_flags_of(bf16).description(2).find("CPU, 2 threads, bf16, packed matmul"), std::string::npos);
  EXPECT_EQ(cpu_flags_of({}).description(2).find("bf16"), std::string::npos);
  for (const char* matmul : {"naive", "tiled", "blas"}) {
    EXPECT_EQ(refused(bf16 + std::vector<std::string>{"--cpu-matmul", matmul}),
              std::string("--precision: bf16 needs --cpu-matmul packed, got \"") + matmul +
                  "\", which computes in f32");
  }
  EXPECT_EQ(refused(bf16 + std::vector<std::string>{"--cpu-matmul", "packed-bf16"}), "");
  EXPECT_EQ(refused(bf16 + std::vector<std::string>{"--cpu-kernels", "naive"}),
            "--cpu-kernels naive: computes in f32, not --precision bf16");
}

TEST(MachineFlags, WarnOfThreadsThatShareCores) {
  EXPECT_EQ(warning_of_shared_cores(2, 2), "");
  EXPECT_EQ(warning_of_shared_cores(3, 2), "warning: 3 threads share 2 cores; use fewer --threads");
  EXPECT_EQ(warning_of_shared_cores(2, 1), "warning: 2 threads share 1 core; use fewer --threads");
}

// Of all kernels in this program, those of the extensions BF16 alone multiply bf16.
TEST(MachineFlags, WarnThatBf16IsSlowWhereTheProcessorCannotMultiplyIt) {
  for (const PackedKernels* kernels : all_packed_kernels()) {
    EXPECT_EQ(cpu_flags_of({}).warning(*kernels), "");
    const bool fast = std::string(kernels->name).ends_with(" BF16");
    EXPECT_EQ(cpu_flags_of({"--precision", "bf16"}).warning(*kernels).empty(), fast) << kernels->name;
  }
}

}  // namespace
}  // namespace stagegpt::test
