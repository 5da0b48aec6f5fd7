// Vector loads and stores: of four floats, and of four and eight bf16.
#pragma once

#include <cstdint>

#include "common/tensor/dtype.h"
#include "stage2_cuda/emulation/shared_array.h"

namespace stagegpt::gpu {

struct alignas(16) Float4 {
  float x, y, z, w;
};

struct alignas(8) Bf16x4 {
  Bf16 v[4];
};

struct alignas(16) Bf16x8 {
  Bf16 v[8];
};

namespace emulation {

// Throws KernelError for a misaligned address.
[[noreturn]] void fail_alignment(const char* call, std::int64_t i, std::size_t bytes);

template <class T>
void check_alignment(const char* call, const T* array, std::int64_t i, std::size_t bytes = 16) {
  const auto address = reinterpret_cast<std::uintptr_t>(array) + static_cast<std::uintptr_t>(i) * sizeof(T);
  if (address % bytes != 0) [[unlikely]]
    fail_alignment(call, i, bytes);
}

}  // namespace emulation

inline Float4 load4(const float* array, std::int64_t i) {
  emulation::check_alignment("load4", array, i);
  return {array[i], array[i + 1], array[i + 2], array[i + 3]};
}

inline void store4(float* array, std::int64_t i, Float4 value) {
  emulation::check_alignment("store4", array, i);
  array[i] = value.x;
  array[i + 1] = value.y;
  array[i + 2] = value.z;
  array[i + 3] = value.w;
}

inline void store4(Bf16* array, std::int64_t i, const Bf16x4& value) {
  emulation::check_alignment("store4", array, i, sizeof value);
  for (int j = 0; j < 4; ++j) array[i + j] = value.v[j];
}

inline Bf16x8 load8(const Bf16* array, std::int64_t i) {
  emulation::check_alignment("load8", array, i);
  Bf16x8 value;
  for (int j = 0; j < 8; ++j) value.v[j] = array[i + j];
  return value;
}

inline void store8(Bf16* array, std::int64_t i, const Bf16x8& value) {
  emulation::check_alignment("store8", array, i);
  for (int j = 0; j < 8; ++j) array[i + j] = value.v[j];
}

inline Float4 load4(const emulation::SharedArray<float>& array, std::int64_t i) {
  emulation::check_alignment("load4", static_cast<const float*>(array.span().data), i);
  return {array[i], array[i + 1], array[i + 2], array[i + 3]};
}

inline Bf16x8 load8(const emulation::SharedArray<Bf16>& array, std::int64_t i) {
  emulation::check_alignment("load8", static_cast<const Bf16*>(array.span().data), i);
  Bf16x8 value;
  for (int j = 0; j < 8; ++j) value.v[j] = array[i + j];
  return value;
}

inline void store4(const emulation::SharedArray<float>& array, std::int64_t i, Float4 value) {
  emulation::check_alignment("store4", static_cast<const float*>(array.span().data), i);
  array[i] = value.x;
  array[i + 1] = value.y;
  array[i + 2] = value.z;
  array[i + 3] = value.w;
}

}  // namespace stagegpt::gpu
