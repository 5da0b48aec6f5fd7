// DIR/index.html: the report of a comparison as one self-contained page.
#pragma once

#include <string>

#include "tools/compare/comparison.h"

namespace stagegpt::compare {

std::string page(const Comparison& comparison);

}  // namespace stagegpt::compare
