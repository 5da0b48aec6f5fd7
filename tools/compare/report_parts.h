// The parts of a comparison's report, and its files.
#pragma once

#include <string>

#include "common/base/json_fwd.h"
#include "tools/compare/comparison.h"
#include "tools/compare/plot.h"
#include "tools/compare/table.h"

namespace stagegpt::compare {

// ---- Tables (report_tables.cpp)

Table agreement_table(const Comparison& comparison);
Table speed_table(const Comparison& comparison);
Table left_out_table(const Comparison& comparison);

// Explanations of the tables' numbers in this comparison.
std::string agreement_note(const Comparison& comparison);
std::string speed_note(const Comparison& comparison);
// Why there is no speed; empty if there is one.
std::string no_speed_note(const Comparison& comparison);
// A warning that the machine was too busy for reliable speeds; empty if it was not, or if the load is
// unknown.
std::string busy_note(const Comparison& comparison);

// The report on the terminal: verdict and tables.
std::string terminal_report(const Comparison& comparison);

// ---- Plots (report_plots.cpp)

enum class Curve { loss, grad_norm };

// Loss or gradient norm of all contestants.
LinePlot curve_plot(const Comparison& comparison, Curve curve);

// Relative difference of each contestant from its reference at each step, with the limit.
LinePlot difference_plot(const Comparison& comparison, Curve curve);

BarPlot speed_plot(const Comparison& comparison);
// Phases of a step of each contestant.
PartsPlot phases_plot(const Comparison& comparison);

// Tokens per second of each stage by number of ranks, and the ideal. It has no lines unless a stage ran on
// several numbers of ranks with strong or weak scaling.
LinePlot scaling_plot(const Comparison& comparison);

// ---- One step of each contestant (report_timelines.cpp), drawn on a clock that starts at 0

// The section of the page: a figure for each contestant, and the table. Empty if nothing was recorded.
std::string timelines(const Comparison& comparison);

// Phases, waiting and messages of each rank, in ms and as shares of the step.
Table timeline_table(const Comparison& comparison);

// ---- DIR/results.json. Its fields: docs/compare.md.

inline constexpr const char* kFormat = "stagegpt comparison";
inline constexpr int kVersion = 1;

Json results_json(const Comparison& comparison);

// DIR/index.html, as one self-contained page.
std::string page(const Comparison& comparison);

}  // namespace stagegpt::compare
