#include "tools/compare/comparison.h"

#include <algorithm>
#include <set>

#include "common/base/error.h"
#include "common/measure/step_times.h"
#include "tools/compare/table.h"

namespace stagegpt::compare {
namespace {

Spread spread(const Samples& samples) { return {samples.median(), samples.quantile(0), samples.quantile(1)}; }

Speed speed_of(const Entry& entry, std::int64_t warmup) {
  Samples tokens_per_second, step_ms, share;
  std::array<Samples, kPhases.size()> ms;
  Speed speed;
  for (const Trial& trial : entry.trials) {
    const Timing timed = timing(trial, warmup);
    tokens_per_second.add(timed.tokens_per_second);
    step_ms.add(timed.step_ms);
    share.add(timed.communication_share);
    for (std::size_t i = 0; i < ms.size(); ++i) ms[i].add(timed.ms[i]);
    speed.peak_memory_bytes = std::max(speed.peak_memory_bytes, trial.peak_memory_bytes);
  }
  speed.tokens_per_second = spread(tokens_per_second);
  speed.step_ms = spread(step_ms);
  speed.communication_share = share.median();
  for (std::size_t i = 0; i < ms.size(); ++i) speed.ms[i] = ms[i].median();
  return speed;
}

// The speed of the same stage on the smallest number of ranks, to which efficiency is relative.
const Speed* fewest_ranks(const Comparison& comparison, const std::vector<Speed>& speeds,
                          const Contestant& contestant) {
  const Speed* fewest = nullptr;
  const auto ranks = [&](const Speed& speed) { return comparison.entries[speed.entry].contestant.ranks; };
  for (const Speed& speed : speeds) {
    if (comparison.entries[speed.entry].contestant.program.id() != contestant.program.id()) continue;
    if (fewest == nullptr || ranks(speed) < ranks(*fewest)) fewest = &speed;
  }
  return fewest;
}

// Whether its runs have steps after the warm-up.
bool has_timed_steps(const Entry& entry, std::int64_t warmup) {
  return !entry.trials.empty() && std::ssize(entry.trials.front().steps) > warmup;
}

bool is_between_two(const Check& check) { return check.kind != Check::Kind::repeats; }

bool has_failed(const Entry& entry) { return entry.failed(); }

}  // namespace

bool Comparison::failed() const { return std::ranges::any_of(entries, has_failed); }

bool Comparison::all_agree() const { return std::ranges::all_of(checks, &Check::passed); }

bool Comparison::has_compared() const { return std::ranges::any_of(checks, is_between_two); }

std::string verdict(const Comparison& comparison) {
  std::string text, others;
  for (const Entry& entry : comparison.entries) {
    if (entry.failed()) text += concat(entry.contestant.label(), " failed. ");
  }
  const auto first = std::ranges::find_if_not(comparison.checks, &Check::passed);
  std::set<std::size_t> named;  // lists each contestant once, even if several of its checks fail
  for (auto check = first; check != comparison.checks.end(); ++check) {
    if (check->passed() || !named.insert(check->subject).second || check == first) continue;
    others += concat(others.empty() ? " These disagree too: " : "; ",
                     comparison.subject(*check).contestant.label());
  }
  if (first != comparison.checks.end()) {
    return concat(text, describe(comparison, *first), others, others.empty() ? "" : ".");
  }
  if (comparison.interrupted) text += "Interrupted: not everything has run. ";
  if (!comparison.has_compared()) return concat(text, "There was nothing to compare with.");
  std::set<std::size_t> compared;
  for (const Check& check : comparison.checks) compared.insert({check.subject, check.reference});
  return concat(text, text.empty() ? "All " : "The other ", compared.size(),
                " contestants agree, at every step and in every repeat.");
}

std::string describe(const Comparison& comparison, const Check& check) {
  const Disagreement& first = *check.first;
  const std::string subject = comparison.subject(check).contestant.label();
  const std::string other = check.kind == Check::Kind::repeats
                                ? "its own first run"
                                : comparison.reference(check).contestant.label();
  const std::string where = concat(subject, " disagrees with ", other, " from step ", first.step, " on");
  if (first.quantity == "final weights") {
    return concat(subject, " disagrees with ", other, ": the weights after step ", first.step,
                  " do not have the same bits.");
  }
  if (first.quantity == "number of steps") {
    return concat(subject, " disagrees with ", other, ": ", first.actual, " steps instead of ",
                  first.expected, ".");
  }
  return concat(where, ": ", first.quantity, " ", exactly(first.actual), " instead of ",
                exactly(first.expected), ", a relative difference of ", scientific(first.error),
                check.kind == Check::Kind::tolerance ? concat("; the limit is ", scientific(first.limit))
                                                     : std::string("; the same bits are expected"),
                ".");
}

BusyRuns busy_runs(const Comparison& comparison) {
  BusyRuns all;
  for (const Entry& entry : comparison.entries) {
    if (!entry.contestant.timed) continue;
    for (const Trial& trial : entry.trials) {
      ++all.runs;
      if (!trial.load) continue;
      ++all.known;
      all.busy += trial.load->busy();
      all.most_used = std::max(all.most_used, trial.load->others_share);
      if (!all.busiest || trial.load->missing_share() > all.busiest->missing_share())
        all.busiest = trial.load;
    }
  }
  return all;
}

std::vector<Speed> speeds(const Comparison& comparison) {
  std::vector<Speed> all;
  for (std::size_t i = 0; i < comparison.entries.size(); ++i) {
    const Entry& entry = comparison.entries[i];
    if (!entry.contestant.timed || !has_timed_steps(entry, comparison.experiment.warmup)) continue;
    all.push_back(speed_of(entry, comparison.experiment.warmup));
    all.back().entry = i;
  }
  const std::int64_t cores = comparison.experiment.cores;
  for (Speed& speed : all) {
    const Contestant& own = comparison.entries[speed.entry].contestant;
    if (own.program.hardware != Hardware::emulator)  // its time says nothing about a GPU
      speed.speed_up = speed.tokens_per_second.median / all.front().tokens_per_second.median;
    if (!own.program.has_ranks()) continue;
    const Speed& base = *fewest_ranks(comparison, all, own);
    const double base_resources = comparison.entries[base.entry].contestant.resources(cores);
    speed.efficiency = speed.tokens_per_second.median / own.resources(cores) /
                       (base.tokens_per_second.median / base_resources);
  }
  return all;
}

}  // namespace stagegpt::compare
