// The plots of a comparison's report.
#pragma once

#include "tools/compare/comparison.h"
#include "tools/compare/plot.h"

namespace stagegpt::compare {

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

}  // namespace stagegpt::compare
