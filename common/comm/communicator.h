// What ranks do with each other's tensors.
#pragma once

#include <memory>
#include <vector>

#include "common/base/error.h"
#include "common/comm/rank_group.h"
#include "common/tensor/tensor.h"

namespace stagegpt {

// Something that is under way. Its tensors are neither read nor written by others before it is done; it is
// not destroyed before, either.
class Pending {
 public:
  virtual ~Pending() = default;
  // Returns when the result is in place on this rank, for the work that its backend gets from then on.
  virtual void wait() = 0;
  // Goes on as far as that is possible without waiting. Whether it is done.
  virtual bool progress() = 0;
};

// Every rank makes the same calls in the same order, and waits for what is under way in that order too:
// waiting moves only what is waited for. Tensors are in place: input and output.
class Communicator {
 public:
  explicit Communicator(RankGroup& group) : group_(group) {}
  virtual ~Communicator() = default;
  RankGroup& group() const { return group_; }
  int rank() const { return group_.rank(); }
  int size() const { return group_.size(); }

  // The root's elements, on every rank.
  virtual void broadcast(const Tensor& tensor, int root) = 0;
  // The element-wise sum over ranks, the same bits on every rank. f32.
  virtual std::unique_ptr<Pending> all_reduce(const Tensor& tensor) = 0;
  // The tensor is cut into size() equal slices; rank r's slice receives the sum, the others are undefined.
  // f32.
  virtual std::unique_ptr<Pending> reduce_scatter(const Tensor& tensor) = 0;
  // Slice r of every rank's tensor becomes rank r's.
  virtual std::unique_ptr<Pending> all_gather(const Tensor& tensor) = 0;
  // From one rank to another. Those between two ranks arrive in order.
  virtual std::unique_ptr<Pending> send(const Tensor& tensor, int to) = 0;
  virtual std::unique_ptr<Pending> receive(const Tensor& tensor, int from) = 0;
  // Sends `out` to a rank while it sends as many elements, which become `in`.
  virtual void exchange(const Tensor& out, const Tensor& in, int with) {
    const std::unique_ptr<Pending> receiving = receive(in, with), sending = send(out, with);
    receiving->wait();
    sending->wait();
  }
  // Waits for all of them, moving each on whenever that is possible.
  virtual void wait_all(const std::vector<std::unique_ptr<Pending>>& pending) {
    for (const auto& one : pending) one->wait();
  }

 protected:
  // The slice of a tensor that is this rank's. The tensor divides among ranks.
  Tensor own_slice(const Tensor& tensor) const {
    check(tensor.numel() % size() == 0, "communicator: ", tensor.numel(), " elements among ", size());
    const std::int64_t slice = tensor.numel() / size();
    return tensor.slice(rank() * slice, {slice});
  }

 private:
  RankGroup& group_;
};

// Moves each on, in turns, until all are done.
inline void progress_until_done(const std::vector<std::unique_ptr<Pending>>& pending) {
  for (std::size_t done = 0; done < pending.size();) {
    done = 0;
    for (const auto& one : pending) done += one->progress() ? 1 : 0;
  }
}

// What needs no waiting.
class Done final : public Pending {
 public:
  void wait() override {}
  bool progress() override { return true; }
};

}  // namespace stagegpt
