// Gradient synchronisation with --reproducible: the upper levels of the binary tree; gradient_tree.h has the
// lower levels.
//
// Recursive halving: at distance 1, 2, 4, … two ranks that have sums of the same range divide it. Each sends
// the half that the other one keeps, and adds what it receives to its own: a + b on one rank, b + a on the
// other would be the same bits. In the end each rank owns one range, summed in the order of the tree:
//
//   4 ranks, distance 1       distance 2
//   0 and 1 have all     →    0 has the lower half, and divides it with 2
//   2 and 3 have all          1 has the upper half, and divides it with 3
//
// AdamW is divided as the sums are. Recursive doubling, at distance …, 4, 2, 1, then gives the weights to all
// ranks. Each rank sends (N-1)/N of the arena twice, in 2·log₂N steps. Thakur, Rabenseifner and Gropp,
// "Optimization of collective communication operations in MPICH", 2005, section 4.4.
//
// Ranges are whole blocks of the backend's squared norm. So the norm's bits do not depend on the division
// either: all ranks get the sums of all blocks, and add them in one order.
#pragma once

#include <vector>

#include "common/comm/divided_sync.h"

namespace stagegpt {

class TreeSync final : public DividedSync {
 public:
  // The number of ranks must be a power of two.
  TreeSync(Communicator& communicator, Backend& backend)
      : DividedSync(communicator, backend, {.norm_in_blocks = true}) {}

  ArenaParts owned(std::int64_t arena_size) const override;
  void finish(Parameters& parameters) override;
  void sum_squared_norms(const Tensor& sum, const Tensor& parts) override;

 private:
  // At one distance: the range that this rank keeps, and the one that its partner keeps.
  struct Level {
    int partner;
    ArenaRange own, other;
  };
  // From distance 1 on.
  std::vector<Level> levels(std::int64_t arena_size) const;
  // The levels of an arena with one element for each block.
  std::vector<Level> levels_of_blocks(std::int64_t arena_size) const;
  // Sends `out` to a rank, and adds what arrives to `sum`.
  void exchange_and_add(const Tensor& out, const Tensor& sum, int partner);
  void gather(const Tensor& arena) override { gather(arena, levels(arena.numel())); }
  void gather(const Tensor& arena, const std::vector<Level>& levels);

  std::int64_t arena_size_ = 0;  // of the last gradients
};

}  // namespace stagegpt
