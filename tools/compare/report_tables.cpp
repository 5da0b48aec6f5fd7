#include <algorithm>
#include <sstream>

#include "common/base/error.h"
#include "tools/compare/report_parts.h"
#include "tools/compare/table.h"

namespace stagegpt::compare {
namespace {

std::string difference(double error, std::int64_t step) {
  return error == 0 ? "none" : concat(scientific(error), " at step ", step);
}

// The check of an entry with another one, or of its own repeats; nullptr if there is none.
const Check* check_of(const Comparison& comparison, std::size_t entry, bool with_itself) {
  for (const Check& check : comparison.checks) {
    if (check.subject == entry && (check.kind == Check::Kind::repeats) == with_itself) return &check;
  }
  return nullptr;
}

Cell verdict_cell(const Check* check, const Check* repeats) {
  for (const Check* one : {check, repeats}) {
    if (one != nullptr && one->first) return {concat("differs, step ", one->first->step), Cell::Mark::bad};
  }
  if (check == nullptr && repeats == nullptr) return {"–"};
  return {"agrees", Cell::Mark::good};
}

std::string repeats_text(const Entry& entry, const Check* repeats) {
  if (repeats == nullptr) return "1";
  return concat(entry.trials.size(), repeats->passed() ? ", same bits" : ", different bits");
}

std::vector<Cell> agreement_row(const Comparison& comparison, std::size_t index) {
  const Entry& entry = comparison.entries[index];
  const Check *check = check_of(comparison, index, false), *repeats = check_of(comparison, index, true);
  std::vector<Cell> row = {{entry.contestant.label()}, verdict_cell(check, repeats)};
  if (check == nullptr) {
    row.insert(row.end(), {{"(reference)"}, {"–"}, {"–"}, {"–"}});
  } else {
    row.insert(row.end(), {{comparison.reference(*check).contestant.label()},
                           {check->kind == Check::Kind::bits ? "same bits" : "within limits"},
                           {difference(check->loss_error, check->loss_step)},
                           {difference(check->norm_error, check->norm_step)}});
  }
  row.push_back({repeats_text(entry, repeats)});
  return row;
}

std::vector<Cell> speed_row(const Comparison& comparison, const Speed& speed) {
  const Contestant& contestant = comparison.entries[speed.entry].contestant;
  const bool communicates = contestant.program.has_ranks();
  const auto ratio = [](const std::optional<double>& value) { return value ? three_digits(*value) : "–"; };
  return {{contestant.label()},
          {contestant.cores_text()},
          {grouped(speed.tokens_per_second.median)},
          {concat(grouped(speed.tokens_per_second.min), " – ", grouped(speed.tokens_per_second.max))},
          {three_digits(speed.step_ms.median)},
          {ratio(speed.speed_up)},
          {speed.efficiency ? percent(*speed.efficiency) : "–"},
          {communicates ? percent(speed.communication_share) : "–"},
          {mebibytes(speed.peak_memory_bytes)}};
}

std::string times(std::int64_t count) { return count == 1 ? "once" : concat(count, " times"); }

std::string heading(const char* text) { return concat("\n", text, "\n"); }

// Breaks text into lines of at most kLongest characters, unless a word is longer.
std::string in_lines(const std::string& text) {
  constexpr std::size_t kLongest = 100;
  std::istringstream words(text);
  std::string lines;
  std::size_t length = 0;
  for (std::string word; words >> word; length += word.size() + 1) {
    const bool next = length > 0 && length + word.size() > kLongest;
    if (length > 0) lines += next ? '\n' : ' ';
    if (next) length = 0;
    lines += word;
  }
  return concat(lines, "\n");
}

std::string crowding_note(const Comparison& comparison) {
  std::int64_t most = 0;
  for (const Entry& entry : comparison.entries) {
    const Contestant& contestant = entry.contestant;
    if (contestant.program.hardware != Hardware::gpu)
      most = std::max(most, contestant.ranks * contestant.threads);
  }
  const std::int64_t cores = comparison.experiment.cores;
  return most > cores ? concat(" Up to ", most, " threads share ", counted(cores, "core"),
                               ", which limits the speed of these contestants.")
                      : "";
}

}  // namespace

Table agreement_table(const Comparison& comparison) {
  Table table{{{"contestant"},
               {"verdict"},
               {"compared with"},
               {"expected"},
               {"loss difference", true},
               {"norm difference", true},
               {"repeats"}},
              {}};
  if (comparison.checks.empty()) return table;
  for (std::size_t i = 0; i < comparison.entries.size(); ++i) {
    if (!comparison.entries[i].trials.empty()) table.rows.push_back(agreement_row(comparison, i));
  }
  return table;
}

Table speed_table(const Comparison& comparison) {
  Table table{{{"contestant"},
               {"ranks × threads"},
               {"tokens/s", true},
               {"spread", true},
               {"ms per step", true},
               {"speed-up", true},
               {"efficiency", true},
               {"communication", true},
               {"peak memory", true}},
              {}};
  for (const Speed& speed : speeds(comparison)) table.rows.push_back(speed_row(comparison, speed));
  return table;
}

Table left_out_table(const Comparison& comparison) {
  Table table{{{"left out"}, {"reason"}}, {}};
  for (const auto& [who, why] : comparison.left_out) table.rows.push_back({{who}, {why}});
  for (const Entry& entry : comparison.entries) {
    if (entry.failed())
      table.rows.push_back({{entry.contestant.label()}, {concat("failed: ", entry.failure)}});
  }
  return table;
}

std::string agreement_note(const Comparison& comparison) {
  const Limits& limits = comparison.experiment.limits;
  std::string text =
      concat("Limits of the relative difference from the reference, at every step: ", scientific(limits.loss),
             " for the loss, ", scientific(limits.grad_norm), " for the gradient norm.");
  text +=
      " Repeats of a contestant must have the same bits, including the final weights; so must reproducible "
      "runs on the same kind of hardware.";
  if (comparison.experiment.mode == Mode::weak) {
    text += " Contestants are compared at the same batch size, which grows with the number of ranks.";
  }
  return text;
}

std::string no_speed_note(const Comparison& comparison) {
  const std::int64_t warmup = comparison.experiment.warmup;
  for (const Entry& entry : comparison.entries) {
    if (!entry.contestant.timed || entry.trials.empty()) continue;
    const std::int64_t steps = std::ssize(entry.trials.front().steps);
    return steps > warmup ? ""
                          : concat("No speed: the first ", counted(warmup, "step"),
                                   " of a run are warm-up, and a run has ", steps, ".");
  }
  return "";
}

std::string speed_note(const Comparison& comparison) {
  constexpr const char* kEfficiency =
      "Efficiency is tokens/s per core or GPU, relative to the same stage on its smallest number of ranks.";
  const Experiment& experiment = comparison.experiment;
  std::string text =
      concat("Each contestant ran ", times(experiment.repeats),
             "; values are medians, the spread is minimum and maximum. ", counted(experiment.warmup, "step"),
             " of each run ", experiment.warmup == 1 ? "is" : "are", " warm-up. ");
  for (const Entry& entry : comparison.entries) {
    if (!entry.contestant.timed || entry.trials.empty()) continue;
    text += concat("Speed-up is relative to ", entry.contestant.label(), " on ",
                   entry.contestant.cores_text(), ". ");
    break;
  }
  switch (experiment.mode) {
    case Mode::same_cores:
      text += concat("On the CPU, every contestant has ",
                     experiment.cores == 1 ? "one core" : concat("the same ", experiment.cores, " cores"),
                     ", divided among its ranks. ", kEfficiency);
      break;
    case Mode::strong:
      text +=
          concat("Strong scaling: the batch is fixed and divided among ranks; each rank has its own cores. ",
                 kEfficiency);
      break;
    case Mode::weak:
      text += concat("Weak scaling: each rank has a batch of fixed size, and its own cores. ", kEfficiency);
      break;
  }
  return concat(text, crowding_note(comparison));
}

std::string busy_note(const Comparison& comparison) {
  const BusyRuns all = busy_runs(comparison);
  if (all.busy == 0) return "";
  return concat("The machine was busy in ", all.busy, " of ",
                all.known < all.runs ? concat("the ", counted(all.known, "run"), " long enough to tell")
                                     : counted(all.runs, "run"),
                ": other programs used up to ", percent(all.most_used), " of ",
                counted(all.busiest->cores, "core"),
                ". The speeds may be inaccurate; the agreement is not affected.");
}

std::string terminal_report(const Comparison& comparison) {
  std::string text = in_lines(verdict(comparison));
  for (const FirstTensor& divergence : comparison.divergences) {
    if (!divergence.text.empty()) text += in_lines(divergence.text);
  }
  if (const Table table = agreement_table(comparison); !table.rows.empty()) {
    text += concat(heading("Agreement"), terminal_table(table), in_lines(agreement_note(comparison)));
  }
  if (const Table table = speed_table(comparison); !table.rows.empty()) {
    text += concat(heading("Speed"), terminal_table(table), in_lines(speed_note(comparison)));
    if (const std::string note = busy_note(comparison); !note.empty()) text += in_lines(note);
  } else if (const std::string note = no_speed_note(comparison); !note.empty()) {
    text += concat("\n", in_lines(note));
  }
  if (const Table table = left_out_table(comparison); !table.rows.empty()) {
    text += concat("\n", terminal_table(table));
  }
  return text;
}

}  // namespace stagegpt::compare
