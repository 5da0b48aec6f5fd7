// The ranks of a run as a grid. Tensor ranks hold different parts of each layer and compute the same
// sequences together; the stages of a pipeline hold different layers; data ranks hold the same part of the
// model and compute different sequences. Tensor ranks are neighbours, so that their many small messages stay
// inside a node; stages, which send least, are farthest from each other:
//
//   8 ranks: 2 tensor ranks, 2 stages     stage 0                          stage 1
//                                         tensor rank 0   tensor rank 1    tensor rank 0   tensor rank 1
//                           data rank 0   rank 0          rank 1           rank 4          rank 5
//                           data rank 1   rank 2          rank 3           rank 6          rank 7
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
      : world_(&world), tensor_(std::make_shared<SelfCommunicator>()), pipeline_(tensor_), model_(tensor_) {}

  // Throws AgreedUserError if the ranks do not divide. Collective call.
  Grid(Communicator& world, int tensor_ranks, int stages = 1) : Grid(world) {
    const int ranks = world.size();
    if (tensor_ranks < 1 || ranks % tensor_ranks != 0) {
      throw AgreedUserError(
          concat("--tensor-parallel: ", ranks, " ranks cannot be divided into groups of ", tensor_ranks));
    }
    if (stages < 1 || ranks / tensor_ranks % stages != 0) {
      throw AgreedUserError(concat("--pipeline-parallel: ", ranks, " ranks cannot be divided into ", stages,
                                   " stages",
                                   tensor_ranks > 1 ? concat(" of ", tensor_ranks, " tensor ranks") : ""));
    }
    if (tensor_ranks * stages == 1) return;
    const int of_stage = ranks / stages, in_stage = world.rank() % of_stage;
    const int stage = world.rank() / of_stage, tensor_rank = in_stage % tensor_ranks,
              data_rank = in_stage / tensor_ranks;
    data_ = world.split(stage * tensor_ranks + tensor_rank, data_rank);
    if (tensor_ranks > 1) tensor_ = world.split(world.rank() / tensor_ranks, tensor_rank);
    model_ = tensor_;
    if (stages == 1) return;
    pipeline_ = world.split(in_stage, stage);
    model_ = world.split(data_rank, world.rank());
  }

  // A grid of communicators that exist.
  Grid(Communicator& world, std::shared_ptr<Communicator> data, std::shared_ptr<Communicator> tensor,
       std::shared_ptr<Communicator> pipeline, std::shared_ptr<Communicator> model)
      : world_(&world),
        data_(std::move(data)),
        tensor_(std::move(tensor)),
        pipeline_(std::move(pipeline)),
        model_(std::move(model)) {}

  Communicator& world() const { return *world_; }
  // The ranks that hold the same part of the model as this one.
  Communicator& data() const { return data_ ? *data_ : *world_; }
  // The ranks that hold the same layers together with this one. With one, its collectives do nothing.
  Communicator& tensor() const { return *tensor_; }
  // The ranks that hold the other layers for this one, in the order of stages. With one, the same.
  Communicator& pipeline() const { return *pipeline_; }
  // The ranks that hold one model together with this one: all tensor ranks of all stages, stage by stage.
  Communicator& model() const { return *model_; }
  // Whether a rank has only a part of the model.
  bool divides_model() const { return model_->size() > 1; }

 private:
  Communicator* world_;
  std::shared_ptr<Communicator> data_, tensor_, pipeline_, model_;
};

}  // namespace stagegpt
