// --comm zero2: zero1-overlapped that divides the gradients too. No rank has an arena of gradients. The tape
// allocates the gradient of a parameter at its first contribution. When those of a bucket are complete, they
// are packed into a buffer, freed, and reduce-scattered; the rank keeps its slice and frees the buffer.
// Rajbhandari et al., arXiv:1910.02054, section 5.2.
//
// So a rank needs memory for its slices, the largest parameter, and a few buckets. There is no place for sums
// of whole gradients: each micro-step is reduced, and adds to the slices. (Sums of many micro-steps without
// communication are what zero1-overlapped is for.)
#pragma once

#include <algorithm>
#include <deque>
#include <vector>

#include "stage1_mpi/sync/zero1_overlapped_sync.h"

namespace stagegpt {

class Zero2Sync final : public Zero1OverlappedSync {
 public:
  using Zero1OverlappedSync::Zero1OverlappedSync;

  bool divides_gradients() const override { return true; }
  std::unique_ptr<GradientSync> planned(Communicator& communicator, Backend& backend) const override {
    return std::make_unique<Zero2Sync>(communicator, backend, bucket_bytes_);
  }

  void ready(Parameters& parameters, int i) override {
    const auto row = static_cast<std::size_t>(i);
    complete_.push_back({parameters.table()[row].offset, parameters.take_grad(row)});
    for (const ArenaRange& range : order(parameters).ready(i)) reduce(parameters, range);
    for (const Reduction& one : reductions_) one.pending->progress();
  }

  void finish_micro_step(Parameters& parameters) override {
    for (const ArenaRange& range : order(parameters).finish()) reduce(parameters, range);
    while (!reductions_.empty()) keep_own_slice(parameters);
    clock_.stop();
    adds_ = true;
  }

  void finish(Parameters& parameters) override {
    finish_micro_step(parameters);
    adds_ = false;
  }

 private:
  static constexpr std::size_t kInFlight = 2;  // buckets

  // Of one parameter.
  struct Gradient {
    std::int64_t offset;  // in the arena
    Tensor grad;
  };
  struct Reduction {
    ArenaRange range;
    Tensor bucket;  // (range.size())
    std::unique_ptr<Pending> pending;
  };

  void reduce(const Parameters& parameters, const ArenaRange& range) {
    if (reductions_.size() == kInFlight) keep_own_slice(parameters);
    const Tensor bucket = packed(parameters, range);
    clock_.start(bucket);
    reductions_.push_back({range, bucket, communicator_.reduce_scatter(bucket)});
  }

  // The gradients in a range of the arena; zero where there is none. Those that begin in it are freed,
  // because buckets are reduced from the end of the arena to its beginning.
  Tensor packed(const Parameters& parameters, const ArenaRange& range) {
    const Tensor bucket = backend_.zeros(parameters.weights().dtype(), {range.size()});
    for (const auto& [offset, grad] : complete_) {
      const std::int64_t begin = std::max(range.begin, offset),
                         end = std::min(range.end, offset + grad.numel());
      if (begin < end)
        backend_.copy(bucket.slice(begin - range.begin, {end - begin}),
                      grad.slice(begin - offset, {end - begin}));
    }
    std::erase_if(complete_, [&](const Gradient& gradient) { return gradient.offset >= range.begin; });
    return bucket;
  }

  // Waits for the oldest reduction, and frees its bucket.
  void keep_own_slice(const Parameters& parameters) {
    const Reduction reduction = std::move(reductions_.front());
    reductions_.pop_front();
    reduction.pending->wait();
    const ArenaRange own = slice_of(reduction.range);
    const Tensor sum = parameters.grads(own);
    const Tensor slice = reduction.bucket.slice(own.begin - reduction.range.begin, sum.shape());
    adds_ ? backend_.add(sum, sum, slice) : backend_.copy(sum, slice);
  }

  std::vector<Gradient> complete_;  // of which elements are in no bucket yet
  std::deque<Reduction> reductions_;
  bool adds_ = false;  // micro-steps after the first one of a step
};

}  // namespace stagegpt
