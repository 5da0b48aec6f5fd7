// How the passes of a training step follow each other: one after the other here, or as a pipeline overlaps
// them (pipeline.h). A pass is the forward and the backward of one micro-batch on this rank.
#pragma once

#include <cstdint>
#include <functional>
#include <utility>

#include "common/autograd/tape.h"

namespace stagegpt {

// What a step does in its passes, which are numbered from 0.
class PassWork {
 public:
  virtual ~PassWork() = default;
  // Sends the inputs of a pass to the backend, which may compute another pass meanwhile.
  virtual void fetch(std::int64_t) {}
  // Waits until the inputs of this pass are there.
  virtual void begin(std::int64_t) {}
  // Returns the loss. A stage of a pipeline continues `before`, the residual stream of the stage before it,
  // which is empty on the first stage. All stages but the last return their stream.
  virtual Var forward(Tape& tape, std::int64_t pass, Var before) = 0;
  // `out` is what forward() has returned. If it is a stream, its value has been freed, and `dout` is its
  // gradient; for a loss, `dout` is undefined.
  virtual void backward(Tape& tape, std::int64_t pass, Var out, Tensor dout) = 0;
  // After the backward of a pass.
  virtual void end(std::int64_t) {}
  // Calls both(), which is forward() and backward() of a pass that overlaps no other one. An implementation
  // may repeat what an earlier pass has recorded (Backend::repeat()).
  virtual void compute(std::int64_t, const std::function<void()>& both) { both(); }
  // Called where stages exchange streams, even if this one has none to exchange.
  virtual void exchanged() {}

 protected:
  // The backward of a loss, or of a stream whose gradient is `dout`.
  static void run_backward(Tape& tape, Var& out, Tensor dout) {
    if (!dout.defined()) return tape.backward(out);
    tape.backward({std::move(out)}, {std::move(dout)});
  }
};

class PassSchedule {
 public:
  virtual ~PassSchedule() = default;
  // Calls the functions of `work` for passes 0, 1, …, each function in this order of passes. The gradient of
  // the loss is `loss_scale`.
  virtual void run(std::int64_t passes, double loss_scale, PassWork& work) = 0;
  // The most passes whose inputs and activations are needed at a time.
  virtual std::int64_t most_in_flight() const { return 1; }
};

// One pass after the other.
class PlainSchedule final : public PassSchedule {
 public:
  explicit PlainSchedule(Backend& backend) : backend_(backend) {}

  void run(std::int64_t passes, double loss_scale, PassWork& work) override {
    work.fetch(0);
    for (std::int64_t pass = 0; pass < passes; ++pass) {
      work.begin(pass);
      work.compute(pass, [&] {
        Tape tape(backend_, Tape::Mode::training, loss_scale);
        Var loss = work.forward(tape, pass, Var());
        work.backward(tape, pass, std::move(loss), Tensor());
      });
      work.end(pass);
      if (pass + 1 < passes) work.fetch(pass + 1);
    }
  }

 private:
  Backend& backend_;
};

}  // namespace stagegpt
