#include "tools/compare/compare.h"

#include <algorithm>
#include <chrono>
#include <iostream>
#include <set>
#include <sstream>

#include "common/app/configuration.h"
#include "common/base/error.h"
#include "common/base/json.h"
#include "common/base/seconds_since.h"
#include "common/io/status_line.h"
#include "tools/compare/first_tensor.h"
#include "tools/compare/provenance.h"
#include "tools/compare/runner.h"
#include "tools/compare/table.h"

namespace stagegpt::compare {
namespace {

// Shows the current run, and prints a line for each completed one.
class Progress {
 public:
  explicit Progress(std::int64_t runs) : runs_(runs) {}

  void begin(const Contestant& contestant, std::int64_t trial) {
    ++run_;
    const std::string text = concat("[", run_, "/", runs_, "] ", contestant.label(), ", run ", trial);
    current_ = text;
    start_ = std::chrono::steady_clock::now();
    status_.show(false, [&](std::size_t width) { return concat(text, " …").substr(0, width); });
  }
  void end(const Entry& entry) {
    std::string text = concat(current_, ": ", three_digits(seconds_since(start_)), " s");
    if (entry.failed()) {
      text += concat(", FAILED: ", entry.failure);
    } else {
      const Trial& trial = entry.trials.back();
      text += concat(", loss ", three_digits(trial.steps.back().loss));
      if (trial.load && trial.load->busy()) {
        text += concat("; the machine was busy, other programs used ", percent(trial.load->others_share),
                       " of ", trial.load->cores, " cores");
      }
    }
    status_.print_above(text);
  }

 private:
  StatusLine status_;
  std::int64_t runs_, run_ = 0;
  std::string current_;
  std::chrono::steady_clock::time_point start_;
};

// The rest of the line after the first occurrence of `beginning`.
std::string text_after(const std::string& beginning, const std::string& messages) {
  const std::size_t at = messages.find(beginning);
  if (at == messages.npos) return "";
  const std::size_t begin = at + beginning.size();
  return messages.substr(begin, messages.find('\n', begin) - begin);
}

// What a program says of its model in its first line that is no warning: "nano: 105,472 parameters, …".
std::string model_in(const std::string& messages) {
  std::istringstream lines(messages);
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with("warning: ")) return text_after(": ", line);
  }
  return "";
}

class Comparer {
 public:
  explicit Comparer(const CompareOptions& options)
      : options_(options), directory_(options.output, options.overwrite), launcher_(options.mpirun) {
    comparison_.title = options.title;
    comparison_.author = options.author;
    comparison_.command = options.command;
    comparison_.experiment = options.experiment;
  }

  Comparison run() {
    try {
      prepare();
    } catch (const Interrupted&) {
      throw std::runtime_error("interrupted before the first run");
    }
    directory_.begin();
    report();
    try {
      run_all();
      if (options_.timelines) record_timelines();
      find_first_tensors();
    } catch (const Interrupted&) {
      comparison_.interrupted = true;
    }
    report();
    return std::move(comparison_);
  }

 private:
  const Experiment& experiment() const { return comparison_.experiment; }

  // All checks that are possible before a previous report is replaced.
  void prepare() {
    FoundStages found = find_stages(options_.choice, launcher_);
    if (found.stages.empty()) user_error("no stage can run here: ", found.left_out.front().why);
    Plan plan = plan_contestants(experiment(), found.stages);
    runner_.emplace(experiment(), found.stages, launcher_, directory_.path(), options_.timeout_seconds,
                    options_.cancelled);
    comparison_.left_out = std::move(found.left_out);
    comparison_.left_out.insert(comparison_.left_out.end(), plan.left_out.begin(), plan.left_out.end());
    for (const Contestant& contestant : plan.contestants) add_contestant(contestant);
    if (comparison_.entries.empty()) user_error("--stages: none of these stages can run");
    comparison_.provenance = find_provenance(launcher_.version(), options_.version);
  }

  // Adds a contestant if it can start. If it cannot, that is an error, except for a default number of ranks
  // that each have the whole model (for example, with more ranks than GPUs).
  void add_contestant(const Contestant& contestant) {
    std::string said;
    try {
      said = runner_->dry_run(contestant);
    } catch (const std::exception& error) {
      if (contestant.ranks == 1 || contestant.divides_model() || experiment().ranks_are_asked_for) throw;
      comparison_.left_out.push_back({contestant.label(), error.what()});
      return;
    }
    comparison_.entries.push_back(
        {.contestant = contestant, .command = {}, .machine = {}, .trials = {}, .failure = {}});
    if (!comparison_.model.empty()) return;
    comparison_.data = text_after("data: ", said);
    comparison_.model = model_in(said);
    comparison_.settings = resolved_settings(parse_json(runner_->settings(contestant)));
  }

  std::int64_t repeats_of(const Entry& entry) const {
    return entry.contestant.timed ? experiment().repeats : 1;
  }

  // Alternates between contestants, so that all run under the same conditions.
  void run_all() {
    std::int64_t runs = 0;
    for (const Entry& entry : comparison_.entries) runs += repeats_of(entry);
    Progress progress(runs);
    for (std::int64_t trial = 1; trial <= experiment().repeats; ++trial) {
      for (Entry& entry : comparison_.entries) {
        if (entry.failed() || trial > repeats_of(entry)) continue;
        progress.begin(entry.contestant, trial);
        runner_->run(entry);
        progress.end(entry);
        report();
      }
    }
  }

  // In runs of their own, after those that are timed.
  void record_timelines() {
    for (Entry& entry : comparison_.entries) {
      if (!entry.contestant.timed || entry.trials.empty()) continue;
      std::cerr << "recording a timeline: " << entry.contestant.label() << '\n';
      runner_->record(entry);
      if (const std::string& why = entry.recording->failure; !why.empty())
        std::cerr << "warning: no timeline of " << entry.contestant.label() << ": " << why << '\n';
    }
    report();
  }

  // Finds the first tensor that differs, for contestants of each stage that disagree with another: one whose
  // ranks have the whole model, and one whose ranks divide it.
  void find_first_tensors() {
    std::set<std::pair<std::pair<int, bool>, bool>> explained;
    for (std::size_t i = 0; i < comparison_.checks.size(); ++i) {
      const Check& check = comparison_.checks[i];
      const Contestant& subject = comparison_.subject(check).contestant;
      if (check.passed() || check.kind == Check::Kind::repeats) continue;
      if (!explained.insert({subject.program.id(), subject.divides_model()}).second) continue;
      std::cerr << "looking for the first tensor that differs: " << subject.label() << '\n';
      comparison_.divergences[i] =
          first_divergent_tensor(*runner_, comparison_.entries, check, experiment().limits);
    }
  }

  void report() {
    comparison_.seconds = seconds_since(start_);
    comparison_.checks = check_agreement(comparison_.entries, experiment().limits);
    comparison_.divergences.resize(comparison_.checks.size());
    directory_.write(comparison_);
  }

  const CompareOptions& options_;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  ReportDirectory directory_;
  Launcher launcher_;
  Comparison comparison_;
  std::optional<Runner> runner_;
};

}  // namespace

Comparison compare(const CompareOptions& options) { return Comparer(options).run(); }

}  // namespace stagegpt::compare
