#include "common/autograd/tape.h"

#include <algorithm>
#include <utility>

#include "common/backend/ops/elementwise.h"

namespace stagegpt {

Var::Var(Tensor value, Tensor grad, int leaf_id) : Var(std::move(value), grad.dtype(), leaf_id) {
  check(value_.shape() == grad.shape(), "tape: a leaf of shape ", value_.shape(),
        " with a gradient of shape ", grad.shape());
  slot_->grad = std::move(grad);
}

Var::Var(Tensor value, DType grad_dtype, int leaf_id)
    : value_(std::move(value)), leaf_id_(leaf_id), slot_(std::make_shared<GradSlot>()) {
  check(grad_dtype == value_.dtype() || grad_dtype == statistics_dtype(value_.dtype()), "tape: a leaf in ",
        value_.dtype(), " with a gradient in ", grad_dtype);
  slot_->dtype = grad_dtype;
  slot_->shape = value_.shape();
  slot_->leaf = true;
  slot_->leaf_id = leaf_id;
}

Grad Grads::operator[](std::size_t i) {
  GradSlot* slot = inputs_[i].get();
  if (slot == nullptr) return {Tensor(), GradMode::skip};
  if (!slot->written) {
    slot->written = true;
    if (!slot->grad.defined()) slot->grad = backend_.allocate(slot->dtype, slot->shape);
    return {slot->grad, GradMode::overwrite};
  }
  // That of a leaf is where its owner wants it, and is always added to in place.
  if (!slot->leaf) slot->grad = writable(slot->grad);
  return {slot->grad, GradMode::accumulate};
}

void Grads::give(std::size_t i, const Tensor& grad) {
  GradSlot* slot = inputs_[i].get();
  if (slot == nullptr) return;
  if (slot->written) {
    const Tensor sum = (*this)[i].tensor;
    backend_.run(Add{sum, sum, grad});
  } else if (slot->leaf) {
    backend_.copy((*this)[i].tensor, grad);
  } else {
    slot->grad = grad.view(slot->shape);
    slot->written = true;
  }
}

Tensor Grads::reuse(const Tensor& saved) {
  return saved.sole_owner() ? saved : backend_.allocate(saved.dtype(), saved.shape());
}

Tensor Grads::writable(const Tensor& grad) {
  if (grad.sole_owner()) return grad;
  Tensor out = backend_.allocate(grad.dtype(), grad.shape());
  backend_.copy(out, grad);
  return out;
}

// Ops whose backward has not run, because the tape was not used to the end, no longer count as consumers.
Tape::~Tape() {
  for (const Node& node : nodes_) {
    for (const auto& input : node.inputs) {
      if (input && input->leaf) --input->consumers;
    }
  }
}

Var Tape::record(std::string_view name, std::vector<Var> inputs, Tensor out, Backward backward) {
  return record(name, std::move(inputs), std::vector<Tensor>{std::move(out)},
                [backward = std::move(backward)](std::vector<Tensor>& douts, Grads grads) {
                  backward(douts[0], grads);
                })[0];
}

std::vector<Var> Tape::record(std::string_view name, std::vector<Var> inputs, std::vector<Tensor> outs,
                              MultiBackward backward) {
  std::vector<Var> vars = add_node(name, inputs, std::move(outs), std::move(backward));
  if (op_watch_) op_watch_(name, inputs, vars);
  return vars;
}

std::vector<Var> Tape::add_node(std::string_view name, const std::vector<Var>& inputs,
                                std::vector<Tensor> outs, MultiBackward backward) {
  std::vector<Var> vars;
  for (Tensor& out : outs) vars.emplace_back(std::move(out));
  if (mode_ == Mode::inference || std::ranges::none_of(inputs, &Var::needs_grad)) return vars;

  Node node{name, {}, {}, std::move(backward)};
  for (const Var& input : inputs) {
    check(!input.slot_ || std::ranges::find(node.inputs, input.slot_) == node.inputs.end(), "tape: ", name,
          " has the same variable as two of its inputs");
    if (input.slot_ && input.slot_->leaf) ++input.slot_->consumers;
    node.inputs.push_back(input.slot_);
  }
  for (Var& var : vars) {
    var.slot_ = std::make_shared<GradSlot>();
    var.slot_->dtype = var.value_.dtype();
    var.slot_->shape = var.value_.shape();
    node.outputs.push_back(var.slot_);
  }
  nodes_.push_back(std::move(node));
  return vars;
}

std::vector<Var> Tape::recompute(Function function) {
  std::vector<Var> inputs;
  Tape first(backend_, Mode::inference);
  first.on_op([&](std::string_view op, std::span<const Var> used, std::span<const Var> outs) {
    if (op_watch_) op_watch_(op, used, outs);
    for (const Var& var : used) {
      // What the function computes itself has no slot on an inference tape.
      if (var.slot_ && std::ranges::find(inputs, var.slot_, &Var::slot_) == inputs.end())
        inputs.push_back(var);
    }
  });
  std::vector<Tensor> outs;
  for (const Var& out : function(first)) {
    check(!out.needs_grad(), "tape: recompute with an output that no op has computed");
    outs.push_back(out.value());
  }
  return add_node("recompute", inputs, std::move(outs),
                  [&be = backend_, function = std::move(function)](std::vector<Tensor>& douts, Grads) {
                    // Grads are not used: the variables that `function` has captured have their slots, and
                    // the backward of this tape writes to them. `inputs` only counts consumers.
                    Tape second(be);
                    std::vector<Var> again = function(second);
                    second.backward(std::move(again), std::move(douts));
                  });
}

Tensor Tape::loss_gradient(DType dtype) {
  check(!loss_node_, "tape: two ops have asked for the gradient of the loss");
  loss_node_ = nodes_.size();
  loss_gradient_ = backend_.allocate(dtype, {1});
  backend_.fill(loss_gradient_, loss_scale_);
  return loss_gradient_;
}

void Tape::backward(const Var& loss) {
  check(loss.needs_grad() && loss.value().numel() == 1, "tape: backward needs a loss of one element");
  check(!loss_node_ || (nodes_.size() == *loss_node_ + 1 && nodes_.back().outputs[0] == loss.slot_),
        "tape: an op has computed its gradient as that of the loss, but is not the last one");
  std::vector<Tensor> seed = {std::exchange(loss_gradient_, Tensor())};
  if (!loss_node_) {
    seed[0] = backend_.allocate(loss.slot_->dtype, loss.slot_->shape);
    backend_.fill(seed[0], loss_scale_);
  }
  backward({loss}, std::move(seed));
}

void Tape::backward(std::vector<Var> outputs, std::vector<Tensor> douts) {
  check(!std::exchange(backward_done_, true), "tape: backward was called already");
  check(!loss_gradient_.defined(),
        "tape: an op has computed its gradient as that of the loss, which is not given");
  check(outputs.size() == douts.size(), "tape: ", outputs.size(), " outputs with ", douts.size(),
        " gradients");
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    const GradSlot* slot = outputs[i].slot_.get();
    if (slot == nullptr) continue;
    check(slot->shape == douts[i].shape(), "tape: an output of shape ", slot->shape,
          " with a gradient of shape ", douts[i].shape());
    check(slot->dtype == douts[i].dtype(), "tape: an output with a gradient in ", douts[i].dtype());
    Grads(backend_, {&outputs[i].slot_, 1}).give(0, douts[i]);
  }
  outputs.clear();
  douts.clear();
  while (!nodes_.empty()) {
    Node node = std::move(nodes_.back());
    nodes_.pop_back();
    run_backward(node);
  }
}

void Tape::run_backward(Node& node) {
  if (std::ranges::any_of(node.outputs, [](const auto& output) { return output->written; })) {
    // Moved out of the slots, so that a gradient that nothing else uses can be modified in place.
    std::vector<Tensor> douts;
    for (const auto& output : node.outputs) {
      douts.push_back(output->written ? std::exchange(output->grad, Tensor())
                                      : backend_.zeros(output->dtype, output->shape));
      output->written = false;
    }
    node.backward(douts, Grads(backend_, node.inputs));
  }
  node.backward = nullptr;  // frees what the op saved
  for (const auto& input : node.inputs) {
    if (!input || !input->leaf) continue;
    --input->consumers;
    if (input->consumers > 0 || !leaf_ready_) continue;
    if (!input->written) backend_.fill(Grads(backend_, {&input, 1})[0].tensor, 0);
    leaf_ready_(input->leaf_id);
  }
}

std::vector<std::string> Tape::op_names() const {
  std::vector<std::string> names;
  for (const Node& node : nodes_) names.emplace_back(node.name);
  return names;
}

}  // namespace stagegpt
