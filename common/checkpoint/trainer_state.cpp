#include "common/checkpoint/trainer_state.h"

#include <cmath>
#include <limits>

#include "common/base/json.h"

namespace stagegpt {
namespace {

constexpr const char* kStateFormat = "stagegpt trainer state";
constexpr int kTrainerStateVersion = 2;
constexpr const char* kIds = "ids";
constexpr const char* kShards = "shards";
// No run reaches these numbers, and further counting does not overflow.
constexpr std::uint64_t kMostSamples = std::uint64_t{1} << 60, kMostSteps = std::uint64_t{1} << 31;

template <class T>
T natural(const nlohmann::json& json, const char* name, std::uint64_t most = INT64_MAX) {
  const std::uint64_t value = natural_number(json.at(name), concat("'", name, "'"));
  if (value > most) user_error("'", name, "' is ", value, ", expected at most ", most);
  return static_cast<T>(value);
}

double number(const nlohmann::json& json, const char* name) {
  const nlohmann::json& value = json.at(name);
  if (!value.is_number()) user_error("'", name, "' is ", value.dump().substr(0, 40), ", expected a number");
  return value.get<double>();
}

LrSchedule parse_schedule(const nlohmann::json& json) {
  LrSchedule schedule;
  const auto kind = lr_schedule_named(json.at("kind").get<std::string>());
  if (!kind) user_error("'kind' is not a learning-rate schedule");
  schedule.kind = *kind;
  schedule.learning_rate = number(json, "learning_rate");
  schedule.min_lr = number(json, "min_lr");
  schedule.warmup_steps = natural<std::int64_t>(json, "warmup_steps", kMostSteps);
  schedule.steps = natural<std::int64_t>(json, "steps", kMostSteps);
  if (json.contains("decay_steps"))
    schedule.decay_steps = natural<std::int64_t>(json, "decay_steps", kMostSteps);
  return schedule;
}

TokenIdentity parse_identity(const nlohmann::json& json, int version) {
  TokenIdentity identity{TokenIdentity::Of::ids, json.at("xxh3_128").get<std::string>()};
  if (version == 1) return identity;
  const std::string of = json.at("of").get<std::string>();
  if (of != kIds && of != kShards) user_error("'of' is neither '", kIds, "' nor '", kShards, "'");
  if (of == kShards) identity.of = TokenIdentity::Of::shards;
  return identity;
}

Json to_json(const LrSchedule& schedule) {
  Json json = {{"kind", name_of(schedule.kind)},
               {"learning_rate", schedule.learning_rate},
               {"min_lr", schedule.min_lr},
               {"warmup_steps", schedule.warmup_steps},
               {"steps", schedule.steps}};
  if (schedule.kind == LrSchedule::Kind::wsd) json["decay_steps"] = schedule.decay_steps;
  return json;
}

// JSON has no NaN: null.
Json to_json(const BestValidation& best) {
  return {{"loss", std::isfinite(best.loss) ? Json(best.loss) : Json()},
          {"tokens", best.tokens},
          {"step", best.step},
          {"worse", best.worse}};
}

BestValidation parse_best_validation(const nlohmann::json& json) {
  return {.loss = json.at("loss").is_null() ? std::numeric_limits<double>::quiet_NaN() : number(json, "loss"),
          .tokens = natural<std::int64_t>(json, "tokens"),
          .step = natural<std::int64_t>(json, "step", kMostSteps),
          .worse = natural<std::int64_t>(json, "worse", kMostSteps)};
}

UpdateCounts parse_updates(const nlohmann::json& json) {
  UpdateCounts updates{.all = natural<std::int64_t>(json, "all", kMostSteps)};
  for (const auto& [name, own] : json.at("fewer").items())
    updates.fewer[name] = natural<std::int64_t>(json.at("fewer"), name.c_str(), json.at("all"));
  return updates;
}

}  // namespace

std::string to_json_text(const TrainerState& state) {
  const TokenIdentity& data = state.train_identity;
  const Json json = {{"format", kStateFormat},
                     {"version", kTrainerStateVersion},
                     {"step", state.step},
                     {"data_position", state.data_position},
                     {"seed", state.seed},
                     {"schedule", to_json(state.schedule)},
                     {"updates", {{"all", state.updates.all}, {"fewer", state.updates.fewer}}},
                     {"train_data",
                      {{"tokens", state.train_tokens},
                       {"of", data.of == TokenIdentity::Of::ids ? kIds : kShards},
                       {"xxh3_128", data.hash}}},
                     {"validation_xxh3_128", state.validation_hash},
                     {"validation_loss", or_null(state.validation_loss)},
                     {"validation_tokens", or_null(state.validation_tokens)},
                     {"best_validation", state.best_validation ? to_json(*state.best_validation) : Json()}};
  return json.dump(2) + '\n';
}

TrainerState parse_trainer_state(std::string_view text) {
  const nlohmann::json json = parse_json(text);
  return read_json([&] {
    const nlohmann::json& version = json.at("version");
    if (json.at("format") != kStateFormat || (version != 1 && version != kTrainerStateVersion)) {
      user_error("not version 1 or ", kTrainerStateVersion, " of '", kStateFormat, "'");
    }
    TrainerState state;
    state.step = natural<std::int64_t>(json, "step", kMostSteps);
    state.data_position = natural<std::int64_t>(json, "data_position", kMostSamples);
    state.seed = natural<std::uint64_t>(json, "seed");
    state.schedule = parse_schedule(json.at("schedule"));
    state.updates = json.contains("updates") ? parse_updates(json["updates"]) : UpdateCounts{state.step};
    const nlohmann::json& data = json.at("train_data");
    state.train_tokens = natural<std::int64_t>(data, "tokens");
    state.train_identity = parse_identity(data, version);
    state.validation_hash = json.value("validation_xxh3_128", "");
    if (!json.at("validation_loss").is_null()) state.validation_loss = number(json, "validation_loss");
    if (const auto tokens = json.find("validation_tokens"); tokens != json.end() && !tokens->is_null()) {
      state.validation_tokens = natural<std::int64_t>(json, "validation_tokens");
    }
    if (const auto best = json.find("best_validation"); best != json.end() && !best->is_null())
      state.best_validation = parse_best_validation(*best);
    return state;
  });
}

BestValidation after_validation(const std::optional<BestValidation>& best, std::int64_t step, double loss,
                                std::int64_t tokens) {
  const bool first = !best || best->tokens != tokens || std::isnan(best->loss);
  if (first || loss < best->loss) return {.loss = loss, .tokens = tokens, .step = step};
  BestValidation same = *best;
  ++same.worse;
  return same;
}

}  // namespace stagegpt
