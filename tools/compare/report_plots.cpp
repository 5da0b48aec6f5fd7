#include <bit>
#include <map>

#include "common/base/error.h"
#include "tools/compare/report_parts.h"
#include "tools/compare/table.h"

namespace stagegpt::compare {
namespace {

// The numbers of ranks 1, 2, 4, … have different dashes; so have the batch sizes of weak scaling.
Look look_of(const Comparison& comparison, const Contestant& contestant) {
  std::int64_t ranks = contestant.ranks;
  if (contestant.one_of_several_batches) ranks = contestant.batch_size / comparison.experiment.batch_size();
  const int dashes = static_cast<int>(std::bit_width(static_cast<std::uint64_t>(ranks))) - 1;
  const int other = contestant.program.other_build ? 1 : 0;
  return {.stage = contestant.program.stage, .dashes = dashes + (contestant.reproducible ? 3 : 0) + other};
}

double value_at(const StepRecord& step, Curve curve) {
  return curve == Curve::loss ? step.loss : step.grad_norm;
}

Series difference_series(const Comparison& comparison, const Check& check, Curve curve) {
  const Entry& subject = comparison.subject(check);
  Series series{
      .name = subject.contestant.label(), .look = look_of(comparison, subject.contestant), .points = {}};
  const std::vector<StepRecord>& expected = comparison.reference(check).trials.front().steps;
  const std::vector<StepRecord>& actual = subject.trials.front().steps;
  for (std::size_t i = 0; i < std::min(expected.size(), actual.size()); ++i) {
    series.points.emplace_back(static_cast<double>(i + 1),
                               relative_difference(value_at(expected[i], curve), value_at(actual[i], curve)));
  }
  return series;
}

const Contestant& contestant_of(const Comparison& comparison, const Speed& speed) {
  return comparison.entries[speed.entry].contestant;
}

}  // namespace

LinePlot curve_plot(const Comparison& comparison, Curve curve) {
  const bool loss = curve == Curve::loss;
  LinePlot plot{
      .title = loss ? "Loss" : "Gradient norm",
      .description = concat(loss ? "Training loss" : "Norm of all gradients",
                            " of every contestant at every step, one line for each."),
      .x_label = "step",
      .y_label = concat(loss ? "nats per token" : "before clipping", "; the reference is the wide line"),
      .series = {}};
  for (const Entry& entry : comparison.entries) {
    if (entry.trials.empty()) continue;
    Series series{
        .name = entry.contestant.label(), .look = look_of(comparison, entry.contestant), .points = {}};
    series.look.wide = plot.series.empty();
    for (const StepRecord& step : entry.trials.front().steps) {
      series.points.emplace_back(static_cast<double>(series.points.size() + 1), value_at(step, curve));
    }
    plot.series.push_back(std::move(series));
  }
  return plot;
}

LinePlot difference_plot(const Comparison& comparison, Curve curve) {
  const bool loss = curve == Curve::loss;
  const Limits& limits = comparison.experiment.limits;
  LinePlot plot{
      .title = loss ? "Loss: relative difference" : "Gradient norm: relative difference",
      .description = concat("Relative difference of the ", loss ? "loss" : "gradient norm",
                            " from the reference at every step, on a logarithmic axis, with the limit."),
      .x_label = "step",
      .y_label = "in the first run; 0: the same bits",
      .series = {},
      .logarithmic = true,
      .limit = loss ? limits.loss : limits.grad_norm,
      .limit_name = concat("limit ", scientific(loss ? limits.loss : limits.grad_norm))};
  for (const Check& check : comparison.checks) {
    if (check.kind != Check::Kind::repeats)
      plot.series.push_back(difference_series(comparison, check, curve));
  }
  return plot;
}

BarPlot speed_plot(const Comparison& comparison) {
  BarPlot plot{.title = "Tokens per second",
               .description = "Median over the repeats of every contestant, with minimum and maximum.",
               .bars = {}};
  for (const Speed& speed : speeds(comparison)) {
    const Contestant& contestant = contestant_of(comparison, speed);
    const Spread& spread = speed.tokens_per_second;
    plot.bars.push_back({contestant.label(), look_of(comparison, contestant), spread.median, spread.min,
                         spread.max, grouped(spread.median)});
  }
  return plot;
}

PartsPlot phases_plot(const Comparison& comparison) {
  PartsPlot plot{.title = "Phases of a step",
                 .description = "Share of each phase in a step of every contestant, measured by rank 0.",
                 .part_names = {kPhases.begin(), kPhases.end()},
                 .bars = {}};
  for (const Speed& speed : speeds(comparison)) {
    plot.bars.push_back({contestant_of(comparison, speed).label(),
                         concat(three_digits(speed.step_ms.median), " ms"),
                         {speed.ms.begin(), speed.ms.end()}});
  }
  return plot;
}

LinePlot scaling_plot(const Comparison& comparison) {
  LinePlot plot{.title = comparison.experiment.mode == Mode::weak ? "Weak scaling" : "Strong scaling",
                .description =
                    "Tokens per second of each stage by number of ranks, relative to one rank's share at the "
                    "smallest number of ranks.",
                .x_label = "ranks",
                .y_label = "tokens/s, relative to one rank",
                .series = {},
                .from_zero = true,
                .dots = true,
                .ideal = true};
  if (comparison.experiment.mode == Mode::same_cores) return plot;
  std::map<std::pair<int, bool>, Series> of_program;
  std::map<std::pair<int, bool>, double> one_rank;
  for (const Speed& speed : speeds(comparison)) {
    const Contestant& contestant = contestant_of(comparison, speed);
    const auto program = contestant.program.id();
    if (!contestant.program.has_ranks() || contestant.divides_model()) continue;
    Series& series = of_program[program];
    const bool emulated = contestant.program.hardware == Hardware::emulator;
    series.name =
        concat("Stage ", program.first, emulated ? ", emulated" : "", program.second ? ", other build" : "");
    series.look = {.stage = program.first, .dashes = program.second ? 1 : 0};
    const auto ranks = static_cast<double>(contestant.ranks);
    if (series.points.empty()) one_rank[program] = speed.tokens_per_second.median / ranks;
    series.points.emplace_back(ranks, speed.tokens_per_second.median / one_rank[program]);
  }
  for (auto& [program, series] : of_program) {
    if (series.points.size() > 1) plot.series.push_back(std::move(series));
  }
  return plot;
}

}  // namespace stagegpt::compare
