// Adam normalises a gradient by its size. For an element whose true gradient is almost zero, the computed
// gradient is mostly rounding error, which differs between machines. Adam then updates the weight in
// different directions: after the first step, a few weights in a million differ by two learning rates, and
// all that is computed from them differs slightly. A comparison must allow for this noise.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace stagegpt {

class AdamNoise {
 public:
  // To be called in each step: with the gradients of each parameter, then with its weights after the update.
  void add_gradients(const std::string& parameter, std::span<const float> actual,
                     std::span<const float> expected);
  void add_weights(std::span<const float> actual, std::span<const float> expected, bool is_vector);
  // Ends a step.
  void next_step();

  // Sets those elements of a parameter to zero whose gradients were noise in this or an earlier step: their
  // relative difference was more than 1e-3.
  void remove_noise(const std::string& parameter, std::vector<float>& weights) const;
  // Additional relative error allowed in a step, because its initial weights differ: ten times their
  // difference. The measured factor is two to three.
  double allowance() const;

 private:
  std::map<std::string, std::vector<bool>> noisy_;
  double drift_ = 0, next_drift_ = 0;  // largest relative error of a parameter, noise included
};

// A vector that is added to all keys of a sequence does not change attention: it adds the same number to all
// scores of a query, which softmax cancels. So the true gradient of the keys' part of c_attn.bias is zero,
// and the computed one is rounding error. Adam normalises it to updates of the usual size, which differ
// between machines. Comparisons leave this part out.

// Removes this part from a tensor of a trace: subtracts the mean over T from the keys in c_attn's output
// (B,T,3C), and sets the keys' part of its bias and of the bias's gradient (3C) to zero. Other tensors are
// unchanged.
void remove_softmax_invariant(std::string_view tensor, const std::vector<std::int64_t>& shape,
                              std::vector<float>& values);

}  // namespace stagegpt
