// The ranks of a run as a grid. Tensor ranks hold different parts of one model and compute the same sequences
// together; data ranks hold the same part and compute different sequences. Tensor ranks are neighbours, so
// that their many small messages stay inside a node:
//
//   8 ranks, of which 2 are tensor ranks    tensor rank 0   tensor rank 1
//                             data rank 0   rank 0          rank 1
//                             data rank 1   rank 2          rank 3
//                             data rank 2   rank 4          rank 5
//                             data rank 3   rank 6          rank 7
//
// A grid is passed as an argument; there is no global one.
#pragma once

#include <memory>

#include "common/comm/agreement.h"
#include "common/comm/self_communicator.h"

namespace stagegpt {

class Grid {
 public:
  // Every rank has the whole model, and is a data rank. Borrows the communicator.
  Grid(Communicator& world)  // NOLINT(google-explicit-constructor): most runs have no other grid
      : world_(&world), tensor_(std::make_shared<SelfCommunicator>()) {}

  // Throws AgreedUserError if tensor_ranks does not divide the ranks. Collective call.
  Grid(Communicator& world, int tensor_ranks) : Grid(world) {
    if (tensor_ranks < 1 || world.size() % tensor_ranks != 0) {
      throw AgreedUserError(concat("--tensor-parallel: ", world.size(),
                                   " ranks cannot be divided into groups of ", tensor_ranks));
    }
    if (tensor_ranks == 1) return;
    const int data_rank = world.rank() / tensor_ranks, tensor_rank = world.rank() % tensor_ranks;
    tensor_ = world.split(data_rank, tensor_rank);
    data_ = world.split(tensor_rank, data_rank);
  }

  // Of communicators that exist.
  Grid(Communicator& world, std::shared_ptr<Communicator> data, std::shared_ptr<Communicator> tensor)
      : world_(&world), data_(std::move(data)), tensor_(std::move(tensor)) {}

  Communicator& world() const { return *world_; }
  // The ranks that hold the same part of the model as this one.
  Communicator& data() const { return data_ ? *data_ : *world_; }
  // The ranks that hold one model together with this one. With one, its collectives do nothing.
  Communicator& tensor() const { return *tensor_; }

 private:
  Communicator* world_;
  std::shared_ptr<Communicator> data_, tensor_;
};

}  // namespace stagegpt
