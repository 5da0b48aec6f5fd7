#include "common/train/checkpoint_arenas.h"

#include <iostream>
#include <limits>
#include <utility>

#include "common/checkpoint/checkpoint.h"
#include "common/checkpoint/run_directory.h"
#include "common/comm/agreement.h"
#include "common/parallel/whole_values.h"

namespace stagegpt {
namespace {

void load_moment(Backend& backend, const Grid& grid, const LanguageModel& model, const AdamW& optimizer,
                 Moment moment, const ParameterValues& values) {
  const ParameterTable& table = model.parameters().table();
  const Tensor& arena = model.parameters().grads();  // a buffer, if every rank has all moments
  Communicator& ranks = grid.data();
  const std::int64_t slice = arena.numel() / ranks.size(), begin = ranks.rank() * slice;
  // Where the data ranks divide the moments, a rank owns no more than a slice.
  const bool gathered =
      ranks.size() > 1 && !any(grid.world().group(), total_size(optimizer.owned()) <= slice);
  agree(grid.world().group(), [&] {
    if (gathered)
      return load_part(backend, table, {begin, begin + slice}, arena.slice(begin, {slice}), values);
    for (const AdamW::Part& part : optimizer.parts()) {
      if (part.range.size() > 0) load_part(backend, table, part.range, part.moments.*moment, values);
    }
  });
  if (!gathered) return;
  ranks.all_gather(arena)->wait();
  for (const AdamW::Part& part : optimizer.parts())
    backend.copy(part.moments.*moment, arena.slice(part.range.begin, {part.range.size()}));
}

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

std::vector<OwnedArena> checkpoint_arenas(const Grid& grid, const LanguageModel& model,
                                          const AdamW& optimizer) {
  const Tensor& weights = model.parameters().weights();
  const std::int64_t offset = begin_of_part(gpt2_parameter_table(model.config()), grid);
  OwnedArena all{{{offset, offset + weights.numel()}}, {weights}}, m, v;
  for (const auto& [range, moments, decay] : optimizer.parts()) {
    for (OwnedArena* const arena : {&m, &v})
      arena->owned.push_back({offset + range.begin, offset + range.end});
    m.parts.push_back(moments.m);
    v.parts.push_back(moments.v);
  }
  return {std::move(all), std::move(m), std::move(v)};
}

OwnedArena gradient_arena(const Grid& grid, const LanguageModel& model, const AdamW& optimizer) {
  const std::int64_t offset = begin_of_part(gpt2_parameter_table(model.config()), grid);
  OwnedArena arena;
  for (const ArenaRange& range : optimizer.owned()) {
    arena.owned.push_back({offset + range.begin, offset + range.end});
    arena.parts.push_back(model.parameters().grads(range));
  }
  return arena;
}

void load_moments(Backend& backend, const Grid& grid, const LanguageModel& model, const AdamW& optimizer,
                  const MomentValues& values) {
  const ParameterTable& table = model.parameters().table();
  load_moment(backend, grid, model, optimizer, &Moments::m, part_values(table, values.m));
  load_moment(backend, grid, model, optimizer, &Moments::v, part_values(table, values.v));
  // No step writes the gradients of frozen parameters.
  backend.fill(model.parameters().grads(), 0);
}

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
