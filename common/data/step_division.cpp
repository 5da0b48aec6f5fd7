#include "common/data/step_division.h"

#include <string>

#include "common/base/error.h"

namespace stagegpt {

StepDivision divide_step(std::int64_t batch_size, std::int64_t micro_steps, int rank, int ranks,
                         bool reproducible) {
  const std::int64_t shards = reproducible ? kReproducibleShards : ranks;
  if (shards % ranks != 0) {
    user_error("--reproducible: expected 1, 2, 4 or 8 ranks, not ", ranks);
  }
  if (const std::int64_t below = batch_size / shards * shards; below != batch_size) {
    user_error("--batch-size: ", batch_size, " does not divide ",
               reproducible ? concat("into the ", shards, " shards of --reproducible")
                            : concat("among ", ranks, " ranks"),
               "; ", below > 0 ? concat(below, " or ") : "", below + shards, " would");
  }
  const std::int64_t owned = shards / ranks;
  return {.batch_size = batch_size,
          .micro_steps = micro_steps,
          .shards = shards,
          .first_shard = rank * owned,
          .owned_shards = owned};
}

}  // namespace stagegpt
