// Blocks on a multiprocessor, and the registers of kernels as ptxas prints them.
#include "stage2_cuda/emulation/profile/occupancy.h"

#include <gtest/gtest.h>

#include <sstream>
#include <string>

#include "tests/emulation/emulated.h"

namespace stagegpt::test {
namespace {

using namespace gpu::emulation;

struct Case {
  int capability;
  unsigned threads;
  std::size_t shared_bytes;
  unsigned registers, blocks;
  std::string limit;
};

// The blocks are those of cudaOccMaxActiveBlocksPerMultiprocessor() in CUDA's cuda_occupancy.h. By hand,
// where registers bind: a warp takes 32 r registers, rounded up to 256. A quarter of the multiprocessor has
// 16,384 of them, for a whole number of warps; four times that number, by the warps of a block, is the number
// of blocks.
TEST(Occupancy, is_that_of_cuda) {
  const Case cases[] = {
      {80, 256, 0, 0, 8, "threads"},      // 2048 / 256
      {80, 256, 0, 32, 8, "threads"},     // as many by registers: 16384 / 1024 = 16, 4 · 16 / 8
      {80, 256, 0, 33, 6, "registers"},   // 1056 become 1280: 12 warps, 4 · 12 / 8
      {80, 256, 0, 40, 6, "registers"},   // 1280, as with 33
      {80, 256, 0, 255, 1, "registers"},  // 8192: 2 warps, 4 · 2 / 8
      {80, 160, 0, 136, 2, "registers"},  // 4352: 3 warps, 4 · 3 / 5. All 65,536 at once would allow 3
      {80, 1024, 0, 65, 0, "registers"},  // 2304: 7 warps, 4 · 7 / 32: cannot be launched
      {80, 256, 49152, 40, 3, "shared memory"},  // 164 KiB / 49 KiB
      {80, 256, 99328, 40, 1, "shared memory"},  // 164 KiB / 98 KiB
      {80, 64, 54912, 32, 3, "shared memory"},   // with 1 KiB more 55,936 = 437 · 128
      {80, 64, 54930, 32, 2, "shared memory"},   // 55,954 become 56,064
      {80, 32, 0, 16, 32, "blocks"},
      {80, 1000, 0, 32, 2, "threads"},  // 32 warps
      {75, 256, 0, 40, 4, "threads"},
      {75, 64, 0, 32, 16, "threads"},
      {75, 256, 20000, 40, 3, "shared memory"},
      {75, 256, 32768, 40, 2, "shared memory"},
      {75, 256, 61440, 40, 1, "shared memory"},
      {90, 256, 99328, 40, 2, "shared memory"},    // 228 KiB / 98 KiB
      {90, 512, 217088, 128, 1, "shared memory"},  // more than a block of compute capability 8.0 has
  };
  for (const Case& c : cases) {
    const EmulatedDevice device(c.capability);
    const Occupancy occupancy = occupancy_of(c.threads, c.shared_bytes, c.registers);
    EXPECT_EQ(occupancy.blocks, c.blocks) << c.threads << " threads, " << c.registers << " registers";
    EXPECT_EQ(occupancy.limit, c.limit) << c.threads << " threads, " << c.registers << " registers";
  }
}

// As nvcc 13.0 prints it with -Xptxas -v.
constexpr const char* kPtxas = R"(ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function '_ZN8stagegpt3gpu24layernorm_forward_kernelIfLi4EEEvPT_S3_PfS4_PKS2_S6_PKfS8_fll' for 'sm_80'
ptxas info    : Function properties for _ZN8stagegpt3gpu24layernorm_forward_kernelIfLi4EEEvPT_S3_PfS4_PKS2_S6_PKfS8_fll
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 42 registers, used 0 barriers, 440 bytes cmem[0]
ptxas info    : Compile time = 1215.037 ms
ptxas info    : Compiling entry function '_ZN8stagegpt3gpu19layernorm_v2_kernelEPfS1_S1_PKfS3_S3_fl' for 'sm_80'
ptxas info    : Function properties for _ZN8stagegpt3gpu19layernorm_v2_kernelEPfS1_S1_PKfS3_S3_fl
    8 bytes stack frame, 8 bytes spill stores, 12 bytes spill loads
ptxas info    : Used 40 registers, used 1 barriers, 2048 bytes smem, 416 bytes cmem[0]
)";

TEST(Occupancy, reads_what_ptxas_prints) {
  std::istringstream in(kPtxas);
  const ResourceTable table = parsed_resources(in);
  ASSERT_EQ(table.size(), 2U);
  EXPECT_EQ(table.at("layernorm_forward_kernel<float, 4>").registers, 42U);
  EXPECT_EQ(table.at("layernorm_forward_kernel<float, 4>").spill_bytes, 0U);
  EXPECT_EQ(table.at("layernorm_v2_kernel").registers, 40U);
  EXPECT_EQ(table.at("layernorm_v2_kernel").spill_bytes, 20U);
}

TEST(Occupancy, finds_kernels_without_their_default_arguments) {
  const ResourceTable table = {{"flash<Fma<32>, 32, float>", {64, 0}},
                               {"flash<Fma<64>, 64, float>", {96, 0}},
                               {"sum<1, float>", {10, 0}},
                               {"sum<1, int>", {20, 0}}};
  EXPECT_EQ(resources_of(table, "flash<Fma<32>, 32>").registers, 64U);
  EXPECT_EQ(resources_of(table, "flash<Fma<64>, 64, float>").registers, 96U);
  EXPECT_EQ(resources_of(table, "flash<Fma<3>, 3>").registers, 0U);
  EXPECT_EQ(resources_of(table, "sum<1>").registers, 0U);  // one of two
  EXPECT_EQ(resources_of(table, "flash").registers, 0U);
}

TEST(Occupancy, names_have_no_namespaces) {
  EXPECT_EQ(plain_name("stagegpt::gpu::sum<stagegpt::gpu::Fma<32>, 4>"), "sum<Fma<32>, 4>");
  EXPECT_EQ(plain_name("sum<float, a::b>"), "sum<float, b>");
}

}  // namespace
}  // namespace stagegpt::test
