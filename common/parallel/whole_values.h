// The parameters of a whole model, from and to the parts that tensor ranks hold.
#pragma once

#include "common/checkpoint/parameter_values.h"
#include "common/comm/rank_group.h"
#include "common/train/piece_stream.h"

namespace stagegpt {

// Where a tensor rank's part of an arena begins for PieceStream: the parts of all tensor ranks stand there
// one after the other, each of `arena_size` elements.
inline std::int64_t begin_of_part(int tensor_rank, std::int64_t arena_size) {
  return tensor_rank * arena_size;
}

// Where the parameters of `whole` are in these parts. A parameter that all tensor ranks hold is taken from
// the first one. With one tensor rank it is placed_as_in(whole).
PieceLayout placed_in_parts(const ParameterTable& whole, int tensor_ranks, std::int64_t arena_size);

// The parameters of a part, from those of the whole model. Reads only the rows of a parameter that the part
// has, but all of their columns. Borrows the table.
ParameterValues part_values(const ParameterTable& part, ParameterValues whole);

// Copies this rank's part of the parameters of `whole` into an arena, and sets its padding to zero. Rank 0
// has the values; the others need none. A collective call of all ranks; an error on rank 0 is thrown on all.
void take_part(RankGroup& world, Backend& backend, const ParameterTable& whole, const ParameterValues& values,
               const ParameterTable& part, const Tensor& arena);

}  // namespace stagegpt
