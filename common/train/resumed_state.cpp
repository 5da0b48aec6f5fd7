#include "common/train/resumed_state.h"

#include <iostream>
#include <limits>

#include "common/checkpoint/checkpoint.h"
#include "common/checkpoint/run_directory.h"

namespace stagegpt {
namespace {

bool trained_on(const TrainerState& state, const TokenSequence& tokens, const TokenIdentity& identity) {
  if (state.train_tokens != tokens.size()) return false;
  // A checkpoint of version 1 identifies shards by a hash of their ids, which requires reading all tokens.
  const bool by_ids =
      state.train_identity.of == TokenIdentity::Of::ids && identity.of != TokenIdentity::Of::ids;
  return by_ids ? hash_of_tokens(tokens) == state.train_identity.hash : state.train_identity == identity;
}

bool validated_on(const TrainerState& state, const Corpus& corpus) {
  const std::string& before = state.validation_hash;
  return before.empty() || before == corpus.validation_identity.hash ||
         before == hash_of_tokens(corpus.validation);
}

}  // namespace

TrainerState read_resumed_state(const std::filesystem::path& checkpoint, const TrainerConfig& config,
                                const Corpus& corpus) {
  TrainerState state = read_trainer_state(checkpoint);
  if (checkpoint.filename() != checkpoint_name(state.step)) {
    user_error("--resume: ", checkpoint, ": expected the state of the step in its name, got step ",
               state.step);
  }
  if (state.seed != config.seed) {
    user_error("--seed: expected ", state.seed, " as in ", checkpoint, ", got ", config.seed);
  }
  if (!trained_on(state, corpus.train, corpus.train_identity)) {
    user_error("--data: these are not the ", state.train_tokens, " tokens that ", checkpoint,
               " was trained on; to train on other data, start a new run with --model ", checkpoint);
  }
  if (state.step > config.schedule.steps) {
    user_error("--steps: the run has done ", state.step, " steps already, more than ", config.schedule.steps);
  }
  if (!validated_on(state, corpus)) {
    std::cerr
        << "note: these are other validation tokens than before; losses from here on cannot be compared with "
           "earlier ones, and the best validation begins anew\n";
    if (state.best_validation) state.best_validation->loss = std::numeric_limits<double>::quiet_NaN();
  }
  return state;
}

}  // namespace stagegpt
