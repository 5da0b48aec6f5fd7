// The shape of a tensor: at most four extents, outermost first.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <initializer_list>
#include <ostream>
#include <span>

#include "common/base/error.h"

namespace stagegpt {

class Shape {
 public:
  static constexpr int kMaxRank = 4;
  static constexpr std::int64_t kMaxElements = std::int64_t{1} << 56;  // so that their bytes fit into 64 bits

  Shape() = default;
  Shape(std::initializer_list<std::int64_t> dims) {
    check(dims.size() <= kMaxRank, "shape: at most ", kMaxRank, " dimensions, not ", dims.size());
    for (std::int64_t dim : dims) {
      check(dim >= 0, "shape: negative extent ", dim);
      dims_[rank_++] = dim;
    }
  }

  int rank() const { return rank_; }
  // Extent of dimension i; negative i counts from the end.
  std::int64_t operator[](int i) const {
    const int index = i < 0 ? i + rank_ : i;
    check(index >= 0 && index < rank_, "shape: dimension ", i, " of ", rank_);
    return dims_[index];
  }
  std::int64_t numel() const {
    std::int64_t n = 1;
    for (std::int64_t dim : dims()) {
      check(!__builtin_mul_overflow(n, dim, &n) && n <= kMaxElements, "shape: ", *this,
            " has too many elements");
    }
    return n;
  }
  std::span<const std::int64_t> dims() const { return {dims_.data(), static_cast<std::size_t>(rank_)}; }

  friend bool operator==(const Shape& a, const Shape& b) { return std::ranges::equal(a.dims(), b.dims()); }
  friend std::ostream& operator<<(std::ostream& out, const Shape& shape) {
    out << '(';
    for (int i = 0; i < shape.rank_; ++i) out << (i ? ", " : "") << shape.dims_[i];
    return out << ')';
  }

 private:
  std::array<std::int64_t, kMaxRank> dims_{};
  int rank_ = 0;
};

}  // namespace stagegpt
