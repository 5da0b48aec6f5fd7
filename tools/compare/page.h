// DIR/index.html: a comparison's report as one page that needs nothing else.
#pragma once

#include <string>

#include "tools/compare/comparison.h"

namespace stagegpt::compare {

std::string page(const Comparison& comparison);

}  // namespace stagegpt::compare
