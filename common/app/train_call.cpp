#include "common/app/train_call.h"

#include <iostream>
#include <memory>

#include "common/app/configuration.h"
#include "common/app/train_report.h"
#include "common/app/training_grid.h"
#include "common/comm/agreement.h"

namespace stagegpt {
namespace {

// The flags, and the command line that refers to them: this cannot be moved.
struct ParsedFlags {
  TrainFlags flags;
  CommandLine command_line;

  ParsedFlags(const char* program, Stage& stage)
      : command_line(program, "Train GPT-2 on a text. With no flag: nano, on data/dummy.txt.", stage.number(),
                     stage_flags()) {
    command_line.version(built_version());
    flags.add(command_line);
    stage.add_flags(command_line);
    stage.add_repeated_work_flags(command_line);
    stage.add_grid_flags(command_line);
  }
};

// With --tensor-parallel and --pipeline-parallel, no rank has the whole model. (With frozen parameters, ranks
// could disagree on which gradients there are: some biases are on the first tensor rank only.)
void refuse_what_needs_a_whole_model(const TrainOptions& options, const Stage& stage) {
  refuse_on_grid(stage, options.run.trainer.reproducible, "--reproducible");
  refuse_on_grid(stage, !options.config.frozen.empty(), "--freeze");
}

// Checks that need neither data nor weights.
void check_call(const TrainOptions& options, ProfileFlags& profile, Stage& stage,
                const std::optional<ResumedRun>& resumed) {
  RankGroup& group = stage.group();
  const TrainerConfig config = options.run.trainer;
  agree(group, [&] {
    if (!config.reproducible && config.sub_batches != kReproducibleSubBatches)
      user_error("--sub-batches: expected together with --reproducible");
    refuse_what_needs_a_whole_model(options, stage);
    require_divisible_step(stage, config);
  });
  const StepRange steps{resumed ? steps_done(*resumed) + 1 : 1, options.run.last_step};
  agree(group, [&] {
    profile.resolve(steps, stage);
    if (stage.counts() && options.dry_run) user_error("--emulator-report: cannot be combined with --dry-run");
  });
  on_root(group, [&] {
    if (!resumed && !options.dry_run && options.run_dir) require_no_run(*options.run_dir);
  });
}

std::string settings_file(const ResumedRun& resumed) {
  return concat("--resume: ", resumed.path / "run.json");
}

// Resumes with the run's copies of files, unless a flag names another file than before. Leaves out a file for
// which the other flags have no use, unless this call names it.
void take_kept_files(const Stage& stage, const CommandLine& command_line, const ResumedRun& resumed) {
  const Json now = command_line.settings();
  for (const auto& [flag, name, is_used] : stage.kept_files()) {
    const std::string key = config_key(flag);
    const Json before = resumed.settings.value(key, Json());
    if (!before.is_string() || now[key] != before) continue;
    const bool left_out = !is_used && !command_line.is_given(flag);
    command_line.apply(Json{{key, left_out ? Json() : Json((resumed.path / name).string())}});
  }
}

// Refuses --decay-steps in this call where the schedule has none. A resumed run may still have the number of
// a schedule that it had before, and a file of its settings has it too.
void refuse_decay_without_schedule(const CommandLine& command_line,
                                   const std::optional<ResumedRun>& resumed) {
  const Json in_file = command_line.file_settings().value("decay_steps", Json()),
             before = resumed ? resumed->settings.value("decay_steps", Json()) : Json();
  const bool given = command_line.is_given("--decay-steps") || (!in_file.is_null() && in_file != before);
  if (given && command_line.settings()["lr_schedule"] != "wsd")
    user_error("--decay-steps: expected together with --lr-schedule wsd");
}

// Fills in what was not given: from the run, so that a new default does not change it, otherwise from other
// flags. Returns the settings that were given, with those derived.
Json resolve(const Stage& stage, ParsedFlags& call, const std::optional<ResumedRun>& resumed) {
  Json settings = call.command_line.settings();
  if (resumed) {
    naming(settings_file(*resumed),
           [&] { call.command_line.apply(kept_values(resumed->settings, settings)); });
    refuse_changes(resumed->settings, call.command_line.settings());
    call.flags.model.begin_from(resumed->checkpoint);
  }
  call.flags.resolve();
  refuse_decay_without_schedule(call.command_line, resumed);
  settings = with_derived(std::move(settings), call.command_line.settings());
  if (resumed) {
    if (has_steps_left(resumed, call.flags.run()))
      announce_changes(resumed->settings, settings, call.command_line.stage_keys());
    call.flags.take_tokenizer(resumed->path / "tokenizer.json");
    take_kept_files(stage, call.command_line, *resumed);
  } else {
    call.flags.model.refuse_fields_of_another_model(call.command_line);
  }
  return settings;
}

}  // namespace

std::optional<TrainCall> read_train_call(Stage& stage, int argc, char** argv) {
  RankGroup& group = stage.group();
  auto call = std::make_unique<ParsedFlags>(argv[0], stage);
  if (!parse_flags(stage, call->command_line, argc, argv, [] {})) return std::nullopt;

  TrainCall read;
  if (call->flags.resume) read.resumed = open_resumed_run(group, *call->flags.resume, call->flags.run_dir());
  agree(group, [&] {
    if (read.resumed) {
      call = std::make_unique<ParsedFlags>(argv[0], stage);
      // Earlier versions took any file.
      if (!read.resumed->settings.contains("any_bytes")) read.resumed->settings["any_bytes"] = true;
      for (const std::string& note : replace_removed(read.resumed->settings))
        std::cerr << "note: " << note << '\n';
      naming(settings_file(*read.resumed), [&] { call->command_line.apply(read.resumed->settings); });
      call->command_line.parse(argc, argv);
    }
    read.settings = resolve(stage, *call, read.resumed);
  });
  require_same_settings(group, call->command_line);
  if (call->flags.print_config) {
    std::cout << json_text(read.settings);
    return std::nullopt;
  }
  read.options = call->flags.options();
  read.profile = call->flags.profile;
  check_call(read.options, read.profile, stage, read.resumed);
  return read;
}

}  // namespace stagegpt
