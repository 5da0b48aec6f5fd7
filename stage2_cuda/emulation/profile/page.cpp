#include <map>
#include <set>

#include "common/base/error.h"
#include "common/base/grouped.h"
#include "stage2_cuda/emulation/profile/writers.h"
#include "tools/page/document.h"

namespace stagegpt::gpu::emulation {
namespace {

constexpr const char* kStyle = R"css(
main, header, footer { max-width: 90rem; }
table { border-collapse: collapse; font-size: 0.85rem; } td, th { padding: 1px 8px; text-align: left; vertical-align: top; }
td.n { text-align: right; color: var(--quiet); } td.counts { min-width: 22rem; } pre { margin: 0; font-size: 0.8rem; line-height: 1.45; }
tr.bad td { background: var(--bad-soft); } tr.bad td.counts { color: var(--bad); }
details { margin: 0.75rem 0; } summary { cursor: pointer; font-weight: 600; overflow-wrap: anywhere; }
:focus-visible { outline: 2px solid var(--accent); outline-offset: 2px; } a { color: var(--accent); }
@media (max-width: 44rem) {
  tr { display: grid; grid-template-columns: 3rem minmax(0, 1fr); } pre { overflow-x: auto; }
  thead th:last-child { display: none; } th { overflow-wrap: anywhere; } td.counts { grid-column: 2; min-width: 0; } td.counts:empty { display: none; }
}
)css";

// One access, in words: "16 × read 4 bytes: 8.00 sectors a request, efficiency 50.0%, 100 % of lanes".
std::string described(const LineAccess& access) {
  const AccessCounts& c = access.counts;
  const std::string calls = access.chain.size() > 1 ? concat(" (", to_string(access.chain), ')') : "";
  return concat(c.requests, " × ", c.shared ? "shared " : "", name_of(c.kind), ' ', c.bytes,
                " bytes: ", cost_of(c), ", ", static_cast<int>(100 * active_lanes(c)), " % of lanes", calls);
}

bool is_wasteful(const AccessCounts& c) {
  return c.shared ? conflict_factor(c) > 1 : sector_efficiency(c) < 0.9;
}

// The accesses of a line, in words, and whether one of them is wasteful.
struct Cell {
  std::string text;
  bool wasteful = false;
};

// The kernel's own lines, from its first to its last access, with the accesses beside them.
std::string source_of(const KernelSummary& kernel) {
  std::map<SourceLine, Cell> cells;
  std::set<SourceLine> places;
  for (const LineAccess& access : kernel.lines) {
    const SourceLine place = access.chain.empty() ? SourceLine{"?", 0} : access.chain.front();
    places.insert(place);
    Cell& cell = cells[place];
    cell.text += escaped(described(access)) + "<br>";
    cell.wasteful = cell.wasteful || is_wasteful(access.counts);
  }
  std::string out =
      "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"Source and counts\"><table>\n"
      "<thead><tr><th scope=col>line</th><th scope=col>source</th><th scope=col>accesses</th></tr></thead>\n";
  for (const Excerpt& excerpt : excerpts_of(places)) {
    out += concat("<tbody><tr><td></td><th scope=rowgroup>", escaped(excerpt.file), "</th><td></td></tr>\n");
    int line = excerpt.first;
    for (const std::string& text : excerpt.lines) {
      const Cell& cell = cells[{excerpt.file, line}];
      out += concat(cell.wasteful ? "<tr class=bad>" : "<tr>", "<td class=n>", line, "</td><td><pre>",
                    escaped(text), "</pre></td><td class=counts>", cell.text, "</td></tr>\n");
      ++line;
    }
    out += "</tbody>\n";
  }
  return out + "</table></div>";
}

}  // namespace

std::string page_of(const Summary& summary, bool has_block) {
  std::string out = concat(
      page_head("Emulator report", kStyle),
      "<body>\n<header><h1>Memory accesses of kernels, counted by the emulator</h1></header>\n<main>\n",
      "<p>Lines of accesses that move more than they need, or conflict, are marked. The numbers are those of "
      "report.txt; docs/emulator.md defines them.</p>\n",
      has_block ? "<p><a href=\"block.html\">Step through one block</a></p>\n" : "");
  for (const KernelSummary& kernel : summary.kernels) {
    out += concat("<details><summary>", escaped(kernel.name), ": ", kernel.counts->launches, " launches, ",
                  kernel.global_total.sectors, " sectors, ",
                  static_cast<int>(100 * sector_efficiency(kernel.global_total)), " % efficient, conflicts ",
                  grouped(conflict_factor(kernel.shared_total), 2), "</summary>\n", source_of(kernel),
                  "</details>\n");
  }
  return out +
         "<h2>The whole report</h2><div class=\"scroll\" tabindex=\"0\" role=\"region\" "
         "aria-label=\"report.txt\"><pre>" +
         escaped(table_of(summary)) + "</pre></div>\n</main>\n</body>\n</html>\n";
}

}  // namespace stagegpt::gpu::emulation
