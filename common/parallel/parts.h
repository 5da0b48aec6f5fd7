// Which parameters a rank of a grid holds, and which part of each.
#pragma once

#include "common/model/gpt2_config.h"
#include "common/parallel/grid.h"

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

// That of this rank.
inline ModelStage stage_of(const Grid& grid) { return {grid.pipeline().rank(), grid.pipeline().size()}; }

// The rows of a stage's parameters, in the same order.
ParameterTable rows_of_stage(const ParameterTable& whole, const ModelStage& stage);

// Tokens [first, first + count) of the vocabulary.
struct VocabularyPart {
  std::int64_t first, count;
};

// One of `size` tensor ranks.
struct TensorRank {
  int rank, size;
};

// The rank's tokens of a vocabulary: ⌈vocab_size/size⌉ of them, fewer on the last rank.
VocabularyPart vocabulary_part(std::int64_t vocab_size, const TensorRank& rank);

// The table of what the rank holds, which has the same offsets and shapes in memory on all tensor ranks:
// first the parameters that all tensor ranks hold, then its parts of the divided ones. The gradients of the
// former must be summed over tensor ranks: they are one range of the arena. They stand first because some of
// them, such as wpe's, are complete last: buckets begin at the end of the arena.
ParameterTable part_of(const ParameterTable& whole, const TensorRank& rank);
// The end of that range; 0 for a table with no divided parameter, of which no gradient is summed.
std::int64_t shared_end(const ParameterTable& part);

// What this rank of a grid holds.
ParameterTable own_table(const ParameterTable& whole, const Grid& grid);

// Throws UserError, naming the flag, if a model cannot be divided among so many tensor ranks, or stages.
void require_divisible(const Gpt2Config& config, int tensor_ranks, int stages = 1);

}  // namespace stagegpt
