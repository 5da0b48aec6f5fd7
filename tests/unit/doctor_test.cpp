// What doctor reads in the output of other programs, and what it computes. Its messages:
// doctor_text_test.cpp.
#include <gtest/gtest.h>

#include "common/system/system_files.h"
#include "tools/doctor/disk_and_memory.h"
#include "tools/doctor/gpu.h"
#include "tools/doctor/mpi.h"

namespace stagegpt::test {
namespace {

constexpr const char* kH100 = "NVIDIA H100 80GB HBM3, 550.54.15, 9.0, 81559\n";
constexpr const char* kTable =
    "Sun Nov 22 04:00:00 2026\n"
    "+-----------------------------------------------------------------------------------------+\n"
    "| NVIDIA-SMI 550.54.15              Driver Version: 550.54.15      CUDA Version: 12.4     |\n"
    "|-----------------------------------------+------------------------+----------------------+\n";

TEST(DoctorOfTheProcessor, ReadsFilesOfTheKernel) {
  EXPECT_EQ(parse_cpu_quota("150000 100000\n"), 1.5);
  for (const char* none : {"max 100000\n", "", "-1 100000", "200000"})
    EXPECT_FALSE(parse_cpu_quota(none)) << none;
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

TEST(DoctorOfRoom, CountsWhatTrainingTakes) {
  const MemoryNeeds counted = memory_needs();
  EXPECT_LT(counted.nano_bytes, counted.gpt2_bytes / 10);
  EXPECT_GT(counted.gpt2_bytes, 16 * 124e6);  // weights, gradients and moments
}

}  // namespace
}  // namespace stagegpt::test
