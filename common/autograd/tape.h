// Reverse-mode differentiation. Ops are recorded in execution order; backward() walks them in reverse.
//
// An op is a forward call, a record() and a closure for the backward (see ops/*.cpp). A tensor lives as long
// as something holds it: the closure holds what backward needs, and the tape drops each closure as soon as it
// has run.
//
// Gradients are not zeroed. The first contribution to a gradient overwrites it, later ones accumulate, and
// what nobody asked for is skipped; the tape tells each kernel which (GradMode).
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "common/backend/backend.h"

namespace stagegpt {

// Where the gradient of one variable is collected.
struct GradSlot {
  DType dtype = DType::f32;
  Shape shape;
  Tensor grad;           // a leaf's is given; others' are allocated at the first contribution
  bool written = false;  // holds a gradient: the next contribution accumulates
  bool leaf = false;
  int leaf_id = -1;   // what the leaf's owner knows it by
  int consumers = 0;  // of a leaf: recorded ops whose backward has not run yet
};

// A tensor and, where it needs one, its gradient. A handle: copies share both.
class Var {
 public:
  Var() = default;
  // Without a gradient: inputs and constants.
  explicit Var(Tensor value) : value_(std::move(value)) {}
  // A leaf that collects its gradient in `grad`, which the caller owns.
  Var(Tensor value, Tensor grad, int leaf_id = -1);

  const Tensor& value() const { return value_; }
  bool needs_grad() const { return slot_ != nullptr; }
  // The gradient collected so far; undefined when there is none.
  Tensor grad() const { return slot_ && slot_->written ? slot_->grad : Tensor(); }
  // What a leaf's owner knows it by; -1 for anything else.
  int leaf_id() const { return slot_ ? slot_->leaf_id : -1; }
  // Of a leaf: true when it holds a gradient of this step.
  bool grad_written() const { return slot_->written; }
  // Forgets a leaf's gradient: the next contribution overwrites it.
  void clear_grad() const { slot_->written = false; }

 private:
  friend class Tape;
  friend class Grads;
  Tensor value_;
  std::shared_ptr<GradSlot> slot_;
};

// What an op's backward sees: where the gradient of each of its inputs goes.
class Grads {
 public:
  Grads(Backend& backend, std::span<const std::shared_ptr<GradSlot>> inputs)
      : backend_(backend), inputs_(inputs) {}

  // The buffer and mode for a kernel to write the gradient of input i. The kernel must write it.
  Grad operator[](std::size_t i);
  // Hands over a finished gradient of input i instead. Shared buffers are copied before they are added to.
  void give(std::size_t i, const Tensor& grad);
  // `saved` itself when the caller holds the only handle to its memory, else new memory of its shape.
  Tensor reuse(const Tensor& saved);
  // A tensor with the elements of `grad` that may be written: `grad` itself when nothing else holds it.
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
  using OpWatch = std::function<void(const char* op, std::span<const Var> inputs, std::span<const Var> outs)>;

  // An inference tape records nothing: ops run forward, and what they save is freed at once.
  explicit Tape(Backend& backend, Mode mode = Mode::training) : backend_(backend), mode_(mode) {}
  ~Tape();
  Tape(const Tape&) = delete;
  Tape& operator=(const Tape&) = delete;

  Backend& backend() const { return backend_; }

  // Records an op with one output. The inputs that need a gradient must differ. `backward` gets the gradient
  // of the output; it is not called when no gradient reaches the op.
  Var record(const char* name, std::vector<Var> inputs, Tensor out, Backward backward);
  // The same with several outputs. Gradients that did not arrive are passed as zeros.
  std::vector<Var> record(const char* name, std::vector<Var> inputs, std::vector<Tensor> outs,
                          MultiBackward backward);

  // Calls `watch` after each op, with its name, inputs and outputs, also when nothing is recorded.
  void on_op(OpWatch watch) { op_watch_ = std::move(watch); }

  // Calls `hook` for each leaf used on this tape when its last consumer's backward has run: once for a leaf
  // that several ops share. A leaf that no gradient has reached is zeroed first.
  void on_leaf_ready(ReadyHook hook) { leaf_ready_ = std::move(hook); }

  // Adds `scale` times the derivative of `loss` (one element) to the gradient of every leaf. At most once for
  // a tape.
  void backward(const Var& loss, double scale = 1);

  // Names of the recorded ops, in order.
  std::vector<std::string> op_names() const;

 private:
  struct Node {
    const char* name;
    std::vector<std::shared_ptr<GradSlot>> inputs;
    std::vector<std::shared_ptr<GradSlot>> outputs;
    MultiBackward backward;
  };

  void run_backward(Node& node);

  Backend& backend_;
  Mode mode_;
  std::vector<Node> nodes_;
  ReadyHook leaf_ready_;
  OpWatch op_watch_;
  bool backward_done_ = false;
};

}  // namespace stagegpt
