// Matrices that the 32 lanes of a warp hold together, as mma.sync and ldmatrix lay them out (PTX ISA, "Matrix
// fragments for mma.m16n8k16" and "… mma.m16n8k8"). With g = lane / 4 and t = lane % 4, a lane holds the
// elements below. In TF32, a word holds one number in place of a pair: A is 16×8, with column t in place of
// columns 2t and 2t+1, and t+4 in place of 2t+8 and 2t+9; B is 8×8, with rows t and t+4.
#pragma once

#include <cstdint>

namespace stagegpt::gpu {

// Two neighbouring bf16; the first is in the lower half.
using Bf16Pair = std::uint32_t;

// A, 16×16, or four matrices of 8×8: the pairs at row g, columns 2t and 2t+1 of rows 0 to 7, columns 0 to 7;
// of rows 8 to 15, columns 0 to 7; of rows 0 to 7, columns 8 to 15; of rows 8 to 15, columns 8 to 15.
struct FragmentA {
  Bf16Pair pair[4];
};

// B, 16×8: column g, rows 2t and 2t+1, and rows 2t+8 and 2t+9.
struct FragmentB {
  Bf16Pair pair[2];
};

// C, 16×8: (g, 2t), (g, 2t+1), (g+8, 2t), (g+8, 2t+1).
struct FragmentC {
  float v[4];
};

}  // namespace stagegpt::gpu
