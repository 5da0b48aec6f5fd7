// What is known of devices, by the names that nvidia-smi prints.
#include "stage2_cuda/peak_table.h"

#include <gtest/gtest.h>

#include <string>

namespace stagegpt::gpu::test {
namespace {

std::optional<double> f32(std::string_view device) { return data_sheet_flops(device, Precision::f32); }
std::optional<double> tf32(std::string_view device) { return data_sheet_flops(device, Precision::tf32); }

TEST(PeakTable, knows_devices_by_the_names_nvidia_smi_prints) {
  EXPECT_EQ(f32("NVIDIA A100-SXM4-80GB"), 19.5e12);
  EXPECT_EQ(tf32("NVIDIA A100 80GB PCIe"), 156e12);
  EXPECT_EQ(tf32("NVIDIA H100 80GB HBM3"), 494.5e12);
  EXPECT_EQ(f32("NVIDIA H200"), 67e12);
  EXPECT_EQ(tf32("NVIDIA H200"), 494.5e12);
  EXPECT_EQ(tf32("NVIDIA B200"), 1100e12);
  EXPECT_EQ(f32("NVIDIA GeForce RTX 4090"), 82.6e12);
}

TEST(PeakTable, the_longest_name_that_fits_is_meant) {
  EXPECT_EQ(f32("NVIDIA H100 PCIe"), 51e12);
  EXPECT_EQ(f32("NVIDIA H200 NVL"), 60e12);
  EXPECT_EQ(f32("NVIDIA GeForce RTX 4070"), 29.1e12);
  EXPECT_EQ(f32("NVIDIA GeForce RTX 4070 Ti"), 40.1e12);
  EXPECT_EQ(f32("NVIDIA GeForce RTX 4070 Ti SUPER"), 44.1e12);
}

// As NVIDIA's white papers on Ada and RTX Blackwell say.
TEST(PeakTable, geforce_computes_dense_tf32_as_fast_as_f32) {
  for (const char* model : {"4060", "4060 Ti", "4070", "4070 SUPER", "4070 Ti", "4070 Ti SUPER", "4080",
                            "4080 SUPER", "4090", "5070", "5070 Ti", "5080", "5090"}) {
    const std::string device = std::string("NVIDIA GeForce RTX ") + model;
    EXPECT_GT(f32(device), 10e12) << device;
    EXPECT_EQ(tf32(device), f32(device)) << device;
  }
}

TEST(PeakTable, nothing_is_made_up) {
  for (const char* device :
       {"", "NVIDIA", "emulated GPU", "NVIDIA L40", "NVIDIA L40S", "Tesla T4", "NVIDIA H100 64GB HBM2",
        "NVIDIA H200 MIG 1g.18gb", "NVIDIA GeForce RTX 4070 Laptop GPU", "NVIDIA GeForce RTX 5090 D"}) {
    EXPECT_EQ(f32(device), std::nullopt) << device;
    EXPECT_EQ(tf32(device), std::nullopt) << device;
  }
}

}  // namespace
}  // namespace stagegpt::gpu::test
