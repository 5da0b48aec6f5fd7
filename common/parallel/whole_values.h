// The parameters of a whole model, from and to the parts that the ranks of a grid hold.
#pragma once

#include "common/checkpoint/parameter_values.h"
#include "common/checkpoint/piece_stream.h"
#include "common/comm/rank_group.h"
#include "common/parallel/grid.h"

namespace stagegpt {

// Where this rank's part of an arena begins for PieceStream: the parts of all ranks of a model stand there
// one after the other, each in the space of a whole arena.
std::int64_t begin_of_part(const ParameterTable& whole, const Grid& grid);

// Where the parameters of `whole` are in these parts. A parameter that several tensor ranks or stages hold is
// taken from the first of them. If each rank has the whole model, it is placed_as_in(whole).
PieceLayout placed_in_parts(const ParameterTable& whole, const Grid& grid);

// The parameters of a part, from those of the whole model. Reads only the rows of a parameter that the part
// has, but all of their columns. Borrows the table.
ParameterValues part_values(const ParameterTable& part, ParameterValues whole);

// Copies this rank's part of the parameters of `whole` into an arena, and sets its padding to zero. Rank 0
// has the values; the others need none. A collective call of all ranks; an error on rank 0 is thrown on all.
void take_part(RankGroup& world, Backend& backend, const ParameterTable& whole, const ParameterValues& values,
               const ParameterTable& part, const Tensor& arena);

}  // namespace stagegpt
