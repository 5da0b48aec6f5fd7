#include "common/backend/ops/elementwise.h"

#include "common/backend/op_work.h"
#include "common/tensor/quantised_rows.h"

namespace stagegpt {

void Fill::check(const Checks& checks) const { checks.present(out, "out"); }

Work Fill::work() const { return {0, moved(out)}; }

void Copy::check(const Checks& checks) const {
  checks.present(in, "in");
  checks.elements(out, in.dtype(), in.numel(), "out");
}

Work Copy::work() const { return {0, moved(out, in)}; }

void Add::check(const Checks& checks) const {
  checks.real(a, "a");
  checks.elements(b, a.dtype(), a.numel(), "b");
  checks.elements(out, a.dtype(), a.numel(), "out");
}

Work Add::work() const { return {elements(out), moved(out, a, b)}; }

void Cast::check(const Checks& checks) const {
  const bool narrows = !out.defined() || out.dtype() == DType::bf16;
  checks.dtype(in, narrows ? DType::f32 : DType::bf16, "in");
  checks.elements(out, narrows ? DType::bf16 : DType::f32, in.numel(), "out");
}

Work Cast::work() const { return {elements(out), moved(out, in)}; }

void QuantiseRows::check(const Checks& checks) const {
  checks.dtype(in, DType::f32, "in");
  checks.that(in.shape().rank() == 2, "a matrix of shape (O,I)");
  checks.shape(out, DType::i8, {in.shape()[0], quantised_width(in.shape()[1])}, "out");
}

Work QuantiseRows::work() const { return Cast{out, in}.work(); }

void IdsInPart::check(const Checks& checks) const {
  checks.dtype(in, DType::i32, "in");
  checks.shape(out, DType::i32, in.shape(), "out");
  checks.that(first >= 0 && count > 0 && absent >= count, "an id outside the part for absent tokens");
}

Work IdsInPart::work() const { return Copy{out, in}.work(); }

}  // namespace stagegpt
