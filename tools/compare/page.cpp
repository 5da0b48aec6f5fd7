#include <algorithm>
#include <set>

#include "common/base/error.h"
#include "common/base/json.h"
#include "common/system/subprocess.h"
#include "tools/compare/page_style.h"
#include "tools/compare/report_parts.h"
#include "tools/compare/table.h"
#include "tools/page/document.h"

namespace stagegpt::compare {
namespace {

std::string text_of(const Json& json) {
  if (json.is_null()) return "unknown";
  if (json.is_string()) return json.get<std::string>();
  if (json.is_boolean()) return json.get<bool>() ? "yes" : "no";
  if (json.is_number_float())
    return concat(json.get<double>());  // six digits, instead of 0.30000000000000004
  return json.dump();
}

std::string head(const Comparison& comparison) {
  return concat(page_head(comparison.title, kPageStyle), "<body>\n<header>\n<h1>", escaped(comparison.title),
                "</h1>\n",
                paragraph(concat(comparison.author.empty() ? "" : concat(comparison.author, " · "),
                                 text_of(comparison.provenance.value("date", Json()))),
                          "byline"),
                "</header>\n<main>\n");
}

std::string heading_of_verdict(const Comparison& comparison) {
  if (!comparison.all_agree()) return "✗ The stages disagree";
  if (comparison.failed()) return "✗ Not every contestant ran";
  if (comparison.interrupted) return "✗ Interrupted";
  return comparison.has_compared() ? "✓ The stages agree" : "Nothing to compare with";
}

// The verdict, and the first differing tensor of each disagreement.
std::string verdict_box(const Comparison& comparison) {
  std::string text = concat("<div class=\"verdict", comparison.passed() ? "" : " failed", "\">\n<strong>",
                            heading_of_verdict(comparison), "</strong>\n", paragraph(verdict(comparison)));
  for (const FirstTensor& divergence : comparison.divergences) {
    if (!divergence.text.empty()) text += paragraph(divergence.text);
  }
  return text + "</div>\n";
}

// Who is fastest, if the runs tell: its slowest run is faster than every run of the others. Empty where there
// are no two contestants with several runs on real hardware.
std::string fastest_fact(const Comparison& comparison) {
  std::vector<Speed> real = speeds(comparison);
  std::erase_if(real, [&](const Speed& speed) {
    const Entry& entry = comparison.entries[speed.entry];
    return entry.contestant.program.hardware == Hardware::emulator || entry.trials.size() < 2;
  });
  if (real.size() < 2) return "";
  std::ranges::sort(real, std::greater(), [](const Speed& speed) { return speed.tokens_per_second.median; });
  const auto label = [&](const Speed& speed) { return comparison.entries[speed.entry].contestant.label(); };
  const auto rival = std::ranges::find_if(real.begin() + 1, real.end(), [&](const Speed& other) {
    return other.tokens_per_second.max >= real[0].tokens_per_second.min;
  });
  if (rival != real.end())
    return fact("Fastest", "undecided",
                concat("the runs of ", label(real[0]), " and ", label(*rival), " overlap"));
  return fact("Fastest", concat(grouped(real[0].tokens_per_second.median), " tokens/s"), label(real[0]));
}

std::string key_figures(const Comparison& comparison) {
  const Experiment& experiment = comparison.experiment;
  double loss = 0, norm = 0;
  for (const Check& check : comparison.checks) {
    loss = std::max(loss, check.loss_error);
    norm = std::max(norm, check.norm_error);
  }
  std::set<int> stages;
  for (const Entry& entry : comparison.entries) {
    if (!entry.trials.empty()) stages.insert(entry.contestant.program.stage);
  }
  std::string text = "<dl class=\"figures\">\n";
  text += fact("Stages compared", std::to_string(stages.size()),
               counted(static_cast<std::int64_t>(comparison.entries.size()), "contestant"));
  text += fact("Largest difference of the loss", scientific(loss),
               concat("limit ", scientific(experiment.limits.loss)));
  text += fact("Largest difference of the gradient norm", scientific(norm),
               concat("limit ", scientific(experiment.limits.grad_norm)));
  return text + fastest_fact(comparison) + "</dl>\n";
}

std::string agreement(const Comparison& comparison) {
  if (comparison.checks.empty()) return "";
  return concat("<h2>Agreement</h2>\n", html_table(agreement_table(comparison), "Agreement"),
                paragraph(agreement_note(comparison), "note"), "<div class=\"plots\">\n",
                figure(curve_plot(comparison, Curve::loss), "loss"),
                figure(difference_plot(comparison, Curve::loss), "loss-difference"),
                figure(curve_plot(comparison, Curve::grad_norm), "norm"),
                figure(difference_plot(comparison, Curve::grad_norm), "norm-difference"), "</div>\n");
}

std::string speed(const Comparison& comparison) {
  const Table table = speed_table(comparison);
  if (table.rows.empty()) {
    const std::string note = no_speed_note(comparison);
    return note.empty() ? "" : paragraph(note, "note");
  }
  const LinePlot scaling = scaling_plot(comparison);
  const PartsPlot phases = phases_plot(comparison);
  const std::string busy = busy_note(comparison);
  return concat("<h2>Speed</h2>\n", html_table(table, "Speed"), paragraph(speed_note(comparison), "note"),
                busy.empty() ? "" : paragraph(busy, "warning"), "<div class=\"plots\">\n",
                figure(speed_plot(comparison), "speed"), phases.bars.empty() ? "" : figure(phases, "phases"),
                scaling.series.empty() ? "" : figure(scaling, "scaling"), "</div>\n");
}

std::string left_out(const Comparison& comparison) {
  const Table table = left_out_table(comparison);
  if (table.rows.empty()) return "";
  return concat("<h2>Left out</h2>\n<div class=\"wraps\">\n", html_table(table, "Left out"), "</div>\n");
}

// A path may break after its slashes, so that names of programs stay whole.
std::string breakable(const std::string& html) {
  std::string text;
  for (const char c : html) text += c == '/' ? std::string("/<wbr>") : std::string(1, c);
  return text;
}

// A command; lines break between its words, and in paths.
std::string command_line(const std::vector<std::string>& words) {
  std::string text = "<pre>";
  for (const std::string& word : words) {
    text += concat(text.size() > 5 ? " " : "", "<span class=\"word\">",
                   breakable(escaped(shell_line({word}))), "</span>");
  }
  return concat(text, "</pre>\n");
}

std::string experiment(const Comparison& comparison) {
  const Experiment& experiment = comparison.experiment;
  std::string text = concat("<h2>Experiment</h2>\n", paragraph(concat("Model: ", comparison.model, ".")),
                            paragraph(concat("Data: ", comparison.data, ".")),
                            paragraph(concat(counted(experiment.repeats, "repeat"), ", ",
                                             counted(experiment.warmup, "warm-up step"), " in each, ",
                                             grouped(comparison.seconds), " s in total.")),
                            "<h3>Settings of the reference</h3>\n<dl class=\"settings\">\n");
  for (const auto& [key, value] : comparison.settings.items()) {
    if (!value.is_null()) text += fact(key, text_of(value));
  }
  text += concat("</dl>\n<h3>Commands</h3>\n<p>This report:</p>\n", command_line(comparison.command));
  for (const Entry& entry : comparison.entries) {
    if (entry.command.empty()) continue;
    text += concat(paragraph(concat(entry.contestant.label(), ":")), command_line(entry.command));
  }
  return text;
}

std::string machine(const Comparison& comparison) {
  Table table{{{"what"}, {"value"}}, {}};
  for (const auto& [group, values] : comparison.provenance.items()) {
    if (!values.is_object()) {
      table.rows.push_back({{group}, {text_of(values)}});
      continue;
    }
    for (const auto& [key, value] : values.items()) {
      std::string name = concat(group, ", ", key);
      std::ranges::replace(name, '_', ' ');
      const bool bytes = key.ends_with("_bytes") && value.is_number();
      table.rows.push_back({{name}, {bytes ? mebibytes(value.get<std::int64_t>()) : text_of(value)}});
    }
  }
  for (const Entry& entry : comparison.entries) {
    if (!entry.machine.empty()) table.rows.push_back({{entry.contestant.label()}, {entry.machine}});
  }
  return concat("<h2>Machine</h2>\n<div class=\"wraps\">\n", html_table(table, "Machine"), "</div>\n");
}

constexpr const char* kMeanings = R"(<h2>How to read this</h2>
<dl class="means">
<dt>Contestant</dt><dd>A stage on a number of ranks. All train the same model from the same weights on the same batches, with the same settings; in weak scaling the batch grows with the ranks.</dd>
<dt>Difference</dt><dd>|x &minus; reference| / |reference|, where x is the training loss or the norm of all gradients before clipping, at each step. The table shows the largest over all steps and repeats.</dd>
<dt>tokens/s</dt><dd>Tokens of a step divided by the median time of a step, without warm-up steps; the median over the repeats. Checkpoints are not included, and there is no validation.</dd>
<dt>Speed-up</dt><dd>tokens/s divided by those of the reference.</dd>
<dt>Efficiency</dt><dd>tokens/s per core (or GPU) of the contestant, divided by the same value of that stage on its smallest number of ranks. 100 % is ideal.</dd>
<dt>Communication</dt><dd>The share of a step in which rank 0 communicates with other ranks or waits for them.</dd>
<dt>Peak memory</dt><dd>Of the tensors on rank 0.</dd>
<dt>Emulated</dt><dd>The CUDA kernels, executed on a CPU. This shows that they are correct, but not how fast a GPU is.</dd>
</dl>
)";

}  // namespace

std::string page(const Comparison& comparison) {
  return concat(head(comparison), verdict_box(comparison), key_figures(comparison), agreement(comparison),
                speed(comparison), timelines(comparison), left_out(comparison), experiment(comparison),
                machine(comparison), kMeanings,
                "</main>\n<footer>Written by StageGPT's compare_stages. "
                "The same numbers are in results.json.</footer>\n</body>\n</html>\n");
}

}  // namespace stagegpt::compare
