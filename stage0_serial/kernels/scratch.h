// Memory of a thread for packed operands and blocks, kept between calls.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>

namespace stagegpt {

class Scratch {
 public:
  // Pieces of so many floats, contents undefined, each at the beginning of a cache line. They are valid until
  // the next call.
  template <std::size_t N>
  std::array<float*, N> pieces(const std::int64_t (&floats)[N]) {
    std::int64_t total = 0;
    for (const std::int64_t n : floats) total += whole_lines(n);
    reserve(total);
    std::array<float*, N> begins;
    float* at = data_.get();
    for (std::size_t i = 0; i < N; at += whole_lines(floats[i]), ++i) begins[i] = at;
    return begins;
  }

  static constexpr std::int64_t kLineFloats = 16;  // a cache line

 private:
  struct Free {
    void operator()(float* data) const { std::free(data); }
  };

  static std::int64_t whole_lines(std::int64_t floats) {
    return (floats + kLineFloats - 1) / kLineFloats * kLineFloats;
  }

  void reserve(std::int64_t floats) {
    if (floats <= size_) return;
    size_ = 0;
    data_.reset();  // before the new memory is taken
    data_.reset(static_cast<float*>(
        std::aligned_alloc(kLineFloats * sizeof(float), static_cast<std::size_t>(floats) * sizeof(float))));
    if (!data_) throw std::bad_alloc();
    size_ = floats;
  }

  std::unique_ptr<float, Free> data_;
  std::int64_t size_ = 0;
};

}  // namespace stagegpt
