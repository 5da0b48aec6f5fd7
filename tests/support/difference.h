// Describes how computed values differ from expected ones, for the messages of failing tests: the first wrong
// element, where the wrong elements are, and how they are related to the expected ones. Together these often
// name the mistake: "columns from 64 on" a tile that is not complete, "2 × what is expected" a gradient that
// is added twice.
#pragma once

#include <string>

#include "common/tensor/shape.h"
#include "tests/support/tensors.h"

namespace stagegpt::test {

// One or more lines. An element is wrong if it differs by more than `limit` times the root mean square of
// `expected`, or is NaN. Beside a large difference, those below 1e-6 of it (or of the root mean square, if
// that is smaller) are rounding errors, and not wrong. `limit` is that of the norm-wise relative error: a
// result that exceeds it has at least one wrong element.
std::string describe_difference(const Values& got, const Values& expected, const Shape& shape, double limit);

}  // namespace stagegpt::test
