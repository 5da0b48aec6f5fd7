#include "common/train/bench.h"

#include <algorithm>

namespace stagegpt {

double BenchReport::median_ms() const {
  const std::size_t n = step_ms.size();
  return (step_ms[(n - 1) / 2] + step_ms[n / 2]) / 2;
}

BenchReport bench(Backend& backend, Trainer& trainer, const BenchConfig& config) {
  BenchReport report;
  for (std::int64_t i = 0; i < config.warmup; ++i) trainer.step();
  const double n = static_cast<double>(config.steps);
  for (std::int64_t i = 0; i < config.steps; ++i) {
    const auto start = std::chrono::steady_clock::now();
    const PhaseSeconds seconds = trainer.step().seconds;
    report.step_ms.push_back(1e3 * seconds_since(start));
    report.phases.data += seconds.data / n;
    report.phases.forward += seconds.forward / n;
    report.phases.backward += seconds.backward / n;
    report.phases.communication += seconds.communication / n;
    report.phases.optimizer += seconds.optimizer / n;
  }
  std::ranges::sort(report.step_ms);

  Profiler profiler;
  backend.set_profiler(&profiler);
  for (std::int64_t i = 0; i < config.profiled; ++i) trainer.step();
  backend.set_profiler(nullptr);
  report.kernels = profiler.entries();
  for (Profiler::Entry& entry : report.kernels) entry.seconds /= static_cast<double>(config.profiled);
  return report;
}

}  // namespace stagegpt
