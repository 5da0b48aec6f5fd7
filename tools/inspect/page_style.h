// The style sheet of an inspection's page, after that of all pages (tools/page/document.h).
#pragma once

namespace stagegpt {

inline constexpr const char* kInspectionStyle = R"css(
:root { --heat: 0 92 184; --on-heat: #ffffff; --mark: #b45309; }
@media (prefers-color-scheme: dark) { :root { --heat: 96 178 255; --on-heat: #08131d; --mark: #f5a04a; } }
.facts { display: flex; flex-wrap: wrap; gap: 0.2rem 1.4rem; margin: 0.6rem 0 0; padding: 0; }
.facts div { display: flex; gap: 0.4rem; } .facts dt { color: var(--quiet); } .facts dd { margin: 0; font-variant-numeric: tabular-nums; }
.two { display: grid; grid-template-columns: minmax(0, 1fr) minmax(0, 1fr); gap: 1.5rem 2.5rem; align-items: start; }
@media (max-width: 52rem) { .two { grid-template-columns: minmax(0, 1fr); } }
button { font: inherit; color: inherit; background: none; border: 0; padding: 0; margin: 0; cursor: pointer; }
:focus-visible { outline: 2px solid var(--accent); outline-offset: 2px; }
.words { display: flex; flex-wrap: wrap; gap: 3px; margin: 0.6rem 0; line-height: 1.35; }
.word {
  padding: 0.1rem 0.28rem; border-radius: 4px; min-width: 1.35rem; min-height: 1.5rem; background: var(--soft);
  unicode-bidi: isolate; overflow-wrap: anywhere; white-space: pre-wrap; text-align: center;
}
.word.later { opacity: 0.45; }
.word[aria-checked="true"] { box-shadow: 0 0 0 2px var(--mark); }
.words.small .word { font-size: 0.85rem; }
.space { opacity: 0.45; }
.heads { display: grid; gap: 4px; justify-content: start; align-items: center; font-size: 0.75rem; color: var(--quiet); text-align: center; }
.heads canvas { display: block; image-rendering: pixelated; width: 100%; aspect-ratio: 1; border: 1px solid var(--rule); border-radius: 3px; }
.heads button { border-radius: 3px; min-width: 22px; }
.heads button[aria-checked="true"] { box-shadow: 0 0 0 2px var(--mark); }
.layer { text-align: right; padding-right: 0.3rem; white-space: nowrap; }
.map { position: relative; margin: 0.6rem 0; }
.map canvas { display: block; width: 100%; border: 1px solid var(--rule); border-radius: 4px; cursor: crosshair; }
.reading { min-height: 1.6em; font-variant-numeric: tabular-nums; }
.scale { display: flex; align-items: center; gap: 0.5rem; color: var(--quiet); font-size: 0.8rem; }
.scale i { flex: none; width: 8rem; height: 0.7rem; border-radius: 3px; border: 1px solid var(--rule);
  background: linear-gradient(90deg, rgb(var(--heat) / 0), rgb(var(--heat) / 1)); }
.chosen { margin-top: 0; }
.pattern { color: var(--mark); font-weight: 600; }
.ranking { margin: 0.4rem 0; padding: 0; list-style: none; font-variant-numeric: tabular-nums; max-width: 32rem; }
.ranking li { display: grid; grid-template-columns: minmax(4rem, 9rem) 1fr 4.2rem; gap: 0.6rem; align-items: center; padding: 1px 0; }
.ranking .bar { height: 0.8rem; border-radius: 2px; background: rgb(var(--heat) / 0.8); min-width: 1px; }
.ranking span:last-child { text-align: right; }
h3 .token, .note .token { background: var(--soft); border-radius: 4px; padding: 0 0.3rem; color: var(--ink); }
.token { unicode-bidi: isolate; overflow-wrap: anywhere; white-space: pre-wrap; }
table.lens { border-collapse: separate; border-spacing: 2px; font-size: 0.82rem; }
table.lens th { font-weight: 500; color: var(--quiet); text-align: center; padding: 0.1rem 0.3rem; white-space: pre; max-width: 5.5rem; overflow: hidden; text-overflow: ellipsis; }
table.lens tbody th, table.lens thead th:first-child, table.lens tfoot th:first-child {
  position: sticky; left: 0; z-index: 1; max-width: none; background: var(--paper); text-align: right; padding-right: 0.6rem;
}
table.lens td { padding: 0.1rem 0.3rem; min-width: 2rem; max-width: 5.5rem; overflow: hidden; text-overflow: ellipsis; text-align: center; white-space: pre; border-radius: 3px; cursor: pointer; border: 2px solid transparent; unicode-bidi: isolate; }
table.lens td.right { border-width: 2px; border-color: var(--good); }
table.lens td[aria-selected="true"] { box-shadow: 0 0 0 2px var(--mark); }
table.lens .here { color: var(--mark); font-weight: 700; }
.key { display: inline-block; width: 0.9rem; height: 0.9rem; border: 1px solid var(--good); border-radius: 3px; vertical-align: -0.1rem; }
.tape { position: relative; }
.tape table { border-collapse: collapse; font-size: 0.85rem; width: 100%; font-variant-numeric: tabular-nums; }
.tape th, .tape td { text-align: left; padding: 0.12rem 0.8rem 0.12rem 0; white-space: nowrap; font-weight: 400; }
.tape thead th, table.layers thead th { color: var(--quiet); font-size: 0.8rem; vertical-align: bottom; }
.tape td:first-child, .tape th:first-child { width: 64px; min-width: 64px; }
.tape tr.inner th { padding-left: 1rem; } .tape tr.block th { font-weight: 600; } .tape tbody tr:hover { background: var(--soft); }
.tape svg { position: absolute; left: 0; top: 0; width: 64px; pointer-events: none; }
.edge { fill: none; stroke: var(--quiet); stroke-width: 1.3; } .op { fill: rgb(var(--heat)); }
.fold { font-weight: 600; } .number { text-align: right !important; } td.number { white-space: nowrap; }
#lens-layers li { grid-template-columns: minmax(9.5rem, 12rem) 1fr 4.2rem; }
.memory { display: grid; grid-template-columns: minmax(4rem, 9rem) 4.6rem; gap: 0.5rem; align-items: center; justify-content: end; }
.memory .bar { display: block; height: 0.7rem; border-radius: 2px; background: rgb(var(--heat) / 0.7); justify-self: end; }
table.layers { border-collapse: collapse; font-size: 0.85rem; font-variant-numeric: tabular-nums; min-width: 100%; }
table.layers th, table.layers td { text-align: left; padding: 0.25rem 0.8rem 0.25rem 0; border-bottom: 1px solid var(--rule); }
table.layers thead th { font-weight: 500; max-width: 7.5rem; } table.layers tbody th { white-space: nowrap; }
.added td { width: 45%; } .added .value { display: inline-block; width: 3.8rem; }
.added .track { display: inline-block; width: calc(100% - 4.4rem); } .added .bar { display: block; height: 0.7rem; border-radius: 2px; min-width: 1px; background: rgb(var(--heat) / 0.7); }
.suspicious { color: var(--bad); font-weight: 600; }
.plots { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 22rem), 1fr)); gap: 1.25rem 2.5rem; margin: 1.25rem 0; }
.plots svg { display: block; width: 100%; max-width: 33rem; height: auto; overflow: visible; }
.plots text { fill: var(--quiet); font: 12px system-ui, sans-serif; }
.plots .grid { stroke: var(--rule); } .plots .line { fill: none; stroke-width: 1.8; stroke-linejoin: round; }
kbd { font: 0.8rem ui-monospace, Menlo, Consolas, monospace; border: 1px solid var(--rule); border-radius: 3px; padding: 0 0.25rem; }
.visually-hidden { position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%); white-space: nowrap; }
)css";

}  // namespace stagegpt
