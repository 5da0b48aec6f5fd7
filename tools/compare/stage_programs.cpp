#include "tools/compare/stage_programs.h"

#include <unistd.h>

#include <algorithm>
#include <optional>
#include <sstream>

#include "common/base/error.h"
#include "common/system/subprocess.h"

namespace stagegpt::compare {
namespace {

constexpr double kVersionSeconds = 20;

constexpr int kStages = 4;
constexpr double kProbeSeconds = 120;  // a GPU may be slow to initialise

// Why a program cannot run, and what the user can do about it.
struct Obstacle {
  std::string reason, advice;

  std::string text() const { return advice.empty() ? reason : concat(reason, "; ", advice); }
};

// From the error message of a program for GPUs, such as "no driver was found; install it, or use
// stage2_train_emulated, …". The advice to use the emulated program is omitted.
Obstacle no_gpu(const std::string& message, const std::string& name) {
  const std::size_t alternative = message.find(concat(", or use ", name, "_emulated"));
  const std::size_t end_of_reason = message.rfind("; ", alternative);
  if (alternative == message.npos || end_of_reason == message.npos) return {message, ""};
  const std::size_t advice = end_of_reason + 2;
  return {message.substr(0, end_of_reason), message.substr(advice, alternative - advice)};
}

class Finder {
 public:
  Finder(const StageChoice& choice, const Launcher& launcher) : choice_(choice), launcher_(launcher) {}

  FoundStages find() {
    for (int stage = 0; stage < kStages; ++stage) {
      const bool asked_for =
          choice_.stages && std::ranges::find(*choice_.stages, stage) != choice_.stages->end();
      if (choice_.stages && !asked_for) continue;
      if (choice_.against) add_or_leave_out(stage, true, asked_for);
      add_or_leave_out(stage, false, asked_for);
    }
    return std::move(found_);
  }

 private:
  static std::string label(int stage, bool other) {
    return concat("Stage ", stage, other ? ", other build" : "");
  }

  void add_or_leave_out(int stage, bool other, bool asked_for) {
    const std::string why = add(stage, other);
    if (why.empty()) return;
    if (asked_for) user_error("--stages: stage ", stage, other ? " of --against" : "", " cannot run: ", why);
    found_.left_out.push_back({label(stage, other), why});
  }

  // Finds a stage's program. Returns why there is none, or an empty string.
  std::string add(int stage, bool other) {
    const StageProgram of_stage{
        .stage = stage, .hardware = {}, .other_build = other, .path = {}, .flags = {}};
    if (of_stage.has_ranks() && !launcher_.why_not().empty()) return launcher_.why_not();
    const std::string name = concat("stage", stage, "_train");
    const auto add_program = [&](Hardware hardware, const std::string& its_name) {
      return this->add_program(of_stage, hardware, its_name);
    };
    if (stage < 2) return text_of(add_program(Hardware::cpu, name));
    const std::string emulated = name + "_emulated";
    if (choice_.emulated) return text_of(add_program(Hardware::emulator, emulated));
    const std::optional<Obstacle> on_gpu = add_program(Hardware::gpu, name);
    if (!on_gpu) return "";
    if (const auto why = add_program(Hardware::emulator, emulated)) {
      return concat(on_gpu->reason, ", and ", why->text());
    }
    const Obstacle fallback = {concat(on_gpu->reason, "; the emulator is used instead"),
                               on_gpu->advice.empty() ? "" : concat("for a GPU, ", on_gpu->advice)};
    found_.left_out.push_back({label(stage, other) + " on a GPU", fallback.text()});
    return "";
  }

  static std::string text_of(const std::optional<Obstacle>& obstacle) {
    return obstacle ? obstacle->text() : "";
  }

  std::optional<Obstacle> add_program(StageProgram program, Hardware hardware, const std::string& name) {
    const std::filesystem::path& directory = program.other_build ? *choice_.against : choice_.programs;
    program.hardware = hardware;
    program.path = directory / name;
    if (!find_program(program.path)) return not_there(hardware, directory, name);
    const SubprocessResult help = start(program, {"--help"});
    if (help.exit_code != 0) {
      return Obstacle{concat(name, " does not start: ", error_message(help.errors)),
                      "./scripts/doctor.sh tells what this machine lacks"};
    }
    program.flags = flags_in_help(help.output);
    if (hardware == Hardware::gpu) {
      const SubprocessResult device = start(program, {"--dry-run", "--tokenizer", "char"});
      if (device.exit_code != 0) return no_gpu(error_message(device.errors), name);
    }
    found_.stages.push_back(std::move(program));
    return std::nullopt;
  }

  static Obstacle not_there(Hardware hardware, const std::filesystem::path& directory,
                            const std::string& name) {
    std::filesystem::path build = (directory / "..").lexically_normal();
    if (!build.has_filename()) build = build.parent_path();
    if (!exists(build / "CMakeCache.txt")) {
      return {concat(name, " is not in ", directory.string()),
              "build it, or name its directory with --programs"};
    }
    if (hardware == Hardware::gpu) {
      return {name + " is not built",
              "install the CUDA toolkit, 12 or newer, then configure and build again"};
    }
    return {name + " is not built",
            concat("build it: ", shell_line({"cmake", "--build", build.string(), "--target", name}))};
  }

  SubprocessResult start(const StageProgram& program, const std::vector<std::string>& arguments) const {
    Subprocess subprocess{.argv = start_words(program, 1, launcher_), .environment = launcher_.environment()};
    subprocess.argv.insert(subprocess.argv.end(), arguments.begin(), arguments.end());
    subprocess.timeout_seconds = kProbeSeconds;
    return run_subprocess(subprocess);
  }

  const StageChoice& choice_;
  const Launcher& launcher_;
  FoundStages found_;
};

}  // namespace

Launcher::Launcher(const std::optional<std::string>& command) {
  std::istringstream words(command.value_or("mpirun"));
  for (std::string word; words >> word;) command_.push_back(word);
  if (command_.empty()) user_error("--mpirun: expected a command, got \"\"");
  if (!find_program(command_.front())) {
    if (command) user_error("--mpirun: ", command_.front(), " is not found");
    why_not_ =
        "mpirun is not found; install Open MPI with ./scripts/setup.sh, or name another launcher with "
        "--mpirun";
    return;
  }
  const SubprocessResult told = run_subprocess({.argv = {command_.front(), "--version"},
                                                .environment = environment(),
                                                .timeout_seconds = kVersionSeconds});
  version_ = told.output.substr(0, told.output.find('\n'));
  const bool open_mpi =
      version_.find("Open MPI") != version_.npos || version_.find("OpenRTE") != version_.npos;
  starts_here_ = !command;
  if (!command && open_mpi) command_.insert(command_.end(), {"--oversubscribe", "--bind-to", "none"});
}

std::string before_launcher(const std::string& errors) {
  const std::size_t dashes = errors.find(std::string(40, '-'));
  const std::string before = errors.substr(0, dashes);
  return last_lines(before, 1).empty() ? errors : before;
}

std::string error_message(const std::string& errors) {
  const std::string messages = before_launcher(errors);
  std::istringstream lines(messages);
  for (std::string line; std::getline(lines, line);) {
    const std::size_t name_end = line.find(": ");
    if (name_end != line.npos && line.substr(0, name_end).find("_train") != line.npos &&
        line.find(' ') == name_end + 1) {
      return line.substr(name_end + 2);
    }
  }
  return last_lines(messages, 1);
}

std::vector<std::string> Launcher::words(std::int64_t ranks) const {
  std::vector<std::string> words = command_;
  words.insert(words.end(), {"-np", std::to_string(ranks)});
  return words;
}

std::vector<std::pair<std::string, std::string>> Launcher::environment() const {
  if (geteuid() != 0) return {};
  return {{"OMPI_ALLOW_RUN_AS_ROOT", "1"}, {"OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"}};
}

FoundStages find_stages(const StageChoice& choice, const Launcher& launcher) {
  return Finder(choice, launcher).find();
}

std::vector<std::string> start_words(const StageProgram& program, std::int64_t ranks,
                                     const Launcher& launcher) {
  std::vector<std::string> words;
  if (program.has_ranks()) words = launcher.words(ranks);
  words.push_back(program.path);
  return words;
}

}  // namespace stagegpt::compare
