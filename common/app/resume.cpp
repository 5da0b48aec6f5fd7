#include "common/app/resume.h"

#include <algorithm>
#include <iostream>

#include "common/app/configuration.h"
#include "common/base/json.h"
#include "common/checkpoint/checkpoint.h"
#include "common/comm/agreement.h"
#include "common/data/find_files.h"
#include "common/data/mixture.h"
#include "common/system/stop_signals.h"

namespace stagegpt {
namespace {

namespace fs = std::filesystem;

// Settings that cannot change: those of the model, and of the data that it learns from.
constexpr const char* kFixed[] = {"model",      "n_layer",      "n_head",    "n_embd",
                                  "block_size", "activation",   "tokenizer", "tokenizer_path",
                                  "vocab_size", "val_fraction", "seed",      "parse_special_tokens"};
// Settings that may change, and then lead to other weights.
constexpr const char* kAnnounced[] = {
    "batch_size",  "grad_accumulation", "learning_rate", "min_lr",        "warmup_steps", "lr_schedule",
    "decay_steps", "weight_decay",      "beta1",         "beta2",         "eps",          "grad_clip",
    "freeze",      "dropout",           "no_fused",      "overfit_batch", "reproducible", "sub_batches"};

bool changes(const Json& before, const Json& now, const std::string& key) {
  return before.contains(key) && now.contains(key) && before[key] != now[key];
}

bool is_run(const fs::path& path) { return file_exists(path / "run.json"); }

struct Named {
  fs::path run;
  std::optional<fs::path> checkpoint;
};

Named named_run(const std::string& given) {
  if (is_run(given)) return {given, std::nullopt};
  std::error_code error;
  const fs::path checkpoint = fs::canonical(given, error), checkpoints = checkpoint.parent_path();
  if (error) user_error("--resume: cannot open \"", given, "\": ", error.message());
  if (checkpoints.filename() != "checkpoints" || !is_run(checkpoints.parent_path())) {
    user_error("--resume: expected a run or one of its checkpoints, not \"", given, "\"");
  }
  return {checkpoints.parent_path(), checkpoint};
}

// The checkpoint that was named, verified. Throws UserError where it is not the newest one of the run.
fs::path require_newest(const fs::path& run, const fs::path& checkpoint) {
  naming("--resume", [&] { verify_checkpoint(checkpoint, StopSignals::throw_if_requested); });
  const auto checkpoints = checkpoints_of(run);
  const auto is_named = [&](const auto& entry) { return entry.second.filename() == checkpoint.filename(); };
  if (std::ranges::none_of(checkpoints, is_named)) {
    user_error("--resume: expected a checkpoint under the name that it was saved with, not ", checkpoint);
  }
  const fs::path newest = checkpoints.rbegin()->second;
  if (checkpoint.filename() != newest.filename()) {
    user_error("--resume: expected the newest checkpoint of the run, ", newest.filename(), ", not ",
               checkpoint.filename(),
               "; to go back to it, remove the newer ones, or start a new run with --model ", checkpoint);
  }
  return checkpoint;
}

void open_run(ResumedRun& resumed, const std::string& given, const std::optional<std::string>& run_dir) {
  if (given.empty() && !run_dir)
    user_error("--resume: expected the directory of a run, here or in --run-dir");
  const Named named = named_run(given.empty() ? *run_dir : given);
  std::error_code ignored;
  if (run_dir && !fs::equivalent(named.run, *run_dir, ignored)) {
    user_error("--run-dir: expected the run that --resume names, ", named.run, ", not \"", *run_dir, "\"");
  }
  resumed.directory.emplace(RunDirectory::open(named.run));
  resumed.path = named.run;
  resumed.checkpoint = named.checkpoint ? require_newest(named.run, *named.checkpoint)
                                        : newest_checkpoint(named.run, StopSignals::throw_if_requested);
  naming("--resume", [&] {
    const TrainerState state = read_trainer_state(resumed.checkpoint);
    if (state.best_validation) resumed.worse_validations = state.best_validation->worse;
  });
  const fs::path configuration = resumed.directory->configuration();
  const MappedFile settings(configuration, "--resume");
  naming(concat("--resume: ", configuration), [&] { resumed.settings = parse_json(settings.text()); });
}

}  // namespace

ResumedRun open_resumed_run(RankGroup& group, const std::string& given,
                            const std::optional<std::string>& run_dir) {
  ResumedRun resumed;
  // Each as a text of its own: a path may hold bytes that are no UTF-8, which JSON cannot.
  const std::string path = text_from_root(group, [&] {
    open_run(resumed, given, run_dir);
    return resumed.path.string();
  });
  const std::string checkpoint = broadcast_text(group, resumed.checkpoint.string());
  const std::string settings = broadcast_text(group, resumed.settings.dump());
  const std::string worse = broadcast_text(group, std::to_string(resumed.worse_validations));
  if (group.is_root()) return resumed;
  resumed.path = path;
  resumed.checkpoint = checkpoint;
  resumed.settings = Json::parse(settings);
  resumed.worse_validations = std::stoll(worse);
  return resumed;
}

void require_data_of_run(const ResumedRun& resumed, const std::string& data) {
  const Json& before = resumed.settings.contains("data") ? resumed.settings["data"] : Json();
  if (!before.is_string() || with_absolute_paths(data) != before.get<std::string>()) return;
  std::vector<MixtureSource> sources = parse_mixture(data);
  if (sources.empty()) sources.push_back({data});
  for (const MixtureSource& source : sources) {
    if (!matching_files(source.data).empty()) continue;
    throw std::runtime_error(concat("--data: \"", source.data,
                                    "\", which the run was trained on, does not exist now; make it available "
                                    "again, or name a copy with --data"));
  }
}

Json kept_values(const Json& run, const Json& now) {
  Json kept = Json::object();
  const Json values = resolved_settings(run);
  for (const auto& [key, value] : values.items()) {
    if (run[key].is_null() && !value.is_null() && now.value(key, Json()).is_null()) kept[key] = value;
  }
  const auto rate = now.find("learning_rate");
  if (rate != now.end() && !rate->is_null() && *rate != values.value("learning_rate", Json()))
    kept.erase("min_lr");
  for (const char* key : {"eval_every", "checkpoint_every"}) {  // how often, and so at what cost
    if (now.value(key, Json()) != values.value(key, Json())) kept.erase("eval_tokens");
  }
  return kept;
}

namespace {

// A setting for readers: of a number as many digits as users type.
std::string shown(const Json& value) {
  if (value.is_null()) return "the default";
  if (!value.is_number_float()) return value.dump();
  char text[32];
  std::snprintf(text, sizeof text, "%.12g", value.get<double>());
  return text;
}

}  // namespace

void refuse_changes(const Json& run, const Json& now) {
  const Json before = resolved_settings(run);
  for (const char* key : kFixed) {
    if (changes(before, now, key)) {
      user_error(flag_of_key(key), ": expected ", shown(before[key]), ", as the run began with, not ",
                 shown(now[key]), "; another value needs a new run");
    }
  }
}

void announce_changes(const Json& run, const Json& settings, const std::set<std::string>& stage_keys) {
  const Json before = resolved_settings(run), now = resolved_settings(settings);
  if (changes(before, now, "steps")) {
    std::cerr << "note: the learning-rate schedule now ends at step " << now["steps"] << ", not "
              << before["steps"] << "; the learning rate of the next steps changes\n";
  }
  std::vector<std::string> keys(std::begin(kAnnounced), std::end(kAnnounced));
  keys.insert(keys.end(), stage_keys.begin(), stage_keys.end());
  for (const std::string& key : keys) {
    if (changes(before, now, key)) {
      std::cerr << "note: " << flag_of_key(key) << " changes from " << shown(before[key]) << " to "
                << shown(now[key]) << '\n';
    }
  }
}

std::int64_t steps_done(const ResumedRun& resumed) {
  return step_in_name(resumed.checkpoint.filename()).value_or(0);
}

bool is_out_of_patience(const ResumedRun& resumed, const TrainingRunConfig& config) {
  return config.patience > 0 && resumed.worse_validations >= config.patience;
}

bool has_steps_left(const std::optional<ResumedRun>& resumed, const TrainingRunConfig& config) {
  return !resumed || (steps_done(*resumed) < config.last_step && !is_out_of_patience(*resumed, config));
}

}  // namespace stagegpt
