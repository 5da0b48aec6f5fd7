// The style sheet of block.html, after that of all pages (tools/page/document.h).
#pragma once

namespace stagegpt::gpu::emulation {

inline constexpr const char* kBlockStyle = R"css(
:root {
  --global-read: #5aa2e0; --global-write: #1f4e9c; --shared-read: #e8a33d; --shared-write: #b85c00; --atomic: #8e44ad;
  --call: #3c9a5f; --barrier: #1d2126; --idle: #e3e6ea; --wait: #b5bcc4; --on-colour: #ffffff; --waste: #c62828;
  --waste-soft: #f6c9c5;
}
@media (prefers-color-scheme: dark) {
  :root {
    --global-read: #7db8ee; --global-write: #3f7fd6; --shared-read: #f0b75e; --shared-write: #d9792a; --atomic: #b57fd0;
    --call: #5dbb80; --barrier: #e6e9ec; --idle: #2a3037; --wait: #59636e; --on-colour: #0d1013; --waste: #ff7b70;
    --waste-soft: #5a2a28;
  }
}
main, header, footer { max-width: 90rem; }
header { padding-top: 1.5rem; }
h1 { overflow-wrap: anywhere; }
h2 { margin-top: 1.5rem; padding-top: 0.75rem; }
.cut { color: var(--bad); font-weight: 600; }
.controls { display: flex; flex-wrap: wrap; gap: 0.4rem; align-items: center; margin: 0.75rem 0 0.5rem; }
button, select {
  font: inherit; font-size: 0.9rem; color: inherit; background: var(--soft); border: 1px solid var(--rule); border-radius: 6px;
  padding: 0.3rem 0.6rem; min-height: 2.2rem; cursor: pointer;
}
button:disabled { opacity: 0.45; cursor: default; }
:focus-visible { outline: 2px solid var(--accent); outline-offset: 2px; }
#slider { width: 100%; margin: 0.25rem 0; accent-color: var(--accent); }
#timeline { border: 1px solid var(--rule); border-radius: 6px; overflow: hidden; }
#timeline canvas { display: block; width: 100%; cursor: pointer; touch-action: pan-y; }
.legend { display: flex; flex-wrap: wrap; gap: 0.15rem 1rem; font-size: 0.8rem; color: var(--quiet); margin: 0.4rem 0; max-width: none; }
.legend span { white-space: nowrap; } .legend i { display: inline-block; width: 0.8em; height: 0.8em; border-radius: 2px; margin-right: 0.35em; vertical-align: -0.05em; }
.legend i.dot { width: 0.35em; height: 0.35em; border-radius: 50%; vertical-align: 0.2em; }
.says { font-size: 1.02rem; min-height: 3.2em; max-width: 76rem; margin: 0.5rem 0 0; }
.says b.waste { color: var(--waste); }
.two { display: grid; grid-template-columns: minmax(0, 1fr) minmax(0, 1fr); gap: 0 2rem; align-items: start; }
@media (max-width: 56rem) { .two { grid-template-columns: minmax(0, 1fr); } }
.banks { display: grid; grid-template-columns: 2.6rem repeat(32, minmax(0, 1fr)); gap: 1px; font-size: clamp(0.5rem, 1.8cqw, 0.66rem); line-height: 1.6; text-align: center; }
#memory { container-type: inline-size; }
.banks span { overflow: hidden; border-radius: 2px; background: var(--soft); white-space: nowrap; font-variant-numeric: tabular-nums; min-height: 1.5em; }
.banks .label { background: none; text-align: right; padding-right: 0.3rem; color: var(--quiet); overflow: visible; }
.banks .head { background: none; color: var(--quiet); overflow: visible; }
.banks .many { font-size: 0.82em; line-height: 1.95; letter-spacing: -0.03em; }
.banks .used { background: var(--kind); color: var(--on-colour); font-weight: 600; }
.banks .late { background: var(--waste); color: var(--on-colour); font-weight: 600; }
.banks .gap { grid-column: 1 / -1; background: none; min-height: 0.35rem; }
.banks.lanes-row { margin-bottom: 0.6rem; }
.sectors { display: grid; grid-template-columns: max-content repeat(4, minmax(0, 1fr)); gap: 2px 6px; font-size: 0.72rem; align-items: center; max-width: 40rem; }
.sectors .label { color: var(--quiet); text-align: right; padding-right: 0.3rem; font-variant-numeric: tabular-nums; }
.sectors .sector { display: grid; grid-template-columns: repeat(8, 1fr); gap: 1px; padding: 1px; border-radius: 3px; background: var(--soft); min-height: 1.15rem; }
.sectors .sector.touched { background: var(--rule); }
.sectors .sector i { border-radius: 1px; background: var(--waste-soft); } .sectors .sector i.used { background: var(--kind); }
.caption { font-size: 0.85rem; color: var(--quiet); margin: 0.4rem 0; }
.caption i { display: inline-block; width: 0.8em; height: 0.8em; border-radius: 2px; vertical-align: -0.05em; }
.shuffle { display: block; width: 100%; max-width: 46rem; height: auto; }
.shuffle text { fill: var(--ink); font-size: 9px; text-anchor: middle; } .shuffle line { stroke: var(--call); stroke-width: 1.2; }
.shuffle rect { fill: var(--call); opacity: 0.25; } .shuffle rect.idle { fill: var(--idle); opacity: 1; }
.arrivals { border-collapse: collapse; font-size: 0.85rem; } .arrivals td, .arrivals th { padding: 1px 0.6rem 1px 0; text-align: left; font-weight: 400; }
.arrivals th, .arrivals td { white-space: nowrap; }
.arrivals .bar { width: min(12rem, 34vw); } .arrivals .bar i { display: block; height: 0.7rem; background: var(--call); border-radius: 2px; min-width: 1px; }
.arrivals .bar div { display: flex; } .arrivals .bar i.wait { background: none; border-bottom: 2px dotted var(--wait); height: 0.4rem; border-radius: 0; min-width: 0; }
table.lanes { border-collapse: collapse; font-size: 0.82rem; font-variant-numeric: tabular-nums; } table.lanes td, table.lanes th { padding: 0 0.8rem 0 0; text-align: left; }
details { margin: 0.75rem 0; } summary { cursor: pointer; color: var(--accent); font-size: 0.9rem; }
.source { max-height: 26rem; overflow: auto; border: 1px solid var(--rule); border-radius: 6px; background: var(--soft); margin: 0.25rem 0; position: relative; }
.source h3 { margin: 0; padding: 0.3rem 0.6rem; font-size: 0.8rem; color: var(--quiet); font-weight: 600; }
.source pre { margin: 0; font-size: 0.78rem; line-height: 1.5; min-width: max-content; }
.source code { display: block; padding: 0 0.6rem; border-left: 4px solid transparent; font-family: ui-monospace, "DejaVu Sans Mono", monospace; }
.source code b { display: inline-block; width: 2.6rem; color: var(--quiet); font-weight: 400; user-select: none; }
.source code.here { background: color-mix(in srgb, var(--kind) 30%, transparent); border-left-color: var(--kind); }
.source code.other { border-left-color: var(--wait); }
@media (max-width: 34rem) {
  .banks { line-height: 1.9; grid-template-columns: 2rem repeat(32, minmax(0, 1fr)); }
  .says { min-height: 7.8em; }
}
)css";

}  // namespace stagegpt::gpu::emulation
