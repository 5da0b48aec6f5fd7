#include "common/parallel/pipeline.h"

#include <deque>
#include <memory>
#include <utility>

namespace stagegpt {
namespace {

// A micro-batch between its forward and its backward.
struct InFlight {
  std::unique_ptr<Tape> tape;
  // What the stage before has sent, and this stage's output: without the values, which the backward reads
  // only where an op has saved them. But on the last stage the output is the loss.
  Var before, out;
};

}  // namespace

void Pipeline::transfer(const Tensor& out, const Tensor& in, int with) {
  if (out.defined() && in.defined()) {
    stages_.exchange(out, in, with);
  } else if (out.defined()) {
    stages_.send(out, with)->wait();
  } else if (in.defined()) {
    stages_.receive(in, with)->wait();
  }
}

void Pipeline::run(std::int64_t micro_batches, double loss_scale, const Forward& forward,
                   const Backward& backward) {
  const int before = stages_.rank() - 1, next = stages_.rank() + 1;
  std::deque<InFlight> in_flight;
  Tensor received = is_first() ? Tensor() : stream();
  transfer({}, received, before);
  for (std::int64_t turn = 0; turn < micro_batches + ahead(); ++turn) {
    const std::int64_t first = turn - ahead();  // of the micro-batches in flight
    Tensor out, dout, dbefore;
    if (turn < micro_batches) {
      InFlight newest{std::make_unique<Tape>(backend_, Tape::Mode::training, loss_scale), {}, {}};
      if (!is_first()) newest.before = Var(std::exchange(received, Tensor()), dtype_, /*leaf_id=*/-1);
      newest.out = forward(*newest.tape, turn, newest.before);
      newest.before.take_value();
      if (!is_last()) out = newest.out.take_value();
      in_flight.push_back(std::move(newest));
    }
    if (first >= 0 && !is_last()) dout = stream();
    transfer(std::exchange(out, Tensor()), dout, next);
    if (first >= 0) {
      InFlight oldest = std::move(in_flight.front());
      in_flight.pop_front();
      backward(*oldest.tape, first, std::move(oldest.out), std::move(dout));
      if (!is_first()) dbefore = oldest.before.take_grad();
    }
    if (turn + 1 < micro_batches && !is_first()) received = stream();
    transfer(dbefore, received, before);
  }
}

}  // namespace stagegpt
