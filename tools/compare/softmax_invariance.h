// A vector that is added to all keys of a sequence does not change attention: it adds the same number to all
// scores of a query, which softmax cancels. So the true gradient of the keys' part of c_attn.bias is zero,
// and the computed one is rounding error. Adam normalises it to updates of the usual size, which differ
// between machines. Comparisons leave this part out.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace stagegpt {

// Removes this part from a tensor of a trace: subtracts the mean over T from the keys in c_attn's output
// (B,T,3C), and sets the keys' part of its bias and of the bias's gradient (3C) to zero. Other tensors are
// unchanged.
void remove_softmax_invariant(std::string_view tensor, const std::vector<std::int64_t>& shape,
                              std::vector<float>& values);

}  // namespace stagegpt
