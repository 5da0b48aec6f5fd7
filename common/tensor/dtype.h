// Element types of tensors.
#pragma once

#include <cstddef>
#include <cstdint>
#include <ostream>

namespace stagegpt {

// i8 is an element of a quantised matrix: quantised_rows.h.
enum class DType : std::uint8_t { f32, f64, i32, bf16, i8 };

// An element of bf16, the upper half of an f32. Conversions: half_floats.h.
struct Bf16 {
  std::uint16_t bits;
};

constexpr std::size_t size_of(DType dtype) {
  switch (dtype) {
    case DType::f32:
    case DType::i32:
      return 4;
    case DType::f64:
      return 8;
    case DType::bf16:
      return 2;
    case DType::i8:
      return 1;
  }
  return 0;
}

constexpr const char* name_of(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return "f32";
    case DType::f64:
      return "f64";
    case DType::i32:
      return "i32";
    case DType::bf16:
      return "bf16";
    case DType::i8:
      return "i8";
  }
  return "?";
}

// The dtype of statistics (mean, lse, loss) and of parameters' gradients where activations are `activations`.
// bf16 has eight bits of significand, too few for sums.
constexpr DType statistics_dtype(DType activations) {
  return activations == DType::bf16 ? DType::f32 : activations;
}

inline std::ostream& operator<<(std::ostream& out, DType dtype) { return out << name_of(dtype); }

// The DType of a C++ type; other types do not compile.
template <class T>
inline constexpr DType kDTypeOf = T::unsupported_element_type;
template <>
inline constexpr DType kDTypeOf<float> = DType::f32;
template <>
inline constexpr DType kDTypeOf<double> = DType::f64;
template <>
inline constexpr DType kDTypeOf<std::int32_t> = DType::i32;
template <>
inline constexpr DType kDTypeOf<Bf16> = DType::bf16;
template <>
inline constexpr DType kDTypeOf<std::int8_t> = DType::i8;

}  // namespace stagegpt
