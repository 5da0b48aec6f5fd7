#include "tools/compare/runner.h"

#include <utility>

#include "common/base/error.h"
#include "common/io/content_hash.h"
#include "common/io/file.h"
#include "common/system/system_files.h"
#include "tools/compare/stage_programs.h"

namespace stagegpt::compare {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kLinesOfErrors = 8;
constexpr int kUsersMistake = 2;
constexpr std::int64_t kRecordedSteps = 5;

std::string how_it_ended(const SubprocessResult& result) {
  if (result.timed_out) return concat("did not end within ", result.seconds, " s; see --timeout-seconds");
  constexpr int kSignalled = 128;
  return result.exit_code > kSignalled ? concat("ended by signal ", result.exit_code - kSignalled)
                                       : concat("exit code ", result.exit_code);
}

Trial read_trial(const fs::path& run) {
  Trial trial = parse_metrics(MappedFile(run / "metrics.jsonl", "metrics.jsonl").text());
  trial.weights_xxh3_128 = hash_of_file(run / "latest" / "model.safetensors");
  return trial;
}

// Removes a run's checkpoints at the end of a scope, because they may be large. Their hash is recorded
// before.
class CheckpointRemover {
 public:
  explicit CheckpointRemover(fs::path run) : run_(std::move(run)) {}
  ~CheckpointRemover() {
    std::error_code ignored;
    for (const char* name : {"checkpoints", "latest", "best"}) fs::remove_all(run_ / name, ignored);
  }
  CheckpointRemover(const CheckpointRemover&) = delete;
  CheckpointRemover& operator=(const CheckpointRemover&) = delete;

 private:
  fs::path run_;
};

}  // namespace

Runner::Runner(const Experiment& experiment, const std::vector<StageProgram>& stages,
               const Launcher& launcher, fs::path directory, double timeout_seconds,
               std::function<bool()> cancelled)
    : experiment_(experiment),
      launcher_(launcher),
      directory_(std::move(directory)),
      timeout_seconds_(timeout_seconds),
      cancelled_(std::move(cancelled)) {
  for (const StageProgram& stage : stages) all_flags_.insert(stage.flags.begin(), stage.flags.end());
}

std::vector<std::string> Runner::command(const Contestant& contestant,
                                         const std::vector<std::string>& more) const {
  const StageProgram& program = contestant.program;
  FlagList flags = experiment_.flags;
  flags.set("--batch-size", {std::to_string(contestant.batch_size)});
  flags.set("--threads", {std::to_string(contestant.threads)});
  if (contestant.reproducible) flags.set("--reproducible");
  if (contestant.tensor_ranks > 1) flags.set(kTensorFlag, {std::to_string(contestant.tensor_ranks)});
  if (contestant.pipeline_stages > 1) flags.set(kPipelineFlag, {std::to_string(contestant.pipeline_stages)});
  flags.update(FlagList::parse(more));
  std::vector<std::string> words = start_words(program, contestant.ranks, launcher_);
  // A flag that no stage has is passed too, so that the program reports it. A flag that only other stages
  // have is omitted.
  std::set<std::string> others = all_flags_;
  others.insert("--threads");
  const std::vector<std::string> arguments = flags.known_to(program.flags, others).arguments();
  words.insert(words.end(), arguments.begin(), arguments.end());
  return words;
}

SubprocessResult Runner::start(const std::vector<std::string>& command) const {
  Subprocess subprocess{.argv = command, .environment = launcher_.environment()};
  if (timeout_seconds_ > 0) subprocess.timeout_seconds = timeout_seconds_;
  subprocess.cancelled = cancelled_;
  SubprocessResult result = run_subprocess(subprocess);
  if (result.cancelled) throw Interrupted();
  return result;
}

std::string Runner::dry_run(const Contestant& contestant) const {
  const SubprocessResult result = start(command(contestant, {"--dry-run"}));
  if (result.exit_code == kUsersMistake) user_error(error_message(result.errors));
  if (result.exit_code != 0) {
    throw std::runtime_error(
        concat(contestant.label(), ": ", how_it_ended(result), ": ", error_message(result.errors)));
  }
  return result.errors;
}

std::string Runner::settings(const Contestant& contestant) const {
  return start(command(contestant, {"--print-config"})).output;
}

void Runner::run(Entry& entry) const {
  const fs::path directory =
      directory_ / kRuns / concat(entry.contestant.name(), "-", entry.trials.size() + 1);
  const std::vector<std::string> words = command(entry.contestant, {"--run-dir", directory});
  if (entry.command.empty()) entry.command = words;
  const CheckpointRemover remover(directory);
  try {
    SingleProcess alone;
    const LoadMeter meter(alone, entry.contestant.computing_threads());
    const SubprocessResult result = start(words);
    const std::optional<MachineLoad> load = meter.read();
    entry.machine = value_of(result.errors, "machine");
    if (result.exit_code == 0) {
      entry.trials.push_back(read_trial(directory));
      // If --mpirun starts ranks elsewhere, or through a daemon, their time would count as that of other
      // programs.
      if (!entry.contestant.program.has_ranks() || launcher_.starts_here()) entry.trials.back().load = load;
    } else {
      entry.failure =
          concat(how_it_ended(result), ":\n", last_lines(before_launcher(result.errors), kLinesOfErrors));
    }
  } catch (const std::exception& error) {
    entry.failure = error.what();
  }
}

fs::path Runner::run_again(const Contestant& contestant, const char* purpose,
                           const std::vector<std::string>& more) const {
  const std::string name = concat(contestant.name(), "-", purpose);
  fs::path directory = directory_ / kRuns / name;
  // The contestant may have been traced before, for another check.
  for (int number = 2; file_exists(directory); ++number)
    directory.replace_filename(concat(name, "-", number));
  std::vector<std::string> flags = {"--run-dir", directory};
  flags.insert(flags.end(), more.begin(), more.end());
  const CheckpointRemover remover(directory);
  const SubprocessResult result = start(command(contestant, flags));
  if (result.exit_code != 0) {
    throw std::runtime_error(concat(how_it_ended(result), ": ", error_message(result.errors)));
  }
  return directory;
}

void Runner::record(Entry& entry) const {
  const auto steps = static_cast<std::int64_t>(entry.trials.front().steps.size());
  const std::int64_t first = std::min(experiment_.warmup + 1, steps),
                     last = std::min(first + kRecordedSteps - 1, steps);
  Recording& recording = entry.recording.emplace();
  recording.failure = "interrupted";
  const fs::path profile = fs::path(kProfiles) / concat(entry.contestant.name(), ".json");
  try {
    if (!entry.contestant.program.flags.contains("--profile"))
      user_error(entry.contestant.program.path.filename(), " has no --profile");
    run_again(entry.contestant, "profiled",
              {"--profile", directory_ / profile, "--profile-steps", concat(first, ":", last), "--stop-after",
               std::to_string(last)});
    recording.timeline = read_step_timeline(directory_ / profile);
    recording.profile = profile;
    recording.failure.clear();
  } catch (const std::exception& error) {
    recording.failure = error.what();
  }
}

}  // namespace stagegpt::compare
