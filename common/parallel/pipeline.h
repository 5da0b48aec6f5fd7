// Pipeline parallelism (Narayanan et al., arXiv:2104.04473, section 2.2): each stage computes its blocks for
// one micro-batch after the other. In the forward it receives the residual stream from the stage before and
// sends its own to the next one; in the backward, the gradient of what it has sent, and sends that of what it
// has received. The schedule is 1F1B, one forward and one backward in turn, shown for 3 stages and 5
// micro-batches:
//
//   stage 0   F0 F1 F2       B0 F3 B1 F4 B2    B3    B4
//   stage 1      F0 F1    B0 F2 B1 F3 B2 F4 B3    B4
//   stage 2         F0 B0 F1 B1 F2 B2 F3 B3 F4 B4
//
// Stage s of S holds the activations of at most S - s micro-batches.
//
// No order of the ranks can deadlock, even if a send lasts until the other rank receives. Let the transfer of
// forward m from stage s to s + 1 be at time 2m + s, and that of backward m from s + 1 to s at time
// 2m + 2(S - 1) - s. Every stage makes its transfers in the order of time. Two that it makes at the same time
// go to and from the same neighbour, for which they are at that time too: they are one exchange. So both
// ranks of the earliest transfer that has not happened have made all earlier ones: they wait for each other
// only.
#pragma once

#include <memory>

#include "common/comm/communicator.h"
#include "common/model/language_model.h"
#include "common/parallel/grid.h"
#include "common/parallel/pass_schedule.h"

namespace stagegpt {

class Pipeline final : public PassSchedule {
 public:
  // Rank s of `stages` has stage s. A residual stream that is sent has this shape and dtype. All are
  // borrowed.
  Pipeline(Backend& backend, Communicator& stages, const Shape& shape, DType dtype)
      : backend_(backend), stages_(stages), shape_(shape), dtype_(dtype) {}

  void run(std::int64_t passes, double loss_scale, PassWork& work) override;
  std::int64_t most_in_flight() const override { return ahead() + 1; }

 private:
  bool is_first() const { return stages_.rank() == 0; }
  bool is_last() const { return stages_.rank() + 1 == stages_.size(); }
  // Forwards before the first backward.
  std::int64_t ahead() const { return stages_.size() - 1 - stages_.rank(); }
  // Sends `out` to a stage, and receives `in` from it; either may be undefined.
  void transfer(const Tensor& out, const Tensor& in, int with, PassWork& work);
  Tensor stream() const { return backend_.allocate(dtype_, shape_); }

  Backend& backend_;
  Communicator& stages_;
  Shape shape_;
  DType dtype_;
};

// The schedule of a grid, for micro-batches of B sequences of T tokens. All are borrowed.
std::unique_ptr<PassSchedule> make_schedule(Backend& backend, const Grid& grid, const LanguageModel& model,
                                            std::int64_t B, std::int64_t T);

}  // namespace stagegpt
