// Adam divides a gradient by its size. Of one that is next to zero, and so differs between machines by as
// much as it is large, it makes updates in opposite directions: a few weights in a million differ by two
// learning rates after the first step, and everything that is computed from them differs a little. A
// comparison has to take that for what it is.
#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

namespace stagegpt {

class AdamNoise {
 public:
  // Of each step, the gradients of each parameter, then its weights after the update.
  void see_gradients(const std::string& parameter, std::span<const float> actual,
                     std::span<const float> expected);
  void see_weights(std::span<const float> actual, std::span<const float> expected, bool is_vector);
  // Ends a step.
  void next_step();

  // Makes those elements of a parameter zero whose gradients were noise in any step up to this one: they
  // differ by more than a thousandth.
  void leave_out(const std::string& parameter, std::vector<float>& weights) const;
  // What the weights that a step begins with may add to the error of what is computed from them: ten times as
  // much as they differ. Measured: twice to three times as much.
  double allowance() const;

 private:
  std::map<std::string, std::vector<bool>> noisy_;
  double drift_ = 0, next_drift_ = 0;  // largest relative error of a parameter, noise included
};

}  // namespace stagegpt
