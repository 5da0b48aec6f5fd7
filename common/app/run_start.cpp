#include "common/app/run_start.h"

#include <iostream>

#include "common/app/configuration.h"
#include "common/app/train_report.h"
#include "common/checkpoint/model_file.h"
#include "common/comm/agreement.h"
#include "common/parallel/whole_values.h"
#include "common/system/stop_signals.h"
#include "common/train/compare_weights.h"

namespace stagegpt {
namespace {

namespace fs = std::filesystem;

// "nano", or the name of the directory or file; for a checkpoint of a run, the run's name.
std::string run_name(const TrainOptions& options) {
  if (!options.weights) return options.model_name;
  fs::path path = fs::weakly_canonical(*options.weights);
  if (path.parent_path().filename() == "checkpoints") path = path.parent_path().parent_path();
  if (fs::is_regular_file(path)) return path.stem().string();
  return path.has_filename() ? path.filename().string() : "model";
}

}  // namespace

ParameterValues open_weights(const std::filesystem::path& path, bool verified) {
  const ModelFile file = verified ? open_verified_model(path, "--resume")
                                  : open_model(path, "--model", StopSignals::throw_if_requested);
  return with_heartbeat(file.values, StopSignals::throw_if_requested);
}

void set_initial_weights(const Machine& machine, bool from_files, const ParameterValues& values,
                         std::uint64_t seed, LanguageModel& model) {
  const Grid grid = machine.ranks();
  Communicator& communicator = grid.data();
  RankGroup& world = grid.world().group();
  Parameters& parameters = model.parameters();
  if (from_files && grid.divides_model()) {
    const ParameterTable whole = gpt2_parameter_table(model.config());
    take_part(world, *machine.backend, whole, values, parameters.table(), parameters.weights());
  } else if (from_files) {
    on_root(communicator.group(), [&] { load_weights(*machine.backend, parameters, values); });
    broadcast_weights(communicator, *machine.backend, parameters);
  } else {
    agree(world, [&] { draw_weights(communicator, *machine.backend, parameters, seed, machine.threads); });
  }
  parameters.update_shadow();
  stop_if_requested(world);
}

RunDirectory create_run(const TrainOptions& options, const Tokenizer& tokenizer) {
  RunDirectory run = options.run_dir ? RunDirectory::create(*options.run_dir)
                                     : RunDirectory::create_numbered(run_name(options));
  tokenizer.save(run.tokenizer());
  return run;
}

void begin_run(const TrainOptions& options, const Machine& machine, Json settings,
               const ParameterTable& table, const std::optional<ResumedRun>& resumed,
               RunDirectory& directory) {
  settings.erase("run_dir");  // a run may be moved, and resumed from anywhere
  settings["data"] = with_absolute_paths(options.corpus.data);
  if (!options.eval_task.empty()) settings["eval_task"] = fs::absolute(options.eval_task).string();
  if (table.trained_numel() < table.numel()) settings[kDerived]["trained_parameters"] = table.trained_numel();
  for (const auto& [name, text] : machine.kept_files) replace_file(directory.path() / name, text);
  replace_file(directory.configuration(), json_text(settings));
  std::cerr << "run: " << directory.path().string()
            << (resumed ? concat(", resumed from ", resumed->checkpoint.filename()) : "") << '\n';
}

}  // namespace stagegpt
