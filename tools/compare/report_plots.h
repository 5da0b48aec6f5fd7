// The plots of a comparison's report.
#pragma once

#include "tools/compare/comparison.h"
#include "tools/compare/plot.h"

namespace stagegpt::compare {

enum class Curve { loss, grad_norm };

// Of all contestants, over each other.
LinePlot curve_plot(const Comparison& comparison, Curve curve);

// How far each is from its reference at each step, with the limit.
LinePlot difference_plot(const Comparison& comparison, Curve curve);

BarPlot speed_plot(const Comparison& comparison);
// Without bars of those on a GPU, whose phases are not known.
PartsPlot phases_plot(const Comparison& comparison);

// How much faster more ranks of a stage are than its fewest, beside the ideal. Without lines where no stage
// ran on several numbers of ranks, each with its own cores.
LinePlot scaling_plot(const Comparison& comparison);

}  // namespace stagegpt::compare
