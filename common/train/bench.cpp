#include "common/train/bench.h"

#include <algorithm>
#include <cmath>
#include <optional>

namespace stagegpt {
namespace {

template <class Work>
double milliseconds(Backend& backend, const Work& work) {
  backend.synchronize();
  const auto start = std::chrono::steady_clock::now();
  work();
  backend.synchronize();
  return 1e3 * seconds_since(start);
}

void add_share(PhaseSeconds& sum, const PhaseSeconds& seconds, double share) {
  sum.data += seconds.data * share;
  sum.forward += seconds.forward * share;
  sum.backward += seconds.backward * share;
  sum.communication += seconds.communication * share;
  sum.optimizer += seconds.optimizer * share;
}

// Entries of a profile of `steps` steps, as those of one.
std::vector<Profiler::Entry> per_step(std::vector<Profiler::Entry> entries, std::int64_t steps) {
  const auto n = static_cast<double>(steps);
  for (Profiler::Entry& entry : entries) {
    entry.calls /= steps;
    entry.seconds /= n;
    entry.work = {entry.work.flops / n, entry.work.bytes / n};
  }
  return entries;
}

}  // namespace

void Samples::add(double ms) { sorted_.insert(std::ranges::upper_bound(sorted_, ms), ms); }

double Samples::quantile(double q) const {
  const double position = q * static_cast<double>(sorted_.size() - 1);
  const auto below = static_cast<std::size_t>(position);
  const std::size_t above = std::min(below + 1, sorted_.size() - 1);
  return std::lerp(sorted_[below], sorted_[above], position - static_cast<double>(below));
}

BenchReport bench(Backend& backend, Trainer& trainer, const Gpt2& model, StepSize size,
                  const BenchConfig& config, const BenchProgress& progress) {
  BenchReport report;
  std::optional<GemmBound> bound;
  const std::int64_t timed = config.warmup + config.steps, total = timed + config.profiled;
  for (std::int64_t i = 0; i < timed; ++i) {
    PhaseSeconds phases;
    const double step = milliseconds(backend, [&] { phases = trainer.step().seconds; });
    if (!bound) {  // not before a step has shown how much memory it takes by itself
      report.peak_bytes = backend.memory_stats().peak_bytes_in_use;
      bound.emplace(backend, model, trainer.optimizer(), size);
    }
    const double products = milliseconds(backend, [&] { bound->products(); });
    const double adamw = milliseconds(backend, [&] { bound->adamw(); });
    progress(i + 1, total);
    if (i < config.warmup) continue;
    report.step_ms.add(step);
    report.products_ms.add(products);
    report.adamw_ms.add(adamw);
    add_share(report.phases, phases, 1.0 / static_cast<double>(config.steps));
  }
  bound.reset();
  report.peak = config.peak ? *config.peak : measure_peak(backend, kThoroughGemm);

  Profiler profiler;
  backend.set_profiler(&profiler);
  for (std::int64_t i = 0; i < config.profiled; ++i) {
    trainer.step();
    progress(timed + i + 1, total);
  }
  backend.set_profiler(nullptr);
  report.kernels = per_step(profiler.entries(), config.profiled);
  return report;
}

}  // namespace stagegpt
