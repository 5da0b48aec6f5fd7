// compare_stages: one experiment at every stage that this machine can run, in one report.
#include <algorithm>
#include <iostream>

#include "common/app/command_line.h"
#include "common/app/started_once.h"
#include "common/base/error.h"
#include "common/base/json.h"
#include "common/io/file.h"
#include "common/logging/step_trace.h"
#include "common/system/stop_signals.h"
#include "common/system/subprocess.h"
#include "tools/compare/compare.h"
#include "tools/compare/divergence.h"
#include "tools/compare/provenance.h"
#include "tools/compare/report_parts.h"

namespace stagegpt {
namespace {

using compare::Comparison;
using compare::Experiment;
using compare::FlagList;

constexpr const char* kFooter =
    "Flags after -- are passed to every stage that has them:\n"
    "  compare_stages --output report -- --n-embd 128 --steps 40 --comm flat\n"
    "Default: a char-level GPT-2 of 2 layers, 2 heads and 64 channels on data/dummy.txt, 20 steps of 8 "
    "sequences\n"
    "of 32 tokens.\n"
    "Exit codes: 0 all stages agree, 1 they disagree or one failed, 2 the input is wrong.";

struct CompareFlags {
  compare::CompareOptions options;  // as the flags say, after resolve()
  std::optional<std::string> output, config, programs, against, scaling;
  std::string stages, ranks, tensor_parallel, pipeline_parallel;
  std::vector<std::string> traces;
  bool json = false, no_reproducible_pass = false, no_timelines = false;
  std::optional<std::int64_t> cores;
  std::optional<double> loss_limit, norm_limit;

  CompareFlags() {
    options.title = "The stages of StageGPT, compared";
    options.timeout_seconds = 1800;
  }
  void add(CommandLine& command_line);
  // `handed_on`: the flags after "--".
  void resolve(const std::vector<std::string>& handed_on);

 private:
  void resolve_experiment(const std::vector<std::string>& handed_on);
};

void CompareFlags::add(CommandLine& command_line) {
  command_line.group("Report");
  command_line.text("--output", output,
                    "directory to create, with index.html, results.json, runs/ and profiles/");
  command_line.toggle("--overwrite", options.overwrite, "replace an existing comparison");
  command_line.free_text("--title", options.title, "title of the page");
  command_line.free_text("--author", options.author, "author, shown on the page");
  command_line.toggle("--json", json, "print results.json instead of tables");
  command_line.group("Contestants");
  command_line.free_text("--stages", stages, "stages to compare, such as 0,1,3 (default: all that can run)");
  command_line.free_text("--ranks", ranks,
                         "numbers of ranks for stages 1 and 3, such as 1,2,4 (default: 1,2)");
  command_line.free_text(compare::kTensorFlag, tensor_parallel,
                         "numbers of tensor ranks that hold one model, such as 1,2 (default: 1): all are "
                         "combined with --ranks that they divide");
  command_line.free_text(compare::kPipelineFlag, pipeline_parallel, "the same for the stages of a pipeline");
  command_line.toggle("--emulated", options.choice.emulated,
                      "run stages 2 and 3 on the emulator even if there is a GPU");
  command_line.text("--programs", programs, "directory of stageN_train (default: that of this program)");
  command_line.text("--against", against,
                    "directory of another build's stageN_train: each stage of it runs too, as the reference");
  command_line.text(
      "--mpirun", options.mpirun,
      "command that starts ranks, before -np N (default: mpirun, and with Open MPI --oversubscribe "
      "--bind-to none)");
  command_line.integer("--cores", cores, 1, 1 << 20,
                       "cores of each contestant, divided among its ranks (default: all)");
  command_line.group("Experiment");
  command_line.text("--config", config, "settings of stageN_train, a JSON object, such as a run's run.json");
  command_line.choice("--scaling", scaling, {"strong", "weak"},
                      "each rank has --cores divided by the largest number of ranks; the batch stays "
                      "(strong) or grows with the ranks (weak)");
  command_line.integer("--repeats", options.experiment.repeats, 1, 1000,
                       "runs of each contestant, alternating with the others");
  command_line.integer("--warmup", options.experiment.warmup, 0, 1'000'000,
                       "number of first steps that are not timed");
  command_line.toggle("--reproducible", options.experiment.reproducible,
                      "make every run with --reproducible, and expect identical bits");
  command_line.toggle("--no-reproducible-pass", no_reproducible_pass,
                      "skip the extra run of each stage with --reproducible");
  command_line.toggle("--no-timelines", no_timelines,
                      "skip the extra run of each contestant that records a few steps");
  const compare::Limits f32 = compare::limits_of("f32"), tf32 = compare::limits_of("tf32"),
                        bf16 = compare::limits_of("bf16");
  command_line.real("--loss-limit", loss_limit, kPositive,
                    concat("largest relative difference of losses (default: ", f32.loss,
                           "; tf32: ", tf32.loss, "; bf16: ", bf16.loss, ")"));
  command_line.real("--norm-limit", norm_limit, kPositive,
                    concat("largest relative difference of gradient norms (default: ", f32.grad_norm,
                           "; tf32: ", tf32.grad_norm, "; bf16: ", bf16.grad_norm, ")"));
  command_line.real("--timeout-seconds", options.timeout_seconds, kNotNegative,
                    "end a run that takes longer (0: never)");
  command_line.group("Instead of an experiment");
  command_line.texts("--traces", traces,
                     "compare the traces in two directories, which --trace-steps has written; the first one "
                     "is the reference");
  command_line.footer(kFooter);
}

void CompareFlags::resolve_experiment(const std::vector<std::string>& handed_on) {
  Experiment& experiment = options.experiment;
  FlagList configuration;
  if (config) {
    const MappedFile file(*config, "--config");
    configuration = naming(concat("--config: \"", *config, "\""),
                           [&] { return FlagList::of_settings(parse_json(file.text())); });
  }
  experiment.flags = experiment_flags(configuration, FlagList::parse(handed_on));
  const auto take_numbers = [](const char* flag, const std::string& text,
                               std::vector<std::int64_t>& numbers) {
    constexpr std::int64_t kMostRanks = 65536;
    if (!text.empty()) numbers = compare::parse_numbers(flag, text, 1, kMostRanks);
  };
  experiment.ranks_are_asked_for = !ranks.empty();
  take_numbers("--ranks", ranks, experiment.ranks);
  take_numbers(compare::kTensorFlag, tensor_parallel, experiment.tensor_parallel);
  take_numbers(compare::kPipelineFlag, pipeline_parallel, experiment.pipeline_parallel);
  if (scaling) experiment.mode = *scaling == "weak" ? compare::Mode::weak : compare::Mode::strong;
  experiment.cores = cores.value_or(compare::usable_cores());
  experiment.reproducible_pass = !no_reproducible_pass;
  const compare::Limits usual = compare::limits_of(experiment.flags.value("--precision").value_or(""));
  experiment.limits = {loss_limit.value_or(usual.loss), norm_limit.value_or(usual.grad_norm)};
}

void CompareFlags::resolve(const std::vector<std::string>& handed_on) {
  if (!output) user_error("--output: expected a directory to create");
  resolve_experiment(handed_on);
  options.output = *output;
  options.choice.programs = programs ? std::filesystem::path(*programs) : own_directory();
  if (against) options.choice.against = *against;
  if (!stages.empty()) options.choice.stages = compare::parse_numbers("--stages", stages, 0, 3);
  options.timelines = !no_timelines;
}

// Exit code: 0 if all tensors agree within their limits, otherwise 1.
int compare_traces(const std::vector<std::string>& directories) {
  if (directories.size() != 2) {
    user_error("--traces: expected two directories, got ", directories.size());
  }
  const std::filesystem::path reference = directories[0], other = directories[1];
  for (const auto& [step, path] : traces_in(reference)) {
    if (!traces_in(other).contains(step)) user_error("--traces: ", other, " has no trace of step ", step);
  }
  const std::vector<Divergence> all = divergences(reference, other);
  const auto wrong = std::ranges::find_if_not(all, &Divergence::within_limit);
  if (wrong == all.end()) {
    std::cout << all.size() << " tensors agree\n";
    return 0;
  }
  std::cout << wrong->text() << '\n';
  return 1;
}

int compare_stages_main(int argc, char** argv) {
  require_started_once();
  const auto end =
      std::find_if(argv, argv + argc, [](const char* word) { return std::string_view(word) == "--"; });
  CompareFlags flags;
  CommandLine command_line(
      argv[0], "Run one experiment at every stage that this machine can run, and compare.", std::nullopt);
  command_line.version(built_version());
  flags.add(command_line);
  if (!command_line.parse(static_cast<int>(end - argv), argv)) return 0;
  if (!flags.traces.empty()) return compare_traces(flags.traces);
  flags.resolve(end == argv + argc ? std::vector<std::string>()
                                   : std::vector<std::string>(end + 1, argv + argc));
  compare::CompareOptions& options = flags.options;
  options.command.assign(argv, argv + argc);
  options.version = built_version();
  const StopSignals signals({SIGINT, SIGTERM, SIGHUP});
  options.cancelled = StopSignals::requested;

  const Comparison comparison = compare::compare(options);
  if (flags.json) {
    std::cout << json_text(results_json(comparison), 1);
  } else {
    std::cout << terminal_report(comparison);
  }
  std::cerr << "report: " << (options.output / "index.html").string() << '\n';
  return comparison.passed() ? 0 : 1;
}

}  // namespace
}  // namespace stagegpt

int main(int argc, char** argv) {
  return stagegpt::run_program(argv[0], [&] { return stagegpt::compare_stages_main(argc, argv); });
}
