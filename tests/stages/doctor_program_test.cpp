// The program doctor, with scripts in its PATH that imitate other machines.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <nlohmann/json.hpp>
#include <vector>

#include "tests/support/patterns.h"
#include "tests/support/program.h"

namespace stagegpt::test {
namespace {

class DoctorProgram : public testing::Test {
 protected:
  void script(const std::string& name, const std::string& body) const {
    constexpr mode_t kMode = 0755;
    chmod(scratch_.write(name, "#!/bin/sh\n" + body).c_str(), kMode);
  }
  // Runs doctor in directory `in`, with only the scripts in its PATH.
  ProgramResult run(const std::vector<std::string>& arguments = {}, const std::filesystem::path& in = "",
                    const std::filesystem::path& output_to = "") const {
    return run_program("doctor", arguments, in.empty() ? scratch_.path() : in,
                       {.output_to = output_to, .environment = {{"PATH", scratch_.path()}}});
  }

  ScratchDirectory scratch_;
};

TEST_F(DoctorProgram, NeedsNeitherMpiNorAGpu) {
  const ProgramResult result = run();
  EXPECT_EQ(result.exit_code, 0) << result.output << result.errors;
  EXPECT_NE(result.output.find("mpirun not found\n"), std::string::npos) << result.output;
  EXPECT_NE(result.output.find("nvidia-smi not found\n"), std::string::npos) << result.output;
  // The version and the kernels of OpenBLAS.
  EXPECT_TRUE(has_match(result.output, "OpenBLAS [0-9][0-9.]* [A-Za-z0-9]+, OpenMP build")) << result.output;
}

TEST_F(DoctorProgram, PrintsOneObject) {
  const ProgramResult result = run({"--json"});
  const auto json = nlohmann::json::parse(result.output);
  EXPECT_TRUE(json["stage0_runs"]);
  std::vector<std::string> subjects;
  for (const auto& finding : json["findings"]) {
    EXPECT_EQ(finding["advice"].is_null(), finding["mark"] == "ok") << finding;
    subjects.push_back(finding["subject"]);
  }
  EXPECT_EQ(subjects,
            (std::vector<std::string>{"build", "processor", "instructions", "OpenMP", "BLAS", "memory",
                                      "disk", "GPU", "MPI", "NCCL", "stage 0", "stage 1", "stage 2",
                                      "stage 2, emulated", "stage 3", "stage 3, emulated"}));
}

// With two GPUs, doctor also reports whether MPI supports CUDA and whether NCCL is available.
TEST_F(DoctorProgram, AsksForWhatSeveralGpusNeed) {
  script("nvidia-smi", "printf 'A, 535.1, 8.6, 49152\\nB, 535.1, 8.6, 49152\\n'");
  script("mpirun", "echo 'mpirun (Open MPI) 4.1.4'");
  script("ompi_info", "echo mpi_built_with_cuda_support:value:false");
  const ProgramResult result = run();
  EXPECT_NE(result.output.find("ok       GPU               2 GPUs, the first: A, 48 GiB"), std::string::npos)
      << result.output;
  EXPECT_NE(result.output.find("note     CUDA-aware MPI    no\n"), std::string::npos) << result.output;
  EXPECT_EQ(result.output.find("used with several GPUs only"), std::string::npos) << result.output;
}

TEST_F(DoctorProgram, LooksForProgramsBesideItself) {
  const std::filesystem::path bin = scratch_.path() / "bin";
  std::filesystem::create_directory(bin);
  std::filesystem::copy(STAGEGPT_BIN_DIR "/doctor", bin);
  const ProgramResult result =
      run_program(bin / "doctor", {}, scratch_.path(), {.environment = {{"PATH", scratch_.path()}}});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_NE(result.output.find(
                "problem  stage 0           not built: stage0_train, stage0_generate, stage0_evaluate, "
                "stage0_inspect, stage0_verify, stage0_bench\n                           -> cmake --build " +
                scratch_.path().string() + '\n'),
            std::string::npos)
      << result.output;
}

// A processor causes SIGILL at an instruction that it does not support.
TEST_F(DoctorProgram, TellsThatItWasBuiltForAnotherProcessor) {
  script("nvidia-smi", "kill -ILL $PPID");
  const ProgramResult result = run();
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_EQ(result.output,
            "problem  instructions      these programs were built for another processor\n"
            "                           -> configure and build on this machine: cmake --preset release\n");
  EXPECT_EQ(run({}, "", "/dev/full").exit_code, 2);  // nothing was reported
}

TEST_F(DoctorProgram, ExitsWith1WhereStage0CannotRun) {
  const ProgramResult result = run({}, "/proc");  // not writable for anyone
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_NE(result.output.find("problem  disk"), std::string::npos) << result.output;
}

TEST_F(DoctorProgram, SaysThatOpenBlasIsMissing) {
  const ProgramResult result =
      run_program("doctor", {}, scratch_.path(),
                  {.environment = {{"PATH", scratch_.path()}, {"LD_PRELOAD", STAGEGPT_NO_OPENBLAS_LIBRARY}}});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_NE(result.output.find("note     BLAS"), std::string::npos) << result.output;
  EXPECT_NE(result.output.find("OpenBLAS cannot be loaded ("), std::string::npos) << result.output;
}

TEST_F(DoctorProgram, RefusesWhatItDoesNotKnow) {
  EXPECT_EQ(run({"--gpu"}).exit_code, 2);
  const ProgramResult help = run({"--help"});
  EXPECT_EQ(help.exit_code, 0);
  EXPECT_EQ(help.output.find("OpenMP"), std::string::npos) << help.output;  // nothing is examined
}

}  // namespace
}  // namespace stagegpt::test
