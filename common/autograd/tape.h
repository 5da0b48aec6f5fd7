// Reverse-mode automatic differentiation. The tape records ops in the order in which they run; backward()
// visits them in reverse order.
//
// An op calls its forward kernel, and then record() with a closure that computes its backward (see
// ops/*.cpp). The closure holds the tensors that the backward needs. The tape destroys a closure as soon as
// it has run, and this frees the tensors that nothing else uses.
//
// Gradients are not set to zero first: the first contribution to a gradient overwrites it, later ones
// accumulate, and a gradient that is not needed is skipped. The tape tells each kernel which of the three to
// do (GradMode).
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/backend/backend.h"

namespace stagegpt {

// Collects the gradient of one variable.
struct GradSlot {
  DType dtype = DType::f32;
  Shape shape;
  Tensor grad;           // given for most leaves; otherwise allocated at the first contribution
  bool written = false;  // holds a gradient: the next contribution accumulates
  bool leaf = false;
  int leaf_id = -1;   // the number that the leaf's owner gave it
  int consumers = 0;  // of a leaf: ops that use it and whose backward has not run yet
};

// A tensor and, if it needs one, its gradient. A Var is a handle: copies share both.
class Var {
 public:
  Var() = default;
  // An input or a constant, which needs no gradient.
  explicit Var(Tensor value) : value_(std::move(value)) {}
  // A leaf, a variable that no op has computed: here one that needs no gradient. Its owner gives it a number.
  Var(Tensor value, int leaf_id) : value_(std::move(value)), leaf_id_(leaf_id) {}
  // A leaf that needs one. Its gradient is collected in `grad`, which the caller owns; that of a
  // parameter in bf16 is f32.
  Var(Tensor value, Tensor grad, int leaf_id = -1);
  // A leaf whose gradient is allocated at the first contribution; take_grad() moves it out.
  Var(Tensor value, DType grad_dtype, int leaf_id);

  const Tensor& value() const { return value_; }
  // Moves the value out of this handle: for an op that overwrites it if no other handle exists.
  Tensor take_value() { return std::exchange(value_, Tensor()); }
  bool needs_grad() const { return slot_ != nullptr; }
  // The gradient collected so far; undefined if there is none.
  Tensor grad() const { return slot_ && slot_->written ? slot_->grad : Tensor(); }
  // The number that a leaf's owner gave it; -1 for other variables.
  int leaf_id() const { return leaf_id_; }
  // For a leaf: true if its gradient has a contribution since clear_grad().
  bool grad_written() const { return slot_->written; }
  // For a leaf: moves its complete gradient out of it.
  Tensor take_grad() const { return std::exchange(slot_->grad, Tensor()); }
  // For a leaf: the next contribution overwrites the gradient.
  void clear_grad() const { slot_->written = false; }

 private:
  friend class Tape;
  friend class Grads;
  Tensor value_;
  int leaf_id_ = -1;
  std::shared_ptr<GradSlot> slot_;
};

// Passed to an op's backward: where the gradients of its inputs go.
class Grads {
 public:
  Grads(Backend& backend, std::span<const std::shared_ptr<GradSlot>> inputs)
      : backend_(backend), inputs_(inputs) {}

  // The tensor and the mode with which a kernel has to write the gradient of input i. To be called once for
  // each contribution: it allocates the tensor if need be, and from then on the gradient counts as written.
  Grad operator[](std::size_t i);
  // Alternatively, passes on a gradient of input i that exists already. A tensor that something else uses too
  // is copied before anything is added to it.
  void give(std::size_t i, const Tensor& grad);
  // `saved` itself if the caller has the only handle to its storage, otherwise a new tensor of the same
  // shape.
  Tensor reuse(const Tensor& saved);
  // A tensor with the elements of `grad` that may be modified: `grad` itself if nothing else uses its
  // storage, otherwise a copy.
  Tensor writable(const Tensor& grad);

 private:
  Backend& backend_;
  std::span<const std::shared_ptr<GradSlot>> inputs_;
};

class Tape {
 public:
  enum class Mode { training, inference };

  using Backward = std::function<void(const Tensor& dout, Grads grads)>;
  using MultiBackward = std::function<void(std::vector<Tensor>& douts, Grads grads)>;
  // Called with a leaf's id when its gradient is complete.
  using ReadyHook = std::function<void(int leaf_id)>;
  using Function = std::function<std::vector<Var>(Tape& tape)>;
  using OpWatch =
      std::function<void(std::string_view op, std::span<const Var> inputs, std::span<const Var> outs)>;

  // An inference tape records nothing: what an op saves for its backward is freed at once. The gradient of
  // the loss is `loss_scale`.
  explicit Tape(Backend& backend, Mode mode = Mode::training, double loss_scale = 1)
      : backend_(backend), mode_(mode), loss_scale_(loss_scale) {}
  ~Tape();
  Tape(const Tape&) = delete;
  Tape& operator=(const Tape&) = delete;

  Backend& backend() const { return backend_; }
  Mode mode() const { return mode_; }

  // Records an op with one output; `name` outlives the tape, as a literal does. No two inputs that need
  // a gradient may be the same variable. `backward` receives the gradient of the output; it is not called if
  // the output has no gradient.
  Var record(std::string_view name, std::vector<Var> inputs, Tensor out, Backward backward);
  // Records an op with several outputs. An output without a gradient is passed as zeros, if another one has a
  // gradient.
  std::vector<Var> record(std::string_view name, std::vector<Var> inputs, std::vector<Tensor> outs,
                          MultiBackward backward);

  // Calls `function` now, and keeps its outputs but not the tensors in between: the backward calls it again
  // to have them (activation checkpointing; Chen et al., arXiv:1604.06174). Both calls must compute the same.
  // What `function` captures stays in memory until then. Each output must be the output of an op.
  //
  // This is one op of the tape. Its inputs are the variables that `function` uses. A leaf among them is ready
  // after the backward of the second call.
  std::vector<Var> recompute(Function function);

  // Calls `watch` after each op with its name, inputs and outputs, also on an inference tape. An input that
  // the op has overwritten has no value; as the output of an earlier op it had one. Of
  // recompute(), the watch sees the ops of the first call.
  void on_op(OpWatch watch) { op_watch_ = std::move(watch); }

  // Calls `hook` for each leaf that this tape uses, after the backward of the last op that uses it: once,
  // even if several ops use it. If the leaf has no contribution by then, its gradient is set to zero before
  // the call.
  void on_leaf_ready(ReadyHook hook) { leaf_ready_ = std::move(hook); }

  // Adds loss_scale times the derivative of `loss` (one element) to the gradient of every leaf. A tape has at
  // most one backward.
  void backward(const Var& loss);
  // Adds the derivative of Σ ⟨outputs[i], douts[i]⟩ to the gradient of every leaf: a backward from several
  // outputs, whose gradients are given (a vector-Jacobian product), without loss_scale. The values of
  // `outputs` are not read. If the arguments are moved in, the tape frees them early and reuses their memory.
  void backward(std::vector<Var> outputs, std::vector<Tensor> douts);
  // For an op that computes gradients in its forward: the gradient (1) that backward() will pass to it. The
  // op calls this before its record(); it must be the last one on the tape, and its output the loss.
  Tensor loss_gradient(DType dtype);

  // Names of the recorded ops, in order.
  std::vector<std::string> op_names() const;

 private:
  struct Node {
    std::string_view name;
    std::vector<std::shared_ptr<GradSlot>> inputs;
    std::vector<std::shared_ptr<GradSlot>> outputs;
    MultiBackward backward;
  };

  // As record(), but without a call of the watch.
  std::vector<Var> add_node(std::string_view name, const std::vector<Var>& inputs, std::vector<Tensor> outs,
                            MultiBackward backward);
  void run_backward(Node& node);

  Backend& backend_;
  Mode mode_;
  double loss_scale_;
  Tensor loss_gradient_;                  // given to an op in its forward
  std::optional<std::size_t> loss_node_;  // index of this op's node
  std::vector<Node> nodes_;
  ReadyHook leaf_ready_;
  OpWatch op_watch_;
  bool backward_done_ = false;
};

}  // namespace stagegpt
