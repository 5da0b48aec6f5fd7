#include "tools/bench/gemm_bound.h"

#include <algorithm>

#include "common/autograd/ops/linear.h"
#include "common/backend/ops/adamw.h"
#include "common/backend/ops/elementwise.h"
#include "common/profile/peak.h"

namespace stagegpt {

GemmBound::GemmBound(Backend& backend, const LanguageModel& model, const AdamW& optimizer, StepSize size)
    : backend_(backend), model_(model), optimizer_(optimizer), size_(size) {
  const Parameters& parameters = model.parameters();
  std::int64_t inputs = 0, outputs = 0;
  // The head is wte, but not on a stage of a pipeline that has wte for the embedding alone.
  // A last stage has ln_f.
  const bool wte_is_head =
      model.config().tie_word_embeddings && model.parameters().table().find("ln_f.weight") >= 0;
  for (const Parameter& row : parameters.table().rows()) {
    // All matrices belong to linear layers, except the embeddings.
    if (row.shape.rank() != 2 || row.name == "wpe.weight" || (!wte_is_head && row.name == "wte.weight"))
      continue;
    const Shape shape = row.arena_shape();
    layers_.push_back({parameters.var(row.name).value(), parameters.grads().slice(row.offset, shape)});
    inputs = std::max(inputs, shape[1]);
    outputs = std::max(outputs, shape[0]);
  }
  // The head is the last layer: it is the first matrix of the table if it is wte, otherwise the last.
  if (wte_is_head) std::rotate(layers_.begin(), layers_.begin() + 1, layers_.end());
  const DType activations = parameters.activations();
  x_ = random_tensor(backend, {size.tokens * inputs});
  if (activations == DType::bf16) {
    const Tensor rounded = backend.allocate(DType::bf16, x_.shape());
    backend.run(Cast{rounded, x_});
    x_ = rounded;
  }
  dx_ = backend.allocate(activations, {size.tokens * inputs});
  out_ = backend.allocate(activations, {size.tokens * outputs});
  norm_ = backend.zeros(DType::f64, {1});
}

Tensor GemmBound::rows(const Tensor& buffer, std::int64_t columns) const {
  return buffer.slice(0, {size_.tokens, columns});
}

void GemmBound::products() const {
  for (std::int64_t micro = 0; micro < size_.micro_steps; ++micro) {
    micro_step(micro == 0 ? GradMode::overwrite : GradMode::accumulate);
  }
}

void GemmBound::micro_step(GradMode dw_mode) const {
  for (const auto& [w, dw] : layers_) {
    backend_.run(LinearForward{rows(out_, w.shape()[0]), rows(x_, w.shape()[1]), w, Tensor()});
  }
  // The first layer needs dX too, for the gradient of the embeddings.
  for (auto layer = layers_.rbegin(); layer != layers_.rend(); ++layer) {
    const auto& [w, dw] = *layer;
    backend_.run(LinearBackward{{rows(dx_, w.shape()[1]), GradMode::overwrite},
                                {dw, dw_mode},
                                Grad(),
                                rows(out_, w.shape()[0]),
                                rows(x_, w.shape()[1]),
                                w});
  }
}

void GemmBound::adamw() const {
  const Parameters& parameters = model_.parameters();
  // Calls the backend directly. With a learning rate of zero the weights do not change.
  for (const AdamW::Part& part : optimizer_.parts()) {
    const Shape shape{part.range.size()};
    const DecayRange all{0, part.range.size(), 0.1};
    const Tensor& shadows = parameters.shadow();
    backend_.run(AdamWUpdate{parameters.weights().slice(part.range.begin, shape),
                             shadows.defined() ? shadows.slice(part.range.begin, shape) : Tensor(),
                             part.moments.m,
                             part.moments.v,
                             parameters.grads(part.range),
                             norm_,
                             {&all, 1},
                             {.learning_rate = 0}});
  }
}

}  // namespace stagegpt
