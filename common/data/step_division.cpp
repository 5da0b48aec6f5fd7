#include "common/data/step_division.h"

#include <bit>
#include <limits>
#include <string>

#include "common/base/error.h"

namespace stagegpt {
namespace {

// "1, 2, 4 or 8".
std::string powers_of_two(std::int64_t most) {
  std::string text = "1";
  for (std::int64_t n = 2; n <= most; n *= 2) text += concat(n == most ? " or " : ", ", n);
  return text;
}

}  // namespace

StepDivision divide_step(std::int64_t batch_size, std::int64_t micro_steps, int rank, int ranks,
                         std::int64_t sub_batches) {
  const bool reproducible = sub_batches > 0;
  if (!reproducible) sub_batches = ranks;
  if (reproducible &&
      (sub_batches > kMostSubBatches || !std::has_single_bit(static_cast<std::uint64_t>(sub_batches))))
    user_error("--sub-batches: expected a power of two up to ", kMostSubBatches, ", not ", sub_batches);
  if (sub_batches % ranks != 0) {
    user_error("--reproducible: expected ", powers_of_two(sub_batches), sub_batches > 1 ? " ranks" : " rank",
               ", not ", ranks);
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
