// Collectives and point-to-point messages of tensors between ranks.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "common/base/error.h"
#include "common/comm/rank_group.h"
#include "common/tensor/tensor.h"

namespace stagegpt {

// An asynchronous operation in progress. Until it is done, its tensors must not be read or written, and it
// must not be destroyed.
class Pending {
 public:
  virtual ~Pending() = default;
  // Returns when work that is given to this rank's backend from now on sees the result.
  virtual void wait() = 0;
  // Advances the operation as far as possible without blocking. Returns whether it is done.
  virtual bool progress() = 0;
};

// Every rank must make the same calls in the same order, and wait for their results in this order too,
// because wait() advances only its own operation. Operations are in place: a tensor is both input and output.
class Communicator {
 public:
  explicit Communicator(RankGroup& group) : group_(group) {}
  virtual ~Communicator() = default;
  RankGroup& group() const { return group_; }
  int rank() const { return group_.rank(); }
  int size() const { return group_.size(); }

  // A communicator of all ranks with the same color, in the order of their keys, as RankGroup::split(). It
  // owns its group, and borrows what this communicator borrows. Collective call.
  virtual std::unique_ptr<Communicator> split(int color, int key) = 0;

  // Copies the root's elements to every rank.
  virtual void broadcast(const Tensor& tensor, int root) = 0;
  // The element-wise sum over ranks, the same bits on every rank. f32.
  virtual std::unique_ptr<Pending> all_reduce(const Tensor& tensor) = 0;
  // The tensor has size() equal slices. On rank r, slice r becomes the sum over ranks; the other slices are
  // undefined. f32.
  virtual std::unique_ptr<Pending> reduce_scatter(const Tensor& tensor) = 0;
  // Slice r of the tensor is copied from rank r to every rank. Any dtype.
  virtual std::unique_ptr<Pending> all_gather(const Tensor& tensor) = 0;
  // Point-to-point messages of any dtype. Messages between two ranks arrive in order.
  virtual std::unique_ptr<Pending> send(const Tensor& tensor, int to) = 0;
  virtual std::unique_ptr<Pending> receive(const Tensor& tensor, int from) = 0;
  // Sends `out` to another rank and receives `in` from it, at the same time; either may be empty.
  void exchange(const Tensor& out, const Tensor& in, int with) { start_exchange(out, in, with)->wait(); }
  virtual std::unique_ptr<Pending> start_exchange(const Tensor& out, const Tensor& in, int with);
  // Waits for all operations. Implementations may advance them concurrently.
  virtual void wait_all(const std::vector<std::unique_ptr<Pending>>& pending) {
    for (const auto& one : pending) one->wait();
  }

  // This rank's slice of a tensor. The number of elements must be divisible by the number of ranks.
  Tensor own_slice(const Tensor& tensor) const {
    check(tensor.numel() % size() == 0, "communicator: ", tensor.numel(), " elements among ", size());
    const std::int64_t slice = tensor.numel() / size();
    return tensor.slice(rank() * slice, {slice});
  }

 private:
  RankGroup& group_;
};

// Two operations as one.
class TwoPending final : public Pending {
 public:
  TwoPending(std::unique_ptr<Pending> first, std::unique_ptr<Pending> second)
      : first_(std::move(first)), second_(std::move(second)) {}
  void wait() override {
    first_->wait();
    second_->wait();
  }
  bool progress() override {
    const bool first = first_->progress(), second = second_->progress();
    return first && second;
  }

 private:
  std::unique_ptr<Pending> first_, second_;
};

inline std::unique_ptr<Pending> Communicator::start_exchange(const Tensor& out, const Tensor& in, int with) {
  std::unique_ptr<Pending> receiving = receive(in, with);
  return std::make_unique<TwoPending>(std::move(receiving), send(out, with));
}

// Advances all operations in turn until all are done.
inline void progress_until_done(const std::vector<std::unique_ptr<Pending>>& pending) {
  for (std::size_t done = 0; done < pending.size();) {
    done = 0;
    for (const auto& one : pending) done += one->progress() ? 1 : 0;
  }
}

// An operation that is already complete.
class Done final : public Pending {
 public:
  void wait() override {}
  bool progress() override { return true; }
};

}  // namespace stagegpt
