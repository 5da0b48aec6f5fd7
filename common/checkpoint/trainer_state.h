// trainer_state.json: where a run is, apart from the weights and the optimizer's moments.
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "common/data/token_sequence.h"
#include "common/optim/lr_schedule.h"

namespace stagegpt {

struct TrainerState {
  std::int64_t step = 0;                  // optimizer steps done
  std::int64_t data_position = 0;         // samples taken, over all ranks
  std::uint64_t seed = 0;                 // with the step, the state of every random number
  LrSchedule schedule;                    // of the steps before; a resumed run may have another horizon
  std::int64_t train_tokens = 0;          // of the training data
  TokenIdentity train_identity;           // and what they are
  std::optional<double> validation_loss;  // nats per token at this step, where it was taken
  // Over how many tokens: losses over as many, of one run, are over the same. Older versions did not say.
  std::optional<std::int64_t> validation_tokens;
};

// Doubles keep all their bits.
std::string to_json_text(const TrainerState& state);

// Throws UserError where something that to_json_text() writes is missing or of another kind. Reads version 1
// too, in which tokens are known by the hash of their ids, also where they lie in shards.
TrainerState parse_trainer_state(std::string_view text);

}  // namespace stagegpt
