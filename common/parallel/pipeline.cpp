#include "common/parallel/pipeline.h"

#include <deque>
#include <memory>
#include <utility>

#include "common/parallel/divided_gpt2.h"

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

void Pipeline::transfer(const Tensor& out, const Tensor& in, int with, PassWork& work) {
  if (out.defined() && in.defined()) {
    stages_.exchange(out, in, with);
  } else if (out.defined()) {
    stages_.send(out, with)->wait();
  } else if (in.defined()) {
    stages_.receive(in, with)->wait();
  }
  work.exchanged();
}

void Pipeline::run(std::int64_t passes, double loss_scale, PassWork& work) {
  const int before = stages_.rank() - 1, next = stages_.rank() + 1;
  std::deque<InFlight> in_flight;
  work.fetch(0);
  Tensor received = is_first() ? Tensor() : stream();
  transfer({}, received, before, work);
  for (std::int64_t turn = 0; turn < passes + ahead(); ++turn) {
    const std::int64_t first = turn - ahead();  // of the passes in flight
    Tensor out, dout, dbefore;
    if (turn < passes) {
      InFlight newest{std::make_unique<Tape>(backend_, Tape::Mode::training, loss_scale), {}, {}};
      if (!is_first()) newest.before = Var(std::exchange(received, Tensor()), dtype_, /*leaf_id=*/-1);
      work.begin(turn);
      newest.out = work.forward(*newest.tape, turn, newest.before);
      newest.before.take_value();
      if (!is_last()) out = newest.out.take_value();
      in_flight.push_back(std::move(newest));
      if (turn + 1 < passes) work.fetch(turn + 1);
    }
    if (first >= 0 && !is_last()) dout = stream();
    transfer(std::exchange(out, Tensor()), dout, next, work);
    if (first >= 0) {
      InFlight oldest = std::move(in_flight.front());
      in_flight.pop_front();
      work.backward(*oldest.tape, first, std::move(oldest.out), std::move(dout));
      work.end(first);
      if (!is_first()) dbefore = oldest.before.take_grad();
    }
    if (turn + 1 < passes && !is_first()) received = stream();
    transfer(dbefore, received, before, work);
  }
}

std::unique_ptr<PassSchedule> make_schedule(Backend& backend, const Grid& grid, const LanguageModel& model,
                                            std::int64_t B, std::int64_t T) {
  if (grid.pipeline().size() == 1) return std::make_unique<PlainSchedule>(backend);
  return std::make_unique<Pipeline>(backend, grid.pipeline(), stream_shape(model.config(), grid, B, T),
                                    model.parameters().activations());
}

}  // namespace stagegpt
