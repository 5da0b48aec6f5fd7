#include "common/backend/ops/sums.h"

#include "common/backend/backend.h"
#include "common/backend/op_work.h"

namespace stagegpt {

void SquaredNorm::check(const Checks& checks) const {
  checks.real(x, "x");
  checks.elements(out, DType::f64, out.numel() == 1 ? 1 : checks.backend().norm_blocks(x.numel()), "out");
}

Work SquaredNorm::work() const { return {2 * elements(x), moved(out, x)}; }

void AddNormBlocks::check(const Checks& checks) const {
  checks.dtype(blocks, DType::f64, "blocks");
  checks.elements(out, DType::f64, 1, "out");
}

Work AddNormBlocks::work() const { return Sum{out, blocks}.work(); }

void Sum::check(const Checks& checks) const {
  checks.dtype(x, DType::f64, "x");
  checks.elements(out, DType::f64, 1, "out");
}

Work Sum::work() const { return {elements(x), moved(out, x)}; }

}  // namespace stagegpt
