// Arrays in shared memory, as kernels declare them. Every access is checked.
#pragma once

#include <cstddef>
#include <cstdint>

#include "stage2_cuda/emulation/block.h"

namespace stagegpt::gpu::emulation {

// A reference to an element, which converts to T and can be assigned a T. (`auto x = array[i]` is a reference
// here but a copy in CUDA: write `float x`.)
template <class T>
class SharedElement {
 public:
  SharedElement(const SharedSpan& array, std::int64_t i) : array_(array), i_(i) {}
  SharedElement(const SharedElement&) = default;

  operator T() const {
    current_block->shared().read(array_, i_);
    return static_cast<const T*>(array_.data)[i_];
  }
  SharedElement& operator=(T value) {
    current_block->shared().write(array_, i_);
    static_cast<T*>(array_.data)[i_] = value;
    return *this;
  }
  SharedElement& operator=(const SharedElement& other) { return *this = static_cast<T>(other); }
  SharedElement& operator+=(T value) { return *this = static_cast<T>(T(*this) + value); }
  SharedElement& operator-=(T value) { return *this = static_cast<T>(T(*this) - value); }
  SharedElement& operator*=(T value) { return *this = static_cast<T>(T(*this) * value); }
  SharedElement& operator/=(T value) { return *this = static_cast<T>(T(*this) / value); }
  SharedElement& operator|=(T value) { return *this = static_cast<T>(T(*this) | value); }
  SharedElement& operator&=(T value) { return *this = static_cast<T>(T(*this) & value); }
  SharedElement& operator++() { return *this += T(1); }
  SharedElement& operator--() { return *this -= T(1); }

 private:
  const SharedSpan& array_;
  std::int64_t i_;
};

template <class T>
class SharedArray {
 public:
  explicit SharedArray(const SharedDeclaration& declaration)
      : span_(current_block->shared().array(declaration)) {}

  SharedElement<T> operator[](std::int64_t i) const { return {span_, i}; }
  const SharedSpan& span() const { return span_; }

 private:
  SharedSpan span_;
};

}  // namespace stagegpt::gpu::emulation

// `count` is a constant. Messages use the array's name.
#define STAGEGPT_SHARED(type, name, count)                                                      \
  static constexpr ::stagegpt::gpu::emulation::SharedDeclaration stagegpt_##name##_declaration{ \
      #name, sizeof(type), (count)};                                                            \
  const ::stagegpt::gpu::emulation::SharedArray<type> name(stagegpt_##name##_declaration)

// All dynamic shared memory of the launch; at most once per kernel.
#define STAGEGPT_DYNAMIC_SHARED(type, name) STAGEGPT_SHARED(type, name, 0)
