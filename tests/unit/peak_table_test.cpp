// The peak FLOP/s of devices, by the names that nvidia-smi prints.
#include "stage2_cuda/peak_table.h"

#include <gtest/gtest.h>

#include <string>

namespace stagegpt::gpu::test {
namespace {

std::optional<double> f32(std::string_view device) { return data_sheet_flops(device, Precision::f32); }
std::optional<double> tf32(std::string_view device) { return data_sheet_flops(device, Precision::tf32); }

// The dense rates of the same data sheets, half of those with sparsity; for the RTX 4090 of the Ada white
// paper.
TEST(PeakTable, has_rates_in_bf16) {
  const auto bf16 = [](std::string_view device) { return data_sheet_flops(device, Precision::bf16); };
  EXPECT_EQ(bf16("NVIDIA A100-SXM4-80GB"), 312e12);
  EXPECT_EQ(bf16("NVIDIA H100 80GB HBM3"), 989e12);
  EXPECT_EQ(bf16("NVIDIA GeForce RTX 4090"), 165.2e12);
}

// Dense rates in TFLOP/s. The sources are in peak_table.cpp. Data sheets give TF32 rates with sparsity, which
// are twice the dense rates. GeForce computes dense TF32 as fast as f32 (NVIDIA's white papers on Ada and RTX
// Blackwell). Of several names that fit, the longest is meant: H200 NVL, 4070 Ti SUPER.
TEST(PeakTable, has_the_rates_of_the_data_sheets) {
  struct Sheet {
    const char* device;
    double f32, tf32;
  };
  for (const auto& [device, single, tensor] : {Sheet{"NVIDIA A100-PCIE-40GB", 19.5, 312 / 2.0},
                                               {"NVIDIA A100-SXM4-80GB", 19.5, 312 / 2.0},
                                               {"NVIDIA A100 80GB PCIe", 19.5, 312 / 2.0},
                                               {"NVIDIA H100 80GB HBM3", 67, 989 / 2.0},
                                               {"NVIDIA H100 PCIe", 51, 756 / 2.0},
                                               {"NVIDIA H100 NVL", 60, 835 / 2.0},
                                               {"NVIDIA H200", 67, 989 / 2.0},
                                               {"NVIDIA H200 NVL", 60, 835 / 2.0},
                                               {"NVIDIA B200", 75, 2200 / 2.0},
                                               {"NVIDIA L4", 30.3, 120 / 2.0},
                                               {"NVIDIA GeForce RTX 4060", 15.1, 15.1},
                                               {"NVIDIA GeForce RTX 4060 Ti", 22.1, 22.1},
                                               {"NVIDIA GeForce RTX 4070", 29.1, 29.1},
                                               {"NVIDIA GeForce RTX 4070 SUPER", 35.5, 35.5},
                                               {"NVIDIA GeForce RTX 4070 Ti", 40.1, 40.1},
                                               {"NVIDIA GeForce RTX 4070 Ti SUPER", 44.1, 44.1},
                                               {"NVIDIA GeForce RTX 4080", 48.7, 48.7},
                                               {"NVIDIA GeForce RTX 4080 SUPER", 52.2, 52.2},
                                               {"NVIDIA GeForce RTX 4090", 82.6, 82.6},
                                               {"NVIDIA GeForce RTX 5070", 30.9, 30.9},
                                               {"NVIDIA GeForce RTX 5070 Ti", 43.9, 43.9},
                                               {"NVIDIA GeForce RTX 5080", 56.3, 56.3},
                                               {"NVIDIA GeForce RTX 5090", 104.8, 104.8}}) {
    EXPECT_EQ(f32(device), single * 1e12) << device;
    EXPECT_EQ(tf32(device), tensor * 1e12) << device;
  }
}

TEST(PeakTable, nothing_is_made_up) {
  for (const char* device :
       {"", "NVIDIA", "emulated GPU", "NVIDIA L40", "NVIDIA L40S", "Tesla T4", "NVIDIA H100 64GB HBM2",
        "NVIDIA H200 MIG 1g.18gb", "NVIDIA GeForce RTX 4070 Laptop GPU", "NVIDIA GeForce RTX 4090 D",
        "NVIDIA GeForce RTX 5090 D"}) {
    EXPECT_EQ(f32(device), std::nullopt) << device;
    EXPECT_EQ(tf32(device), std::nullopt) << device;
  }
}

}  // namespace
}  // namespace stagegpt::gpu::test
