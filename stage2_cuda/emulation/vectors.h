// Vector loads and stores: of four floats, and of four and eight bf16. Each is one access, of 16 or 8 bytes.
#pragma once

#include <cstdint>
#include <cstring>

#include "common/tensor/dtype.h"
#include "stage2_cuda/emulation/shared_array.h"
#include "stage2_cuda/warp_matrix.h"

namespace stagegpt::gpu {

struct alignas(16) Float4 {
  float x, y, z, w;
};

struct alignas(8) Bf16x4 {
  Bf16Pair pair[2];
};

struct alignas(16) Bf16x8 {
  Bf16Pair pair[4];
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

template <class Vector, class T>
Vector load_vector(const char* call, const T* array, std::int64_t i) {
  check_alignment(call, array, i, sizeof(Vector));
  Vector value;
  std::memcpy(&value, array + i, sizeof(Vector));
  return value;
}

template <class Vector, class T>
void store_vector(const char* call, T* array, std::int64_t i, const Vector& value) {
  check_alignment(call, array, i, sizeof(Vector));
  std::memcpy(array + i, &value, sizeof(Vector));
}

// Inlined, so that the profile knows the kernel's line of the access.
template <class Vector, class T>
[[gnu::always_inline]] inline Vector load_vector(const char* call, const SharedArray<T>& array,
                                                 std::int64_t i) {
  const T* const data = static_cast<const T*>(array.span().data);
  check_alignment(call, data, i, sizeof(Vector));
  constexpr auto kElements = static_cast<std::int64_t>(sizeof(Vector) / sizeof(T));
  for (std::int64_t j = 0; j < kElements; ++j) current_block->shared().read(array.span(), i + j);
  return load_vector<Vector>(call, data, i);
}

template <class Vector, class T>
[[gnu::always_inline]] inline void store_vector(const char* call, const SharedArray<T>& array, std::int64_t i,
                                                const Vector& value) {
  T* const data = static_cast<T*>(array.span().data);
  check_alignment(call, data, i, sizeof(Vector));
  constexpr auto kElements = static_cast<std::int64_t>(sizeof(Vector) / sizeof(T));
  for (std::int64_t j = 0; j < kElements; ++j) current_block->shared().write(array.span(), i + j);
  store_vector(call, data, i, value);
}

}  // namespace emulation

inline Float4 load4(const float* array, std::int64_t i) {
  return emulation::load_vector<Float4>("load4", array, i);
}
inline Float4 load4(const emulation::SharedArray<float>& array, std::int64_t i) {
  return emulation::load_vector<Float4>("load4", array, i);
}
inline void store4(float* array, std::int64_t i, Float4 value) {
  emulation::store_vector("store4", array, i, value);
}
inline void store4(const emulation::SharedArray<float>& array, std::int64_t i, Float4 value) {
  emulation::store_vector("store4", array, i, value);
}

inline Bf16x4 load4(const Bf16* array, std::int64_t i) {
  return emulation::load_vector<Bf16x4>("load4", array, i);
}
inline void store4(Bf16* array, std::int64_t i, const Bf16x4& value) {
  emulation::store_vector("store4", array, i, value);
}

inline Bf16x8 load8(const Bf16* array, std::int64_t i) {
  return emulation::load_vector<Bf16x8>("load8", array, i);
}
inline Bf16x8 load8(const emulation::SharedArray<Bf16>& array, std::int64_t i) {
  return emulation::load_vector<Bf16x8>("load8", array, i);
}
inline Float4 load_once(const float* array, std::int64_t i) { return load4(array, i); }
inline Bf16x8 load_once(const Bf16* array, std::int64_t i) { return load8(array, i); }
inline void store8(Bf16* array, std::int64_t i, const Bf16x8& value) {
  emulation::store_vector("store8", array, i, value);
}

}  // namespace stagegpt::gpu
