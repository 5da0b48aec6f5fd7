#include "common/app/run_files.h"

#include <iostream>

#include "common/app/configuration.h"
#include "common/app/train_report.h"

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
