#include <algorithm>
#include <cstdio>

#include "common/base/error.h"
#include "tools/compare/plot.h"
#include "tools/compare/report_parts.h"
#include "tools/compare/table.h"
#include "tools/page/document.h"

namespace stagegpt::compare {
namespace {

// The recorded contestants in their order, and what their figures have in common.
struct Recorded {
  std::vector<const Entry*> entries;
  double longest = 0;  // ms

  explicit Recorded(const Comparison& comparison) {
    for (const Entry& entry : comparison.entries) {
      if (!entry.recording || !entry.recording->failure.empty()) continue;
      entries.push_back(&entry);
      longest = std::max(longest, entry.recording->timeline.ms);
    }
  }
};

const StepTimeline& timeline_of(const Entry& entry) { return entry.recording->timeline; }

bool is_emulated(const Entry& entry) { return entry.contestant.program.hardware == Hardware::emulator; }

std::string share_css(double share) {
  char text[32];
  std::snprintf(text, sizeof text, "%.2f%%", 100 * share);
  return text;
}

std::string ms_text(double ms) { return concat(three_digits(ms), " ms"); }

const char* class_of(const StepSpan& span) {
  constexpr const char* kClasses[] = {"phase", "op", "message", "wait", "thread"};
  const bool other =
      span.kind == StepSpan::Kind::phase && std::ranges::find(kPhases, span.name) == kPhases.end();
  return other ? "phase other" : kClasses[static_cast<int>(span.kind)];
}

// Spans that are too narrow to be seen are drawn as one with those beside them.
std::vector<StepSpan> without_slivers(const std::vector<StepSpan>& spans, double step_ms) {
  const double narrow = step_ms / 1000;
  std::vector<StepSpan> drawn;
  std::int64_t joined = 1;
  for (const StepSpan& span : spans) {
    if (!drawn.empty() && drawn.back().kind == span.kind && span.ms < narrow &&
        span.begin - drawn.back().end() < narrow && (joined > 1 || drawn.back().ms < narrow)) {
      drawn.back().ms = std::max(drawn.back().end(), span.end()) - drawn.back().begin;
      drawn.back().name = concat(++joined, " short spans");
    } else {
      drawn.push_back(span);
      joined = 1;
    }
  }
  return drawn;
}

class Figure {
 public:
  Figure(const Recorded& all, std::size_t index)
      : all_(all),
        entry_(*all.entries[index]),
        timeline_(timeline_of(entry_)),
        id_(concat("timeline-", index)) {}

  std::string html() const {
    std::string rows;
    for (std::size_t rank = 0; rank < timeline_.ranks.size(); ++rank) rows += rank_rows(rank);
    return concat("<figure class=\"step stage", entry_.contestant.program.stage, "\" aria-labelledby=\"", id_,
                  "\" style=\"--share: ", share_css(timeline_.ms / all_.longest),
                  "; --tick: ", share_css(tick() / timeline_.ms), "\">\n<figcaption id=\"", id_, "\">",
                  escaped(entry_.contestant.label()), "<small>", escaped(facts()), " · <a href=\"",
                  escaped(entry_.recording->profile), "\" aria-label=\"profile of ",
                  escaped(entry_.contestant.label()), "\">profile</a></small></figcaption>\n",
                  "<div class=\"rows\" role=\"img\" aria-label=\"", escaped(description()), "\">\n", rows,
                  axis("own", timeline_.ms), axis("common", all_.longest), "</div>\n</figure>\n");
  }

 private:
  std::string facts() const {
    std::string text = concat(ms_text(timeline_.ms), " · step ", timeline_.step);
    const Entry& first = *all_.entries.front();
    if (is_emulated(entry_) && !is_emulated(first))
      text += concat(" · on the emulator, ", three_digits(timeline_.ms / timeline_of(first).ms),
                     " times as long as ", first.contestant.label());
    return text;
  }

  // What the figure shows, in words.
  std::string description() const {
    std::string text = concat("A step of ", ms_text(timeline_.ms), ".");
    for (std::size_t rank = 0; rank < timeline_.ranks.size(); ++rank) {
      const RankTimeline& own = timeline_.ranks[rank];
      text += concat(" Rank ", rank, ":");
      const PhaseMs ms = own.phase_ms();
      for (std::size_t i = 0; i < ms.size(); ++i) {
        if (ms[i] > 0) text += concat(" ", kPhases[i], " ", ms_text(ms[i]), ",");
      }
      text += concat(" waiting ", ms_text(own.waiting_ms()));
      if (!own.messages.empty())
        text += concat(", messages under way ", ms_text(own.message_ms()), ", of these ",
                       ms_text(own.overlap_ms()), " during backward");
      text += ".";
    }
    return text;
  }

  std::string rank_rows(std::size_t rank) const {
    const RankTimeline& own = timeline_.ranks[rank];
    std::string rows = row("name rank", concat("rank ", rank), "bars phases", own.phases);
    rows += row("name", "ops, waiting", "bars", own.host);
    if (!own.messages.empty()) rows += row("name", "messages", "bars thin messages", own.messages);
    for (const RankTimeline::Row& other : own.rows) rows += row("name", other.name, "bars thin", other.spans);
    return rows;
  }

  std::string row(const char* name_css, const std::string& name, const char* css,
                  const std::vector<StepSpan>& spans) const {
    std::string bars;
    for (const StepSpan& span : without_slivers(spans, timeline_.ms)) bars += bar(span);
    return concat("<span class=\"", name_css, "\">", escaped(name),
                  "</span><div class=\"track\"><div class=\"", css, "\">", bars, "</div></div>\n");
  }

  std::string bar(const StepSpan& span) const {
    const bool phase = span.kind == StepSpan::Kind::phase;
    return concat("<i class=\"", class_of(span), phase ? concat(" ", escaped(span.name)) : "",
                  "\" style=\"left:", share_css(span.begin / timeline_.ms),
                  ";width:", share_css(span.ms / timeline_.ms), "\" title=\"", escaped(span.name), ", ",
                  ms_text(span.ms), " from ", ms_text(span.begin), " on\">",
                  phase ? concat("<b>", escaped(span.name), "</b>") : "", "</i>");
  }

  static std::vector<std::pair<double, std::string>> ticks(double ms) {
    std::vector<std::pair<double, std::string>> all = Axis::linear(0, ms, /*count=*/4, 0, 1).ticks();
    std::erase_if(all, [&](const auto& tick) { return tick.first > ms; });
    return all;
  }
  // The distance of two ticks.
  double tick() const {
    const auto all = ticks(timeline_.ms);
    return all.size() > 1 ? all[1].first : timeline_.ms;
  }

  static std::string axis(const char* css, double ms) {
    std::string labels;
    for (const auto& [value, name] : ticks(ms))
      labels += concat("<i style=\"left:", share_css(value / ms), "\">", name, "</i>");
    return concat("<span class=\"name axis ", css, "\">ms</span><div class=\"track axis ", css, "\">", labels,
                  "</div>\n");
  }

  const Recorded& all_;
  const Entry& entry_;
  const StepTimeline& timeline_;
  std::string id_;
};

// Where the numbers come from.
std::string origin_note(const Recorded& all) {
  std::int64_t fewest = timeline_of(*all.entries.front()).recorded, most = fewest;
  for (const Entry* entry : all.entries) {
    fewest = std::min(fewest, timeline_of(*entry).recorded);
    most = std::max(most, timeline_of(*entry).recorded);
  }
  return concat(
      "One training step of each contestant: the one of median length of ",
      fewest == most ? counted(most, "step") : concat(fewest, " to ", counted(most, "step")),
      " after the warm-up. They were recorded with --profile in a run of their own, after the timed "
      "runs: the speeds above contain no recording. All ranks of a contestant have one clock, which "
      "starts at 0 when its first rank begins the step. The linked profiles hold all recorded "
      "steps, with shapes and bytes; ui.perfetto.dev opens them.");
}

std::string emulator_note(const Recorded& all) {
  if (!std::ranges::any_of(all.entries, [](const Entry* entry) { return is_emulated(*entry); })) return "";
  return "On the emulator, CUDA kernels are executed on a CPU: the times of stages 2 and 3 here are those of "
         "the emulator, and tell nothing about a GPU. Compare the shape of their steps with that of the "
         "others: in which order phases follow, when messages are under way, and where a rank waits.";
}

std::string legend() {
  std::string items;
  const auto add = [&](const std::string& css, const char* text) {
    items += concat("<li><i class=\"", css, "\"></i>", text, "</li>\n");
  };
  for (const char* phase : kPhases) add(concat("phase ", phase), phase);
  add("op", "op");
  add("message", "message under way, or call that starts or advances one");
  add("wait", "waiting for a message");
  add("thread", "device or another thread");
  return concat("<ul class=\"legend marks\">\n", items, "</ul>\n");
}

constexpr const char* kScales = R"(<fieldset class="scales"><legend>Scale</legend>
<label><input type="radio" name="scale" checked> each step fills the width</label>
<label><input type="radio" name="scale" id="common-scale"> the same for all steps</label>
</fieldset>
)";

// Which contestants have no timeline, and why.
std::string missing(const Comparison& comparison) {
  std::string text;
  for (const Entry& entry : comparison.entries) {
    if (entry.recording && !entry.recording->failure.empty())
      text += paragraph(concat("No timeline of ", entry.contestant.label(), ": ", entry.recording->failure),
                        "warning");
  }
  return text;
}

std::vector<Cell> table_row(const Entry& entry, std::size_t rank) {
  const StepTimeline& timeline = timeline_of(entry);
  const RankTimeline& own = timeline.ranks[rank];
  const auto cell = [&](double ms) {
    return Cell{concat(three_digits(ms), " · ", percent(ms / timeline.ms))};
  };
  const bool several = timeline.ranks.size() > 1;
  std::vector<Cell> row = {
      {several ? concat(entry.contestant.label(), ", rank ", rank) : entry.contestant.label()}};
  double rest = timeline.ms;
  for (const double ms : own.phase_ms()) {
    row.push_back(cell(ms));
    rest -= ms;
  }
  row.push_back(cell(std::max(rest, 0.0)));
  for (const double ms : {own.waiting_ms(), own.message_ms(), own.overlap_ms()})
    row.push_back(several ? cell(ms) : Cell{"–"});
  return row;
}

}  // namespace

Table timeline_table(const Comparison& comparison) {
  Table table{{{"ms · share of the step"}}, {}};
  for (const char* phase : kPhases) table.columns.push_back({phase, true});
  for (const char* more : {"rest", "waiting", "messages", "in backward"})
    table.columns.push_back({more, true});
  for (const Entry* entry : Recorded(comparison).entries) {
    for (std::size_t rank = 0; rank < timeline_of(*entry).ranks.size(); ++rank)
      table.rows.push_back(table_row(*entry, rank));
  }
  return table;
}

std::string timelines(const Comparison& comparison) {
  const Recorded all(comparison);
  const std::string failures = missing(comparison);
  if (all.entries.empty()) return failures.empty() ? "" : concat("<h2>Timeline of a step</h2>\n", failures);
  std::string figures;
  for (std::size_t i = 0; i < all.entries.size(); ++i) figures += Figure(all, i).html();
  const std::string emulated = emulator_note(all);
  return concat("<h2>Timeline of a step</h2>\n", paragraph(origin_note(all), "note"),
                emulated.empty() ? "" : paragraph(emulated, "note"), failures, "<div class=\"timelines\">\n",
                kScales, legend(), figures, "</div>\n",
                html_table(timeline_table(comparison), "Phases of the recorded steps"));
}

}  // namespace stagegpt::compare
