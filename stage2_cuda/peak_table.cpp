// Sources, all by NVIDIA. Where a data sheet gives TF32 with sparsity only, half of that is the dense rate.
//   A100              A100 Tensor Core GPU data sheet (June 2021): FP32 19.5, TF32 156 | 312 with sparsity
//   H100              H100 Tensor Core GPU data sheet: SXM FP32 67, TF32 989 with sparsity; NVL 60 and 835;
//                     PCIe (its edition of 2022) 51 and 756
//   H200              H200 Tensor Core GPU data sheet: SXM 67 and 989; NVL 60 and 835, with sparsity
//   B200              Blackwell data sheet, HGX B200: FP32 75, TF32 2,200 with sparsity
//   L4                L4 Tensor Core GPU data sheet: FP32 30.3, TF32 120 with sparsity
//   GeForce RTX 40    Ada GPU architecture white paper, appendix; for others than 4080 and 4090 twice the
//                     cores times the boost clock of the product page. Dense TF32 is as fast as FP32.
//   GeForce RTX 50    RTX Blackwell GPU architecture white paper, appendices. Dense TF32 is as fast as FP32.
// BF16 with sums in f32 is twice as fast as TF32 in all of them.
#include "stage2_cuda/peak_table.h"

namespace stagegpt::gpu {
namespace {

struct Row {
  std::string_view name;  // the first words of the device's name
  double f32, tf32;       // TFLOP/s; 0 if unknown
};

constexpr Row kTable[] = {
    {"NVIDIA A100", 19.5, 156},
    {"NVIDIA H100 80GB HBM3", 67, 494.5},
    {"NVIDIA H100 PCIe", 51, 378},
    {"NVIDIA H100 NVL", 60, 417.5},
    {"NVIDIA H200", 67, 494.5},
    {"NVIDIA H200 NVL", 60, 417.5},
    {"NVIDIA B200", 75, 1100},
    {"NVIDIA L4", 30.3, 60},
    {"NVIDIA GeForce RTX 4060", 15.1, 15.1},
    {"NVIDIA GeForce RTX 4060 Ti", 22.1, 22.1},
    {"NVIDIA GeForce RTX 4070", 29.1, 29.1},
    {"NVIDIA GeForce RTX 4070 SUPER", 35.5, 35.5},
    {"NVIDIA GeForce RTX 4070 Ti", 40.1, 40.1},
    {"NVIDIA GeForce RTX 4070 Ti SUPER", 44.1, 44.1},
    {"NVIDIA GeForce RTX 4080", 48.7, 48.7},
    {"NVIDIA GeForce RTX 4080 SUPER", 52.2, 52.2},
    {"NVIDIA GeForce RTX 4090", 82.6, 82.6},
    {"NVIDIA GeForce RTX 4090 D", 0, 0},
    {"NVIDIA GeForce RTX 5070", 30.9, 30.9},
    {"NVIDIA GeForce RTX 5070 Ti", 43.9, 43.9},
    {"NVIDIA GeForce RTX 5080", 56.3, 56.3},
    {"NVIDIA GeForce RTX 5090", 104.8, 104.8},
    {"NVIDIA GeForce RTX 5090 D", 0, 0},
};

// Whether `name` begins with `words`, as whole words: "NVIDIA L40" does not begin with "NVIDIA L4".
bool begins_with_words(std::string_view name, std::string_view words) {
  if (!name.starts_with(words)) return false;
  return name.size() == words.size() || name[words.size()] == ' ' || name[words.size()] == '-';
}

bool says(std::string_view name, std::string_view word) { return name.find(word) != std::string_view::npos; }

// On tensor cores, bf16 with sums in f32 is twice as fast as TF32.
double tflops_of(const Row& row, Precision precision) {
  if (precision == Precision::f32) return row.f32;
  return precision == Precision::bf16 ? 2 * row.tf32 : row.tf32;
}

}  // namespace

std::optional<double> data_sheet_flops(std::string_view device, Precision precision) {
  if (says(device, " MIG ") || says(device, "Laptop")) return std::nullopt;
  const Row* longest = nullptr;
  for (const Row& row : kTable) {
    if (!begins_with_words(device, row.name)) continue;
    if (longest == nullptr || row.name.size() > longest->name.size()) longest = &row;
  }
  const double tflops = longest == nullptr ? 0 : tflops_of(*longest, precision);
  if (tflops == 0) return std::nullopt;
  return tflops * 1e12;
}

}  // namespace stagegpt::gpu
