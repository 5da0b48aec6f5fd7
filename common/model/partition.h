// How a model is divided among the ranks that compute it together. Gpt2 asks a Partition wherever a rank may
// have only a part of something, and knows nothing else about ranks. The default is one rank that has
// everything, or one stage of a pipeline; across_ranks.h has the one whose layers are divided too.
#pragma once

#include "common/autograd/tape.h"
#include "common/comm/communicator.h"
#include "common/model/parameters.h"

namespace stagegpt {

// One of `count` stages of a pipeline, each of which has some consecutive blocks of the model. The first one
// has the embedding too, the last one the head; if the head is the embedding's matrix, both have it.
struct ModelStage {
  int index = 0, count = 1;

  bool is_first() const { return index == 0; }
  bool is_last() const { return index + 1 == count; }
  // Its blocks are [first_block, end_block) of n_layer; the numbers of two stages differ by one at most.
  int first_block(int n_layer) const { return n_layer * index / count; }
  int end_block(int n_layer) const { return n_layer * (index + 1) / count; }
};

// The rows of a stage's parameters, in the same order.
ParameterTable rows_of_stage(const ParameterTable& whole, const ModelStage& stage);

class Partition {
 public:
  // Rank s of `stages`, which are borrowed, has stage s of a pipeline. Null: there is one stage.
  explicit Partition(Communicator* stages = nullptr) : stages_(stages) {}
  virtual ~Partition() = default;

  ModelStage stage() const { return stages_ ? ModelStage{stages_->rank(), stages_->size()} : ModelStage(); }
  // What this rank holds of the parameters.
  virtual ParameterTable own(const ParameterTable& whole) const { return rows_of_stage(whole, stage()); }

  // The residual stream and its layernorms may be divided by rows. From this rank's rows (N/R,C),
  // of N = B·T rows and R tensor ranks, to all rows (B,T,C), which a branch reads; `shape` is (B,T,C).
  virtual Var enter(Tape& tape, Var rows, const Shape& shape) const;
  // From a branch's output (B,T,C), of which each rank may have a summand, to this rank's rows of the sum.
  virtual Var leave(Tape& tape, Var summand) const;
  // A bias of such an output: it must be in one summand only. An empty Var in the others.
  virtual Var once(Var bias) const { return bias; }

  // This rank's rows of the embedding of ids (B,T), and the mean cross-entropy (1) of targets (B,T). wte and
  // the logits (B,T,…) may have only some tokens of the vocabulary.
  virtual Var embed(Tape& tape, const Tensor& ids, Var wte, Var wpe, std::int64_t vocab_size) const;
  virtual Var loss(Tape& tape, Var logits, const Tensor& targets, std::int64_t vocab_size) const;
  // For inference: the logits (B,T,Vp) of all tokens.
  virtual Var all_logits(Tape& tape, Var logits, std::int64_t vocab_size) const;
  // The shape of this rank's rows of the residual stream (B,T,C).
  virtual Shape rows(const Shape& shape) const { return shape; }

  // For inference, where the stages of a pipeline work one after the other. The residual stream that the
  // stage before sends, of this shape; empty on the first stage.
  Var receive(Backend& backend, DType dtype, const Shape& rows) const;
  // Sends the stream to the next stage; nothing on the last stage.
  void send(const Var& stream) const;
  // Copies the last stage's logits to those of all stages; `logits` is given on the last stage only.
  Var from_last_stage(Backend& backend, DType dtype, const Shape& shape, Var logits) const;

  // Which elements of a dropout over the whole tensor this rank's are: of `rows` (N/R,C), or of its heads.
  virtual Dropout on_rows(Dropout dropout, const Tensor& rows) const;
  virtual Dropout on_heads(Dropout dropout) const { return dropout; }

  // One rank that has everything.
  static const Partition& none();

 private:
  Communicator* stages_;
};

}  // namespace stagegpt
