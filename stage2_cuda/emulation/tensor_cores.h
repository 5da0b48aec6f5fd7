// The instructions of tensor cores and of asynchronous copies, described in launch.h.
#pragma once

#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <type_traits>

#include "common/tensor/half_floats.h"
#include "stage2_cuda/emulation/vectors.h"
#include "stage2_cuda/warp_matrix.h"

namespace stagegpt::gpu {
namespace emulation {

struct alignas(16) MatrixRow {
  Bf16 v[8];
};

// Called by every lane of a warp with a row of a matrix. Returns the lane's part of the four matrices.
FragmentA exchange_rows(const char* call, const MatrixRow& row, bool transposed, Where where);

template <class T>
FragmentA load_matrices(const char* call, const SharedArray<T>& array, std::int64_t i, bool transposed,
                        Where where) {
  using Row = std::conditional_t<std::is_same_v<T, float>, Float4, MatrixRow>;
  return exchange_rows(call, std::bit_cast<MatrixRow>(load_vector<Row>(call, array, i)), transposed, where);
}

}  // namespace emulation

void mma_m16n8k16(FragmentC& c, const FragmentA& a, const FragmentB& b,
                  std::source_location where = std::source_location::current());

void mma_m16n8k8(FragmentC& c, const FragmentA& a, const FragmentB& b,
                 std::source_location where = std::source_location::current());

template <class T>
FragmentA ldmatrix_x4(const emulation::SharedArray<T>& array, std::int64_t i,
                      std::source_location where = std::source_location::current()) {
  return emulation::load_matrices("ldmatrix_x4", array, i, false, where);
}
inline FragmentA ldmatrix_x4_trans(const emulation::SharedArray<Bf16>& array, std::int64_t i,
                                   std::source_location where = std::source_location::current()) {
  return emulation::load_matrices("ldmatrix_x4_trans", array, i, true, where);
}

inline Bf16Pair rounded_pair(float first, float second) {
  return bf16_of_float(first) | Bf16Pair{bf16_of_float(second)} << 16;
}

inline std::uint32_t rounded_tf32(float x) {
  return std::bit_cast<std::uint32_t>(x) + (std::isfinite(x) ? 0x1000U : 0U);
}

template <class T>
void cp_async_16(const emulation::SharedArray<T>& to, std::int64_t i, const T* from, bool valid) {
  emulation::check_alignment("cp_async_16", static_cast<const T*>(to.span().data), i);
  emulation::check_alignment("cp_async_16", from, 0);
  std::array<std::byte, emulation::kCopyBytes> bytes = {};
  if (valid) std::memcpy(bytes.data(), from, bytes.size());
  emulation::current_block->copies().begin(to.span(), i, bytes);
}
inline void cp_async_wait_all() { emulation::current_block->copies().wait(); }

}  // namespace stagegpt::gpu
