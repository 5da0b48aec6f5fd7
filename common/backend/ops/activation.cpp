#include "common/backend/ops/activation.h"

#include <array>
#include <utility>

#include "common/backend/op_work.h"

namespace stagegpt {
namespace {

constexpr std::array<std::pair<Activation, std::string_view>, 4> kActivationNames = {{
    {Activation::none, "none"},
    {Activation::gelu_new, "gelu_new"},
    {Activation::gelu, "gelu"},
    {Activation::relu, "relu"},
}};

}  // namespace

std::string_view name_of(Activation activation) {
  return kActivationNames[static_cast<std::size_t>(activation)].second;
}

std::optional<Activation> activation_named(std::string_view name) {
  for (const auto& [activation, known] : kActivationNames) {
    if (known == name) return activation;
  }
  return std::nullopt;
}

double forward_flops(Activation activation) {
  switch (activation) {
    case Activation::none:
      return 0;
    case Activation::relu:
      return 1;
    case Activation::gelu:  // ½x · (1 + erf(x/√2))
      return 5;
    case Activation::gelu_new:  // ½x · (1 + tanh(x · (a + b·x·x)))
      return 8;
  }
  return 0;
}

double backward_flops(Activation activation) {
  switch (activation) {
    case Activation::none:
      return 0;
    case Activation::relu:
      return 1;
    case Activation::gelu:  // ½ + ½·erf(a·x) + x · b·exp(-½·x·x)
      return 4 + 6 + 1;
    case Activation::gelu_new:  // ½ + ½·t + ½x · (1 - t·t) · (a + c·x·x), t = tanh(x · (a + b·x·x))
      return 5 + 2 + 8 + 1;
  }
  return 0;
}

void ActivationForward::check(const Checks& checks) const {
  checks.real(x, "x");
  checks.shape(out, x.dtype(), x.shape(), "out");
}

Work ActivationForward::work() const { return {elements(out) * forward_flops(activation), moved(out, x)}; }

void ActivationBackward::check(const Checks& checks) const {
  checks.real(x, "x");
  checks.shape(dout, x.dtype(), x.shape(), "dout");
  checks.grad(dx, x.dtype(), x.shape(), "dx");
}

Work ActivationBackward::work() const {
  return {elements(x) * backward_flops(activation), moved(dx, dout, x)};
}

}  // namespace stagegpt
