// Whole reports of made-up comparisons, which together cover every branch and every number of a report. The
// numbers are dyadic fractions, so that medians and ratios are exact.
#include <gtest/gtest.h>

#include <limits>

#include "common/base/json.h"
#include "tests/compare/made_comparison.h"
#include "tests/support/golden.h"
#include "tools/compare/report_parts.h"

namespace stagegpt::compare::test {
namespace {

using stagegpt::test::expect_golden;

// A trial of four different steps, which also depend on `number`. The first and the last step are slow.
Trial numbered_trial(int number, double seconds) {
  Trial trial{
      .steps = {}, .tokens_per_step = 256, .peak_memory_bytes = number * (1 << 18), .weights_xxh3_128 = "a"};
  for (int i = 0; i < 4; ++i) {
    const double factor = std::array{8.0, 1.0, 1.25, 3.0}[static_cast<std::size_t>(i)] + number / 16.0;
    const double ms = 1024 * seconds * factor;
    trial.steps.push_back({.loss = 4 - 0.5 * i,
                           .grad_norm = 2 - 0.25 * i,
                           .seconds = seconds * factor,
                           .ms = {ms / 32, ms / 8, ms / 2, ms / 4, ms / 16}});
  }
  return trial;
}

Entry numbered_entry(const Contestant& who, int trials, double seconds) {
  Entry entry{.contestant = who,
              .command = {"bin/train", "--label", who.label()},
              .machine = concat("machine of ", who.name()),
              .trials = {},
              .failure = {}};
  for (int i = 0; i < trials; ++i) entry.trials.push_back(numbered_trial(i, seconds));
  return entry;
}

Contestant on_gpu(Contestant who) {
  who.program.hardware = Hardware::gpu;
  return who;
}

Contestant reproducible(Contestant who) {
  who.reproducible = true;
  who.timed = false;
  return who;
}

Comparison described(Mode mode) {
  Comparison comparison;
  comparison.title = "Stages & <title>";
  comparison.command = {"bin/compare_stages", "--output", "a report", "--title", "Stages & <title>"};
  comparison.provenance = {
      {"date", "2026-01-02T03:04:05Z"},
      {"machine", {{"processor", "A <processor>"}, {"cores_usable", 2}, {"memory_bytes", 3 << 20}}},
      {"libraries", {{"mpi", nullptr}, {"clock_ghz", 2.5}}},
      {"source", {{"commit", "abc"}, {"changed", true}}}};
  comparison.settings = {{"n_layer", 2},      {"dropout", 0.1 + 0.2},  {"data", "a & b"},
                         {"no_fused", false}, {"overfit_batch", true}, {"min_lr", nullptr}};
  comparison.model = "2 layers <model>";
  comparison.data = "text & tokens";
  comparison.experiment.flags = {{"--batch-size", {"8"}}};
  comparison.experiment.mode = mode;
  comparison.experiment.warmup = 1;
  return comparison;
}

MachineLoad load(double others, int cores) {
  return {.others_share = others, .cores = cores, .threads = cores, .seconds = 3.5};
}

// A comparison in which each contestant fails, or disagrees in a different way.
Comparison disagreeing_comparison() {
  Comparison comparison = described(Mode::same_cores);
  comparison.author = "An <author>";
  comparison.experiment.cores = 2;
  comparison.experiment.ranks = {1, 2, 4};
  comparison.experiment.limits = {.loss = 0.07, .grad_norm = 0.13};
  comparison.seconds = 1234.5;
  std::vector<Entry>& entries = comparison.entries;
  entries = {numbered_entry(contestant(0, 1, 2), 3, 0.25),
             numbered_entry(contestant(1, 1, 2), 3, 0.125),
             numbered_entry(contestant(1, 2, 1), 2, 0.0625),
             numbered_entry(contestant(1, 4, 1), 0, 1),
             numbered_entry(contestant(2, 1, 2), 1, 4),
             numbered_entry(on_gpu(contestant(3, 1, 2)), 1, 0.015625),
             numbered_entry(on_gpu(contestant(3, 2, 1)), 2, 0.0078125),
             numbered_entry(reproducible(contestant(0, 1, 2)), 1, 0.5),
             numbered_entry(reproducible(contestant(1, 2, 1)), 1, 0.5)};
  entries[1].trials[2].steps[3].grad_norm += 1.0 / 1024;  // differs from its repeats, but within the limits
  entries[2].trials[1].steps[2].loss *= 1.25;
  entries[2].trials[1].steps[1].grad_norm *= 1.0703125;  // within the limit
  entries[3].failure = "exit code 3:\nit <broke>";
  entries[3].machine = "";
  entries[3].command = {};
  entries[4].trials[0].steps[3].loss = std::numeric_limits<double>::quiet_NaN();
  entries[5].trials[0].steps.pop_back();
  entries[6].trials[0].steps[1].grad_norm *= 0.5;
  entries[6].trials[1].steps[1].grad_norm *= 0.5;
  entries[8].trials[0].weights_xxh3_128 = "b";
  entries[0].trials[0].load = load(0.0625, 2);
  entries[1].trials[1].load = load(0.625, 2);
  entries[2].trials[0].load = load(0.5, 2);
  entries[7].trials[0].load = load(0.875, 2);  // not timed
  comparison.left_out = {{"Stage 2 on a GPU", "no <GPU>"}, {"Stage 9", "is not there"}};
  check(comparison);
  return comparison;
}

// The same comparison, with the first divergent tensor of two disagreements.
Comparison explained_comparison() {
  Comparison comparison = disagreeing_comparison();
  std::size_t explained = 0;
  for (std::size_t i = 0; i < comparison.checks.size() && explained < 2; ++i) {
    if (comparison.checks[i].passed() || comparison.checks[i].kind == Check::Kind::repeats) continue;
    comparison.divergences[i] = explained == 0
                                    ? FirstTensor{"The first <tensor> differs.", 3, "the loss", 0.5, 0.25}
                                    : FirstTensor{"It is not known."};
    ++explained;
  }
  return comparison;
}

// All contestants agree; the plot shows the scaling of stages 1 and 3.
Comparison strong_comparison() {
  Comparison comparison = described(Mode::strong);
  comparison.experiment.cores = 4;
  comparison.experiment.repeats = 1;
  comparison.experiment.reproducible = true;
  comparison.seconds = 2;
  comparison.entries = {
      numbered_entry(contestant(0), 1, 0.5),      numbered_entry(contestant(1, 1), 1, 0.5),
      numbered_entry(contestant(1, 2), 1, 0.25),  numbered_entry(contestant(1, 4), 1, 0.1875),
      numbered_entry(contestant(3, 2), 1, 0.125), numbered_entry(contestant(3, 4), 1, 0.0625),
      numbered_entry(contestant(2, 1), 1, 0.25)};
  comparison.entries[2].trials[0].steps[2].loss *= 1 + 1.0 / (1 << 20);
  comparison.entries[3].trials[0].steps[1].grad_norm *= 1 - 1.0 / (1 << 16);
  check(comparison);
  return comparison;
}

// A comparison of weak scaling (the batch grows with the ranks) that was interrupted.
Comparison weak_comparison() {
  Comparison comparison = described(Mode::weak);
  comparison.provenance.erase("date");
  comparison.experiment.cores = 1;
  comparison.experiment.warmup = 0;
  comparison.interrupted = true;
  comparison.seconds = 0.5;
  for (const int factor : {1, 2}) {
    for (const int stage : {0, 1}) {
      Contestant who = contestant(stage, stage == 1 ? factor : 1);
      who.batch_size = 8 * factor;
      who.one_of_several_batches = true;
      Entry entry = numbered_entry(who, 1, stage == 1 ? 0.5 : 0.5 * factor);
      entry.trials[0].tokens_per_step *= factor;
      comparison.entries.push_back(entry);
    }
  }
  comparison.entries[0].trials[0].load = load(0.25, 1);
  check(comparison);
  return comparison;
}

// The page without its style sheet, which does not depend on the comparison.
std::string page_without_style(const Comparison& comparison) {
  std::string html = page(comparison);
  const std::size_t begin = html.find("<style>") + 7;
  return html.erase(begin, html.find("</style>") - begin);
}

TEST(GoldenReport, OnTheTerminal) {
  expect_golden(terminal_report(explained_comparison()), "compare/disagreeing.txt");
  expect_golden(terminal_report(strong_comparison()), "compare/strong.txt");
  expect_golden(terminal_report(weak_comparison()), "compare/weak.txt");
}

TEST(GoldenReport, OfThePage) {
  expect_golden(page_without_style(explained_comparison()), "compare/disagreeing.html");
  expect_golden(page_without_style(strong_comparison()), "compare/strong.html");
  expect_golden(page_without_style(weak_comparison()), "compare/weak.html");
}

TEST(GoldenReport, OfTheResults) {
  for (const auto& [name, comparison] :
       {std::pair("disagreeing", explained_comparison()), std::pair("strong", strong_comparison())}) {
    expect_golden(results_json(comparison).dump(1) + '\n', concat("compare/", name, ".json"));
  }
}

}  // namespace
}  // namespace stagegpt::compare::test
