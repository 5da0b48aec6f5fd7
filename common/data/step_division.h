// How the samples of a step are divided into what one forward and backward pass takes.
#pragma once

#include <cstdint>

namespace stagegpt {

// With --reproducible a batch is always cut into so many shards, whatever the number of ranks.
inline constexpr std::int64_t kReproducibleShards = 8;

// A step takes `micro_steps` batches of `batch_size` samples; each batch is cut into `shards` equal parts, of
// which this rank computes `owned_shards` from `first_shard` on.
struct StepDivision {
  std::int64_t batch_size = 1;
  std::int64_t micro_steps = 1;
  std::int64_t shards = 1, first_shard = 0, owned_shards = 1;

  std::int64_t samples() const { return batch_size * micro_steps; }  // of a step, over all ranks
  std::int64_t part_size() const { return batch_size / shards; }     // samples of a part
};

// A shard for each rank or, with `reproducible`, always kReproducibleShards. Throws UserError when the batch
// or the ranks do not divide.
StepDivision divide_step(std::int64_t batch_size, std::int64_t micro_steps, int rank, int ranks,
                         bool reproducible);

}  // namespace stagegpt
