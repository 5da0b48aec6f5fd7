#include "common/data/step_division.h"

#include <limits>
#include <string>

#include "common/base/error.h"

namespace stagegpt {

StepDivision divide_step(std::int64_t batch_size, std::int64_t micro_steps, int rank, int ranks,
                         bool reproducible) {
  const std::int64_t sub_batches = reproducible ? kReproducibleSubBatches : ranks;
  if (sub_batches % ranks != 0) {
    user_error("--reproducible: expected 1, 2, 4 or 8 ranks, not ", ranks);
  }
  constexpr std::int64_t kMost = std::numeric_limits<std::int32_t>::max();  // PassPosition::first_sequence
  if (batch_size * micro_steps > kMost)
    user_error("--batch-size times --grad-accumulation: expected at most ", kMost, " sequences in a step");
  if (const std::int64_t below = batch_size / sub_batches * sub_batches; below != batch_size) {
    user_error("--batch-size: ", batch_size, " is not divisible by ",
               reproducible ? concat("the ", sub_batches, " sub-batches of --reproducible")
                            : concat("the number of ranks, ", ranks),
               "; use ", below > 0 ? concat(below, " or ") : "", below + sub_batches);
  }
  const std::int64_t owned = sub_batches / ranks;
  return {.batch_size = batch_size,
          .micro_steps = micro_steps,
          .sub_batches = sub_batches,
          .first_sub_batch = rank * owned,
          .owned_sub_batches = owned};
}

}  // namespace stagegpt
