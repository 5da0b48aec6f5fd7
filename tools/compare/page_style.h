// The style sheet of a report's page, after that of all pages (tools/page/document.h).
#pragma once

namespace stagegpt::compare {

inline constexpr const char* kPageStyle = R"css(
:root {
  --stage0: #4a5560; --stage1: #0068b5; --stage2: #c2410c; --stage3: #0a8f6a;
  --part0: #9aa5b1; --part1: #5aa9e6; --part2: #1f5f9e; --part3: #e08a1e; --part4: #4f9d69;
  --on2: #ffffff; --op: #4a5560;
}
@media screen and (prefers-color-scheme: dark) {
  :root {
    --stage0: #b4bec8; --stage1: #58b0ff; --stage2: #ff9a5c; --stage3: #3fd0a4;
    --part0: #6d7883; --part1: #7cc0f5; --part2: #3a7dc0; --part3: #f0a545; --part4: #63b981;
    --on2: #000000; --op: #b4bec8;
  }
}
.warning { font-weight: 600; }
.verdict {
  margin: 1.5rem 0 1rem; padding: 1rem 1.25rem; border-left: 5px solid var(--good); background: var(--good-soft);
  border-radius: 0 6px 6px 0;
}
.verdict.failed { border-color: var(--bad); background: var(--bad-soft); }
.verdict strong { display: block; font-size: 1.2rem; color: var(--good); }
.verdict.failed strong { color: var(--bad); }
.verdict p { max-width: none; margin: 0.25rem 0 0; overflow-wrap: anywhere; }
.figures { display: grid; grid-template-columns: repeat(auto-fit, minmax(9.5rem, 1fr)); gap: 0.75rem 1.5rem; margin: 1.25rem 0; }
.figures div { border-top: 1px solid var(--rule); padding-top: 0.5rem; }
.figures dt { color: var(--quiet); font-size: 0.85rem; }
.figures dd { margin: 0; font-size: 1.25rem; font-variant-numeric: tabular-nums; }
.figures small { display: block; color: var(--quiet); font-size: 0.8rem; }
table { border-collapse: collapse; font-size: 0.9rem; font-variant-numeric: tabular-nums; min-width: 100%; }
th, td { padding: 0.4rem 0.9rem 0.4rem 0; text-align: left; border-bottom: 1px solid var(--rule); vertical-align: top; white-space: nowrap; }
th:last-child, td:last-child { padding-right: 0; }
thead th { color: var(--quiet); font-weight: 500; font-size: 0.82rem; vertical-align: bottom; }
tbody th { font-weight: 600; white-space: normal; min-width: 7rem; max-width: 15rem; }
.number { text-align: right; }
.good { color: var(--good); } .good::before { content: "\2713\00a0"; }
.bad { color: var(--bad); font-weight: 600; } .bad::before { content: "\2717\00a0"; }
.wraps td, .wraps th { white-space: normal; overflow-wrap: anywhere; }
.wraps tbody th { min-width: 7.5rem; }
.plots { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 22rem), 1fr)); gap: 1.75rem 2.5rem; margin: 1.25rem 0; }
figure > svg { display: block; width: 100%; max-width: 33rem; height: auto; overflow: visible; }
svg text { fill: var(--quiet); font: 12px system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", sans-serif; font-variant-numeric: tabular-nums; }
svg text.value { fill: var(--ink); }
svg .grid { stroke: var(--rule); } svg .axis { stroke: var(--quiet); }
svg .line { fill: none; stroke: var(--stage); stroke-width: 2; stroke-linejoin: round; } svg .line.wide { stroke-width: 6; opacity: 0.4; }
svg .limit { stroke: var(--bad); stroke-dasharray: 6 4; } svg text.limit { fill: var(--bad); stroke: var(--paper); stroke-width: 4px; stroke-dasharray: none; paint-order: stroke; }
svg .ideal { stroke: var(--quiet); stroke-dasharray: 3 4; }
svg .whisker { stroke: var(--ink); stroke-width: 1.5; }
svg rect, svg circle { fill: var(--stage); }
svg .part0 { fill: var(--part0); } svg .part1 { fill: var(--part1); } svg .part2 { fill: var(--part2); }
svg .part3 { fill: var(--part3); } svg .part4 { fill: var(--part4); }
.scales { border: 0; padding: 0; margin: 1rem 0 0.5rem; display: flex; flex-wrap: wrap; gap: 0.2rem 1.25rem; font-size: 0.9rem; }
.scales legend { float: left; padding: 0; margin-right: 1.25rem; color: var(--quiet); }
.scales input { accent-color: var(--accent); margin: 0 0.4rem 0 0; vertical-align: -0.1em; }
.marks i { display: inline-block; width: 20px; height: 10px; margin-right: 0.45rem; }
.step { margin: 1.5rem 0; }
.step figcaption { border-left: 4px solid var(--stage); padding-left: 0.6rem; }
.step small { display: inline-block; margin-left: 0.75rem; color: var(--quiet); font-weight: 400; font-size: 0.85rem; }
.step a { color: var(--accent); }
.stage0 { --stage: var(--stage0); } .stage1 { --stage: var(--stage1); } .stage2 { --stage: var(--stage2); } .stage3 { --stage: var(--stage3); }
.rows { display: grid; grid-template-columns: 6.2rem minmax(0, 1fr); row-gap: 2px; align-items: center; font-size: 0.8rem; line-height: 1.2; font-variant-numeric: tabular-nums; }
.rows .name { color: var(--quiet); } .rows .rank { color: var(--ink); font-weight: 600; margin-top: 8px; }
.track { position: relative; min-width: 0; }
.bars { position: relative; height: 16px; background: repeating-linear-gradient(to right, var(--rule) 0 1px, transparent 1px var(--tick)) var(--soft); }
.bars.phases { height: 24px; margin-top: 8px; } .bars.thin { height: 9px; }
.bars i { position: absolute; top: 0; bottom: 0; min-width: 1px; box-shadow: inset -0.5px 0 var(--paper); font-style: normal; }
.phase { background: var(--part0); color: #000; }
.phase.forward { background: var(--part1); } .phase.backward { background: var(--part2); color: var(--on2); }
.phase.communication { background: var(--part3); } .phase.optimizer { background: var(--part4); } .phase.other { background: var(--quiet); }
.bars .phase { display: flex; flex-wrap: wrap; justify-content: center; overflow: hidden; line-height: 24px; }
.bars .phase::before { content: ""; height: 100%; } .bars .phase b { flex: none; padding: 0 3px; font-weight: 600; }
.op { background: var(--op); } .thread { background: var(--part0); } .message, .messages i { background: var(--part3); }
.wait { background: repeating-linear-gradient(135deg, var(--part3) 0 2px, var(--paper) 2px 5px); border: 1px solid var(--part3); }
.track.axis { height: 1.2rem; } .name.axis { align-self: start; }
.track.axis i { position: absolute; transform: translateX(-50%); font-style: normal; color: var(--quiet); } .track.axis i:first-child { transform: none; }
.axis.common { display: none; }
.timelines:has(#common-scale:checked) .bars { width: var(--share); }
.timelines:has(#common-scale:checked) .axis { display: none; } .timelines:has(#common-scale:checked) .axis.common { display: block; }
.timelines:has(#common-scale:checked) .bars i { box-shadow: none; }
.unit { margin: 0.25rem 0 0; }
.legend { list-style: none; margin: 0.5rem 0 0; padding: 0; display: flex; flex-wrap: wrap; gap: 0.15rem 1.1rem; font-size: 0.85rem; }
.legend svg { width: 26px; height: 10px; margin-right: 0.45rem; vertical-align: middle; }
pre { background: var(--soft); padding: 0.7rem 0.9rem; border-radius: 6px; margin: 0.4rem 0 1rem; white-space: pre-wrap; overflow-wrap: anywhere; font: 0.82rem/1.5 ui-monospace, "SF Mono", Menlo, Consolas, monospace; }
.word { display: inline-block; max-width: 100%; }
.settings { columns: 15rem; column-gap: 2.5rem; font-size: 0.88rem; margin: 0.75rem 0; padding: 0; }
.settings div { display: flex; justify-content: space-between; gap: 1rem; border-bottom: 1px solid var(--rule); padding: 0.2rem 0; break-inside: avoid; }
.settings dt { color: var(--quiet); white-space: nowrap; } .settings dd { margin: 0; text-align: right; overflow-wrap: anywhere; min-width: 0; }
.means dt { font-weight: 600; margin-top: 0.6rem; } .means dd { margin: 0; max-width: 46rem; }
@media (max-width: 34rem) {
  svg text { font-size: 14px; }
  .rows { grid-template-columns: 5.2rem minmax(0, 1fr); }
  .step small { display: block; margin: 0; }
  .scales legend { width: 100%; }
}
@media print {
  figure, tr, .verdict, .figures div { break-inside: avoid; }
  .plots { grid-template-columns: 1fr 1fr; }
  .scroll { overflow: visible; }
  th, td { padding-right: 0.5rem; font-size: 8pt; }
}
)css";

}  // namespace stagegpt::compare
