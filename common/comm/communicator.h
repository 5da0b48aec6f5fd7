// What ranks say to each other. A communicator is passed to whoever needs one; there is no global rank.
#pragma once

#include <memory>

#include "common/tensor/tensor.h"

namespace stagegpt {

// A collective that is under way. Destroying it without wait() is an error of the caller.
class Pending {
 public:
  virtual ~Pending() = default;
  // Returns when the result is in place on this rank.
  virtual void wait() = 0;
};

// Every rank makes the same calls in the same order. The tensors are in place: input and output.
class Communicator {
 public:
  virtual ~Communicator() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;

  virtual void barrier() = 0;
  // The root's elements, on every rank.
  virtual void broadcast(const Tensor& tensor, int root) = 0;
  // The element-wise sum over ranks, on every rank.
  virtual std::unique_ptr<Pending> all_reduce(const Tensor& tensor) = 0;
  // The tensor is cut into size() equal slices; rank r's slice receives the sum, the others are undefined.
  virtual std::unique_ptr<Pending> reduce_scatter(const Tensor& tensor) = 0;
  // Slice r of every rank's tensor becomes rank r's.
  virtual std::unique_ptr<Pending> all_gather(const Tensor& tensor) = 0;
};

}  // namespace stagegpt
