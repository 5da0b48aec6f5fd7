// Which part of each parameter a tensor rank holds: how the columns of Parameter::split are cut. And the part
// of the model that a rank of a grid holds.
#pragma once

#include <memory>

#include "common/model/gpt2.h"
#include "common/parallel/across_ranks.h"
#include "common/parallel/grid.h"

namespace stagegpt {

// One of `size` tensor ranks.
struct TensorRank {
  int rank, size;
};

// The rank's tokens of a vocabulary: ⌈vocab_size/size⌉ of them, fewer on the last rank.
VocabularyPart vocabulary_part(std::int64_t vocab_size, const TensorRank& rank);

// The table of what the rank holds, which has the same offsets and shapes in memory on all tensor ranks:
// first the parameters that all tensor ranks hold, then its parts of the divided ones. The gradients of the
// former must be summed over tensor ranks: they are one range of the arena, up to shared_end(). They stand
// first because some of them, such as wpe's, are complete last: buckets begin at the end of the arena.
ParameterTable part_of(const ParameterTable& whole, const TensorRank& rank);
std::int64_t shared_end(const ParameterTable& part);

// The part of a model that a rank has. Borrows the communicators of the grid.
std::unique_ptr<Partition> make_partition(const Grid& grid);

// Throws UserError, naming the flag, if a model cannot be divided among so many tensor ranks, or stages.
void require_divisible(const Gpt2Config& config, int tensor_ranks, int stages = 1);

}  // namespace stagegpt
