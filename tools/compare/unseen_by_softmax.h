// A vector added to all keys of a sequence changes no attention: it adds the same number to every score of a
// query, and softmax takes it away. So the keys' part of c_attn.bias has no gradient, but for rounding; Adam,
// which divides by the size of a gradient, makes updates of that as large as any other, and different ones on
// every machine. Comparisons leave this out.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace stagegpt {

// Makes comparable what a trace holds: of c_attn's output (B,T,3C), the keys lose their mean over T; of its
// bias, and of the gradient of that, (3C), the keys' part becomes zero. Other tensors stay.
void leave_out_unseen(std::string_view tensor, const std::vector<std::int64_t>& shape,
                      std::vector<float>& values);

}  // namespace stagegpt
