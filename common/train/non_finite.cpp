#include "common/train/non_finite.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace stagegpt {
namespace {

// On the host, element by element: the square of a large number may be infinite.
bool all_finite(Backend& backend, const Tensor& tensor) {
  const auto finite = [](auto x) { return std::isfinite(x); };
  if (tensor.dtype() == DType::f64) return std::ranges::all_of(to_host<double>(backend, tensor), finite);
  return std::ranges::all_of(to_host<float>(backend, tensor), finite);
}

// "h.3.mlp.c_fc" for "h.3.mlp.c_fc.weight".
std::string layer_of(const std::string& parameter) { return parameter.substr(0, parameter.rfind('.')); }

// Follows a forward pass until something is not finite.
class Search {
 public:
  Search(Backend& backend, const Parameters& parameters) : backend_(backend), parameters_(parameters) {}

  void look(const char* op, std::span<const Var> inputs, std::span<const Var> outputs) {
    if (found_) return;
    std::string layer;
    for (const Var& input : inputs) {
      if (input.leaf_id() < 0) continue;
      const std::string& name = parameters_.table()[static_cast<std::size_t>(input.leaf_id())].name;
      if (layer.empty()) layer = layer_of(name);
      if (!all_finite(backend_, input.value())) found_ = "the weight " + name;
    }
    for (std::size_t i = 0; i < outputs.size() && !found_; ++i) {
      if (!all_finite(backend_, outputs[i].value()))
        found_ = output_name(op, layer, outputs.size() > 1 && i == 0);
    }
    if (!layer.empty()) last_layer_ = layer;
  }
  const std::optional<std::string>& found() const { return found_; }

 private:
  // A fused op's first output is what its layer gets: the stream with a branch added to it.
  std::string output_name(const std::string& op, const std::string& layer, bool before_layer) const {
    if (before_layer) return concat("the residual stream before ", layer);
    if (!layer.empty()) return concat("the output of ", layer, " (", op, ")");
    return concat("the output of ", op, ", after ", last_layer_);
  }

  Backend& backend_;
  const Parameters& parameters_;
  std::string last_layer_ = "nothing";
  std::optional<std::string> found_;
};

}  // namespace

double unsigned_nan(double x) { return std::isnan(x) ? std::numeric_limits<double>::quiet_NaN() : x; }

std::optional<std::string> first_non_finite_output(Backend& backend, const Gpt2& model, const Tensor& ids,
                                                   const Tensor& targets, const DropoutPosition& dropout) {
  Search search(backend, model.parameters());
  Tape tape(backend, Tape::Mode::inference);
  tape.on_op([&](const char* op, std::span<const Var> inputs, std::span<const Var> outputs) {
    search.look(op, inputs, outputs);
  });
  model.loss(tape, ids, targets, dropout);
  return search.found();
}

std::optional<std::string> first_non_finite_gradient(Backend& backend, const Parameters& parameters) {
  const Tensor squared_norm = backend.allocate(DType::f64, {1});
  for (std::size_t i = parameters.table().size(); i-- > 0;) {
    const Parameter& parameter = parameters.table()[i];
    backend.squared_norm(squared_norm, parameters.grads().slice(parameter.offset, parameter.arena_shape()));
    if (!std::isfinite(to_host<double>(backend, squared_norm)[0])) {
      return "the gradient of " + parameter.name;
    }
  }
  return std::nullopt;
}

}  // namespace stagegpt
