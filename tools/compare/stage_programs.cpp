#include "tools/compare/stage_programs.h"

#include <algorithm>

#include "common/base/error.h"
#include "common/system/subprocess.h"

namespace stagegpt::compare {
namespace {

constexpr int kStages = 4;
constexpr double kProbeSeconds = 120;  // a GPU may be slow to initialise

class Finder {
 public:
  Finder(const StageChoice& choice, const Launcher& launcher) : choice_(choice), launcher_(launcher) {}

  FoundStages find() {
    for (int stage = 0; stage < kStages; ++stage) {
      const bool asked_for =
          choice_.stages && std::ranges::find(*choice_.stages, stage) != choice_.stages->end();
      if (choice_.stages && !asked_for) continue;
      if (const std::string why = add(stage); !why.empty()) {
        if (asked_for) user_error("--stages: stage ", stage, " cannot run: ", why);
        found_.left_out.push_back({concat("Stage ", stage), why});
      }
    }
    return std::move(found_);
  }

 private:
  // Finds a stage's program. Returns why there is none, or an empty string.
  std::string add(int stage) {
    if (stage < 2) return add_program(stage, Hardware::cpu, concat("stage", stage, "_train"));
    std::string no_gpu = "--emulated";
    if (!choice_.emulated) {
      no_gpu = add_program(stage, Hardware::gpu, concat("stage", stage, "_train"));
      if (no_gpu.empty()) return "";
    }
    std::string why = add_program(stage, Hardware::emulator, concat("stage", stage, "_train_emulated"));
    if (!why.empty()) return choice_.emulated ? why : concat(no_gpu, "; ", why);
    if (!choice_.emulated) {
      found_.left_out.push_back(
          {concat("Stage ", stage, " on a GPU"), concat(no_gpu, "; the emulator is used instead")});
    }
    return "";
  }

  std::string add_program(int stage, Hardware hardware, const std::string& name) {
    StageProgram program{.stage = stage, .hardware = hardware, .path = choice_.programs / name, .flags = {}};
    if (!find_program(program.path)) return concat(name, " not found");
    if (program.has_ranks() && !launcher_.why_not().empty()) return launcher_.why_not();
    const SubprocessResult help = start(program, {"--help"});
    if (help.exit_code != 0) return concat(name, " does not start: ", error_message(help.errors));
    program.flags = flags_in_help(help.output);
    if (hardware == Hardware::gpu) {
      const SubprocessResult device = start(program, {"--dry-run", "--tokenizer", "char"});
      if (device.exit_code != 0) return error_message(device.errors);
    }
    found_.stages.push_back(std::move(program));
    return "";
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
