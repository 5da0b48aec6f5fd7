#include "tools/bench/bench.h"

#include <algorithm>
#include <optional>

#include "common/base/seconds_since.h"
#include "common/comm/agreement.h"
#include "tools/bench/device_report.h"
#include "tools/bench/memory_read.h"

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

// The time of each op in one step.
std::vector<Profiler::Entry> profile_step(Backend& backend, Trainer& trainer) {
  Profiler profiler(backend);
  trainer.step();
  return profiler.entries();
}

// Number of profiled steps before the i-th of `steps` timed ones, if `profiled` steps are spread evenly.
std::int64_t profiled_before(std::int64_t i, std::int64_t steps, std::int64_t profiled) {
  return i * profiled / steps;
}

// Nothing if the backend does not know its rate of multiply-adds.
std::optional<PeakRates> machine_rates(Backend& backend) {
  constexpr int kReads = 5;
  const std::optional<double> flops_per_second = backend.multiply_add_rate();
  if (!flops_per_second) return std::nullopt;
  MemoryRead memory(backend);
  double shortest = memory.timed_pass();
  for (int i = 1; i < kReads; ++i) shortest = std::min(shortest, memory.timed_pass());
  return PeakRates{*flops_per_second, memory.bytes() / shortest};
}

}  // namespace

BenchReport bench(Backend& backend, Trainer& trainer, const LanguageModel& model, StepSize size,
                  const BenchConfig& config, const BenchProgress& progress) {
  BenchReport report;
  std::optional<GemmBound> bound;
  PhaseTimes phase_times;
  OpTimes op_times;
  const std::int64_t total = config.warmup + config.steps + config.profiled;
  std::int64_t done = 0;
  for (std::int64_t i = -config.warmup; i < config.steps; ++i) {
    StepReport done_step;
    double step = 0;
    profiled(config.profile, i + 1, [&] {
      step = milliseconds(backend, [&] {
        const std::optional<DeviceWork> before = backend.device_work();
        done_step = trainer.step();
        report.device_work = difference(backend.device_work(), before);
      });
    });
    report.last_loss = done_step.loss;
    report.last_grad_norm = done_step.grad_norm;
    if (!bound) {
      report.first_loss = done_step.loss;
      report.first_grad_norm = done_step.grad_norm;
      // Before the bound allocates memory.
      report.peak_bytes = backend.memory_stats().peak_bytes_in_use;
      bound.emplace(backend, model, trainer.optimizer(), size);
    }
    const double products = milliseconds(backend, [&] { bound->products(); });
    const double adamw = milliseconds(backend, [&] { bound->adamw(); });
    progress(++done, total);
    if (i < 0) continue;
    report.step_ms.add(step);
    report.products_ms.add(products);
    report.adamw_ms.add(adamw);
    report.reduction_ms.add(1e3 * done_step.communication.seconds_under_way);
    report.bytes_reduced = done_step.communication.bytes_reduced;
    phase_times.add(done_step.seconds);
    for (std::int64_t p = profiled_before(i, config.steps, config.profiled);
         p < profiled_before(i + 1, config.steps, config.profiled); ++p) {
      op_times.add(profile_step(backend, trainer));
      progress(++done, total);
    }
  }
  bound.reset();
  report.phases = phase_times.median();
  report.kernels = op_times.medians();
  report.peak = config.peak ? *config.peak : measure_peak(backend, kThoroughGemm);
  report.machine = machine_rates(backend);
  return report;
}

void take_most_of_ranks(RankGroup& group, BenchReport& report) {
  struct Bound {
    double products, adamw;
    double sum() const { return products + adamw; }
  };
  const std::vector<Bound> bounds =
      gather(group, Bound{report.products_ms.median(), report.adamw_ms.median()});
  const Bound most = *std::ranges::max_element(bounds, {}, &Bound::sum);
  report.products_ms = report.adamw_ms = {};
  report.products_ms.add(most.products);
  report.adamw_ms.add(most.adamw);
  report.rank_peak_bytes = gather(group, report.peak_bytes);
  report.peak_bytes = std::ranges::max(report.rank_peak_bytes);
}

}  // namespace stagegpt
