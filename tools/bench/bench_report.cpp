#include "tools/bench/bench_report.h"

#include <cstdio>

#include "common/base/grouped.h"
#include "common/base/json.h"
#include "tools/bench/device_report.h"

namespace stagegpt {
namespace {

double total_seconds(const std::vector<Profiler::Entry>& kernels) {
  double seconds = 0;
  for (const auto& entry : kernels) seconds += entry.seconds;
  return seconds;
}

// Numbers that both forms print.
struct Figures {
  double median_ms, tokens_per_second, gflops, mfu, mfu_causal, peak_gflops;
  std::string peak;
  double multiply_add_gflops = 0, multiply_add_share = 0, read_gbytes = 0;  // where report.machine is known

  Figures(const BenchSubject& subject, const BenchReport& report)
      : median_ms(report.step_ms.median()),
        tokens_per_second(static_cast<double>(subject.tokens) / (median_ms / 1e3)),
        gflops(subject.flops_causal / (median_ms / 1e3) / 1e9),
        peak_gflops(report.peak.flops_per_second * subject.ranks / 1e9),
        peak(report.peak.name) {
    mfu_causal = gflops / peak_gflops;
    mfu = mfu_causal * subject.flops / subject.flops_causal;
    if (report.machine) {
      multiply_add_gflops = report.machine->flops_per_second * subject.ranks / 1e9;
      multiply_add_share = gflops / multiply_add_gflops;
      read_gbytes = report.machine->bytes_per_second * subject.ranks / 1e9;
    }
  }
};

// The share of its time that an op needs at least on this machine; above 1 if its data come from a cache.
double bound_share(const Profiler::Entry& op, const PeakRates& machine) {
  return OpBudget{op.name, op.calls, op.work}.bound_seconds(machine) / op.seconds;
}

Json kernels_json(const BenchReport& report) {
  const double total = total_seconds(report.kernels);
  Json json = Json::array();
  for (const Profiler::Entry& op : report.kernels) {
    json.push_back({{"name", op.name},
                    {"ms", 1e3 * op.seconds},
                    {"share", op.seconds / total},
                    {"calls", op.calls},
                    {"gflops", op.work.flops / op.seconds / 1e9},
                    {"gbytes_per_second", op.work.bytes / op.seconds / 1e9},
                    {"bound", report.machine ? Json(bound_share(op, *report.machine)) : Json()}});
  }
  return json;
}

Json machine_json(const Figures& figures, const BenchReport& report) {
  if (!report.machine) return nullptr;
  return {{"multiply_add_gflops", figures.multiply_add_gflops},
          {"share_of_multiply_adds", figures.multiply_add_share},
          {"read_gbytes_per_second", figures.read_gbytes}};
}

void print_phases(const PhaseSeconds& seconds) {
  std::printf("\n%-28s %10s %7s\n", "phase", "median ms", "share");
  for (const auto& [name, phase] : kStepPhases) {
    std::printf("%-28s %10.3f %6.1f%%\n", name, 1e3 * seconds.*phase, 100 * seconds.*phase / seconds.total());
  }
}

void print_kernels(const BenchReport& report) {
  const double total = total_seconds(report.kernels);
  std::printf("\n%-28s %10s %7s %7s %9s %9s%s\n", "op", "median ms", "share", "calls", "GFLOP/s", "GB/s",
              report.machine ? "   bound" : "");
  for (const Profiler::Entry& op : report.kernels) {
    std::printf("%-28s %10.3f %6.1f%% %7lld %9s %9s", op.name.c_str(), 1e3 * op.seconds,
                100 * op.seconds / total, static_cast<long long>(op.calls),
                grouped(op.work.flops / op.seconds / 1e9, 1).c_str(),
                grouped(op.work.bytes / op.seconds / 1e9, 1).c_str());
    if (report.machine) std::printf(" %6.1f%%", 100 * bound_share(op, *report.machine));
    std::printf("\n");
  }
}

}  // namespace

Json bench_json(const BenchSubject& subject, const BenchReport& report) {
  const Figures figures(subject, report);
  Json phases;
  for (const auto& [name, phase] : kStepPhases) phases[name] = 1e3 * report.phases.*phase;
  return {{"model", subject.model},
          {"parameters", subject.parameters},
          {"batch_size", subject.batch_size},
          {"seq_len", subject.seq_len},
          {"ranks", subject.ranks},
          {"tensor_parallel", subject.tensor_ranks},
          {"pipeline_parallel", subject.stages},
          {"threads", subject.threads},
          {"recompute", name_of(subject.recompute)},
          {"tokens_per_second", figures.tokens_per_second},
          {"ms_per_step",
           {{"median", figures.median_ms},
            {"min", report.step_ms.quantile(0)},
            {"max", report.step_ms.quantile(1)}}},
          {"phases_ms", phases},
          {"reduction_ms", report.reduction_ms.median()},
          {"bytes_reduced", report.bytes_reduced},
          {"first_step", {{"loss", report.first_loss}, {"grad_norm", report.first_grad_norm}}},
          {"last_step", {{"loss", report.last_loss}, {"grad_norm", report.last_grad_norm}}},
          {"gemm_bound_ms", report.gemm_bound_ms()},
          {"efficiency", report.efficiency()},
          {"gflops", figures.gflops},
          {"mfu", figures.mfu},
          {"mfu_causal", figures.mfu_causal},
          {"peak_gflops", figures.peak_gflops},
          {"peak", figures.peak},
          {"machine", machine_json(figures, report)},
          {"kernels", kernels_json(report)},
          {"peak_memory_bytes", report.peak_bytes},
          {"rank_peak_memory_bytes", report.rank_peak_bytes},
          {"device_work", device_work_json(report.device_work)},
          {"busy", busy_json(report.load)}};
}

void print_bench_table(const BenchSubject& subject, const BenchReport& report) {
  const Figures figures(subject, report);
  const Samples& step = report.step_ms;
  std::printf("%s, %s parameters, %s tokens a step in sequences of %lld\n%s\n\n", subject.model.c_str(),
              grouped(subject.parameters).c_str(), grouped(subject.tokens).c_str(),
              static_cast<long long>(subject.seq_len), subject.machine.c_str());
  std::printf("step        %10.2f ms   median of %lld; quartiles %.2f and %.2f, least %.2f, most %.2f\n",
              figures.median_ms, static_cast<long long>(step.size()), step.quantile(0.25),
              step.quantile(0.75), step.quantile(0), step.quantile(1));
  std::printf("speed       %10s tokens/s\n", grouped(figures.tokens_per_second).c_str());
  std::printf("bound       %10.2f ms   matrix products of linear layers and head %.2f, AdamW %.2f\n",
              report.gemm_bound_ms(), report.products_ms.median(), report.adamw_ms.median());
  std::printf("efficiency  %10.1f %%    bound / step\n", 100 * report.efficiency());
  std::printf("MFU, 6N+12LCT %8.1f %%    of %s GFLOP/s, %s\n", 100 * figures.mfu,
              grouped(figures.peak_gflops, 1).c_str(), figures.peak.c_str());
  std::printf("MFU, 6N+6LCT %9.1f %%    causal: %s GFLOP/s\n", 100 * figures.mfu_causal,
              grouped(figures.gflops, 1).c_str());
  if (report.machine) {
    std::printf("multiply-adds %8.1f %%    of %s GFLOP/s on registers alone; memory is read at %s GB/s\n",
                100 * figures.multiply_add_share, grouped(figures.multiply_add_gflops, 1).c_str(),
                grouped(figures.read_gbytes, 1).c_str());
  }
  const std::string recompute =
      subject.recompute == Recompute::none ? "" : concat(", with --recompute ", name_of(subject.recompute));
  std::printf("memory      %10s MiB  most in use during a step%s\n",
              grouped(static_cast<double>(report.peak_bytes) / (1 << 20), 1).c_str(), recompute.c_str());
  if (subject.ranks > 1) {
    std::printf("reductions  %10.2f ms   from the first to the last, of %s MiB of gradients of a rank\n",
                report.reduction_ms.median(),
                grouped(static_cast<double>(report.bytes_reduced) / (1 << 20), 1).c_str());
  }
  if (report.device_work) print_device_work(*report.device_work, "a step", "; backward contains forward");
  if (report.load) {
    std::printf("others      %10.1f %%    of %d cores, used by other programs meanwhile%s\n",
                100 * report.load->others_share, report.load->cores,
                report.load->busy() ? ": the figures may be off" : "");
  }
  print_phases(report.phases);
  print_kernels(report);
}

}  // namespace stagegpt
