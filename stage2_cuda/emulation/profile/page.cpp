#include <cstdio>
#include <map>

#include "common/base/error.h"
#include "common/page/html.h"
#include "stage2_cuda/emulation/profile/writers.h"

namespace stagegpt::gpu::emulation {
namespace {

constexpr const char* kStyle =
    "body{font:14px system-ui,sans-serif;margin:2em}table{border-collapse:collapse}"
    "td,th{padding:2px 8px;text-align:left;vertical-align:top}td.n{text-align:right}"
    "pre{margin:0;font:13px monospace}tr.bad td{background:#fdd}details{margin:1em 0}"
    "summary{font:bold 14px monospace;cursor:pointer}";

std::string decimals(double value) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.2f", value);
  return text;
}

// One access, in words: "16 × read 4 bytes: 8.00 sectors, 50 % efficient".
std::string described(const LineAccess& access) {
  const AccessCounts& c = access.counts;
  const double requests = static_cast<double>(c.requests);
  std::string text =
      concat(c.requests, " × ", c.shared ? "shared " : "", name_of(c.kind), ' ', c.bytes, " bytes: ");
  if (c.shared) {
    text +=
        concat(decimals(static_cast<double>(c.wavefronts) / requests), " wavefronts, worst ", c.ways, "-way");
  } else {
    text += concat(decimals(static_cast<double>(c.sectors) / requests), " sectors, ",
                   static_cast<int>(100 * sector_efficiency(c)), " % efficient");
  }
  text += concat(", ", static_cast<int>(100 * active_lanes(c)), " % of lanes");
  if (access.chain.size() > 1) text += concat(" (", to_string(access.chain), ')');
  return text;
}

bool is_wasteful(const AccessCounts& c) {
  return c.shared ? conflict_factor(c) > 1 : sector_efficiency(c) < 0.9;
}

// The kernel's own lines, from its first to its last access, with the accesses beside them.
std::string source_of(const KernelSummary& kernel) {
  std::map<SourceLine, std::vector<const LineAccess*>> by_line;
  for (const LineAccess& access : kernel.lines) {
    by_line[access.chain.empty() ? SourceLine{"?", 0} : access.chain.front()].push_back(&access);
  }
  std::string out = "<table>";
  std::string file;
  std::vector<std::string> text;
  int next = 0;
  const auto row = [&](int line, const std::string& accesses, bool wasteful) {
    const bool known = line >= 1 && static_cast<std::size_t>(line) <= text.size();
    out += concat(wasteful ? "<tr class=bad>" : "<tr>", "<td class=n>", line, "</td><td><pre>",
                  known ? escaped(text[static_cast<std::size_t>(line) - 1]) : "", "</pre></td><td>", accesses,
                  "</td></tr>\n");
  };
  constexpr int kMostBetween = 30;
  for (const auto& [place, accesses] : by_line) {
    if (place.file != file || place.line - next > kMostBetween) {
      file = place.file;
      text = text_of(file);
      next = place.line;
      out += concat("<tr><th></th><th>", escaped(file), "</th><th></th></tr>\n");
    }
    for (; next < place.line; ++next) row(next, "", false);
    std::string cell;
    bool wasteful = false;
    for (const LineAccess* access : accesses) {
      cell += escaped(described(*access)) + "<br>";
      wasteful = wasteful || is_wasteful(access->counts);
    }
    row(place.line, cell, wasteful);
    next = place.line + 1;
  }
  return out + "</table>";
}

}  // namespace

std::string page_of(const Summary& summary) {
  std::string out =
      concat("<!doctype html><html lang=en><meta charset=utf-8><title>Emulator report</title><style>", kStyle,
             "</style><h1>Memory accesses of kernels, counted by the emulator</h1>\n");
  out +=
      "<p>Lines of accesses that move more than they need, or conflict, are marked. The numbers are those of "
      "report.txt; docs/emulator.md defines them.</p>\n";
  for (const KernelSummary& kernel : summary.kernels) {
    out += concat("<details><summary>", escaped(kernel.name), ": ", kernel.counts->launches, " launches, ",
                  kernel.global_total.sectors, " sectors, ",
                  static_cast<int>(100 * sector_efficiency(kernel.global_total)), " % efficient, conflicts ",
                  decimals(conflict_factor(kernel.shared_total)), "</summary>\n", source_of(kernel),
                  "</details>\n");
  }
  return out + "<h2>The whole report</h2><pre>" + escaped(table_of(summary)) + "</pre></html>\n";
}

}  // namespace stagegpt::gpu::emulation
