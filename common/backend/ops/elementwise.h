#pragma once

#include "common/backend/op.h"

namespace stagegpt {

// out = value, in every element.
struct Fill {
  static constexpr const char* kName = "fill";
  const Tensor& out;
  double value;

  void check(const Checks& checks) const;
  Work work() const;
  auto operands() const { return std::array{&out}; }
};

// out = in: the same dtype and number of elements.
struct Copy {
  static constexpr const char* kName = "copy";
  const Tensor &out, &in;

  void check(const Checks& checks) const;
  Work work() const;
  auto operands() const { return std::array{&out, &in}; }
};

// out = a + b, element by element; `out` may be `a`.
struct Add {
  static constexpr const char* kName = "add";
  const Tensor &out, &a, &b;

  void check(const Checks& checks) const;
  Work work() const;
  auto operands() const { return std::array{&out, &a, &b}; }
};

// out = in, from f32 to bf16, rounded to nearest, ties to even, or from bf16 to f32; same number of
// elements.
struct Cast {
  static constexpr const char* kName = "cast";
  const Tensor &out, &in;

  void check(const Checks& checks) const;
  Work work() const;
  auto operands() const { return std::array{&out, &in}; }
};

// out i8 (O,I+4) = in f32 (O,I), quantised by rows: quantised_rows.h.
struct QuantiseRows {
  static constexpr const char* kName = "quantise_rows";
  const Tensor &out, &in;

  void check(const Checks& checks) const;
  Work work() const;
  auto operands() const { return std::array{&out, &in}; }
};

// out i32 = in - first where that is in [0, count), and `absent` elsewhere, in the shape of `in`: the ids
// of tokens in a part of the vocabulary.
struct IdsInPart {
  static constexpr const char* kName = "ids_in_part";
  const Tensor &out, &in;
  std::int64_t first, count, absent;

  void check(const Checks& checks) const;
  Work work() const;
  auto operands() const { return std::array{&out, &in}; }
};

}  // namespace stagegpt
