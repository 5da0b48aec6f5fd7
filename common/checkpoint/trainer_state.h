// trainer_state.json: the state of a run other than the weights and the optimizer's moments.
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "common/data/token_sequence.h"
#include "common/optim/lr_schedule.h"
#include "common/optim/update_counts.h"

namespace stagegpt {

// The best validation of a run, for early stopping.
struct BestValidation {
  double loss = 0;          // nats per token
  std::int64_t tokens = 0;  // of which this loss is the mean
  std::int64_t step = 0;    // after which it was measured
  std::int64_t worse = 0;   // number of validations since then

  bool operator==(const BestValidation&) const = default;
};

struct TrainerState {
  std::int64_t step = 0;                  // optimizer steps done
  std::int64_t data_position = 0;         // samples taken by all ranks together
  std::uint64_t seed = 0;                 // with the step, the state of all random numbers
  LrSchedule schedule;                    // of the steps so far; a resumed run may have another horizon
  UpdateCounts updates;                   // of the moments; in states of older versions one for each step
  std::int64_t train_tokens = 0;          // the number of training tokens
  TokenIdentity train_identity;           // of the training tokens
  std::string validation_hash;            // of the validation tokens; empty in states of older versions
  std::optional<double> validation_loss;  // nats per token at this step, if it was measured
  // The number of tokens of that loss. Losses of one run over the same number, with the same hash,
  // are over the same tokens.
  // Missing in states of older versions.
  std::optional<std::int64_t> validation_tokens;
  // The best validation of the run so far. Missing in states of older versions.
  std::optional<BestValidation> best_validation;
};

// Doubles are written with all digits, so that reading gives the same bits.
std::string to_json_text(const TrainerState& state);

// Throws UserError if a field that to_json_text() writes is missing or has another type. Also reads version
// 1, which identifies tokens by the hash of their ids even if they are in shards.
TrainerState parse_trainer_state(std::string_view text);

// ---- Early stopping: training ends when its validation loss has not improved for some validations ----

// `best` after another validation, of which step, loss and tokens are given. A loss over another number of
// tokens cannot be compared, and begins anew. NaN is never better.
BestValidation after_validation(const std::optional<BestValidation>& best, std::int64_t step, double loss,
                                std::int64_t tokens);

}  // namespace stagegpt
