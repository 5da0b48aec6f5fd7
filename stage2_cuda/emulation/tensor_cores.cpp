#include "stage2_cuda/emulation/tensor_cores.h"

namespace stagegpt::gpu {
namespace emulation {
namespace {

// What a lane gives to an instruction, and where its result goes.
struct MmaLane {
  FragmentC& c;
  const FragmentA& a;
  const FragmentB& b;
};
struct MatrixLane {
  const MatrixRow& row;
  FragmentA result;
};

float first_of(Bf16Pair pair) { return float_of_bf16(static_cast<std::uint16_t>(pair)); }
float second_of(Bf16Pair pair) { return float_of_bf16(static_cast<std::uint16_t>(pair >> 16)); }

float tf32_of(std::uint32_t word) { return std::bit_cast<float>(word & ~std::uint32_t{0x1FFF}); }

// c += a·b, in f32, with kTerms columns of a. Each element adds its products in order; a GPU's order is not
// documented. A word of a or b has two bf16 (kTerms = 16) or one number of TF32 (kTerms = 8).
template <unsigned kTerms>
void multiply_add(void* const (&lanes)[kWarpSize]) {
  float a[16][kTerms], b[kTerms][8], c[16][8];
  for (unsigned lane = 0; lane < kWarpSize; ++lane) {
    const MmaLane& self = *static_cast<const MmaLane*>(lanes[lane]);
    const unsigned g = lane / 4, t = lane % 4;
    for (unsigned i = 0; i < 4; ++i) {
      const std::uint32_t word = self.a.pair[i];
      const unsigned row = g + i % 2 * 8;
      if constexpr (kTerms == 16) {
        a[row][2 * t + i / 2 * 8] = first_of(word);
        a[row][2 * t + i / 2 * 8 + 1] = second_of(word);
      } else {
        a[row][t + i / 2 * 4] = tf32_of(word);
      }
      c[g + i / 2 * 8][2 * t + i % 2] = self.c.v[i];
    }
    for (unsigned i = 0; i < 2; ++i) {
      const std::uint32_t word = self.b.pair[i];
      if constexpr (kTerms == 16) {
        b[2 * t + i * 8][g] = first_of(word);
        b[2 * t + i * 8 + 1][g] = second_of(word);
      } else {
        b[t + i * 4][g] = tf32_of(word);
      }
    }
  }
  for (unsigned row = 0; row < 16; ++row) {
    for (unsigned k = 0; k < kTerms; ++k) {
      for (unsigned column = 0; column < 8; ++column) c[row][column] += a[row][k] * b[k][column];
    }
  }
  for (unsigned lane = 0; lane < kWarpSize; ++lane) {
    for (unsigned i = 0; i < 4; ++i) {
      static_cast<const MmaLane*>(lanes[lane])->c.v[i] = c[lane / 4 + i / 2 * 8][2 * (lane % 4) + i % 2];
    }
  }
}

// Lane 8m + r has given row r of matrix m.
template <bool transposed>
void distribute_rows(void* const (&lanes)[kWarpSize]) {
  const auto element = [&](unsigned matrix, unsigned row, unsigned column) {
    const unsigned lane = 8 * matrix + (transposed ? column : row);
    return Bf16Pair{static_cast<const MatrixLane*>(lanes[lane])->row.v[transposed ? row : column].bits};
  };
  for (unsigned lane = 0; lane < kWarpSize; ++lane) {
    for (unsigned matrix = 0; matrix < 4; ++matrix) {
      const unsigned row = lane / 4, column = 2 * (lane % 4);
      static_cast<MatrixLane*>(lanes[lane])->result.pair[matrix] =
          element(matrix, row, column) | element(matrix, row, column + 1) << 16;
    }
  }
}

}  // namespace

FragmentA exchange_rows(const char* call, const MatrixRow& row, bool transposed, Where where) {
  MatrixLane lane{row, {}};
  current_block->together(call, &lane, transposed ? distribute_rows<true> : distribute_rows<false>, where);
  return lane.result;
}

}  // namespace emulation

void mma_m16n8k16(FragmentC& c, const FragmentA& a, const FragmentB& b, std::source_location where) {
  emulation::need_capability(80);
  emulation::MmaLane lane{c, a, b};
  emulation::current_block->together("mma_m16n8k16", &lane, emulation::multiply_add<16>, where);
}

void mma_m16n8k8(FragmentC& c, const FragmentA& a, const FragmentB& b, std::source_location where) {
  emulation::need_capability(80);
  emulation::MmaLane lane{c, a, b};
  emulation::current_block->together("mma_m16n8k8", &lane, emulation::multiply_add<8>, where);
}

}  // namespace stagegpt::gpu
