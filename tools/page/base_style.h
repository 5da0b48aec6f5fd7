// The style sheet of all pages: colours, letters, and what every page has. It refers to no other file.
#pragma once

namespace stagegpt {

inline constexpr const char* kBaseStyle = R"css(
:root {
  color-scheme: light dark;
  --paper: #ffffff; --ink: #1d2126; --quiet: #5b6570; --rule: #d9dee3; --soft: #f4f6f8; --accent: #0068b5;
  --good: #1a7f37; --good-soft: #edf8f0; --bad: #b3261e; --bad-soft: #fdf0ee;
}
@media screen and (prefers-color-scheme: dark) {
  :root {
    --paper: #14171a; --ink: #e6e9ec; --quiet: #9aa4ae; --rule: #2f363d; --soft: #1c2025; --accent: #58b0ff;
    --good: #57c878; --good-soft: #13241a; --bad: #ff8a7a; --bad-soft: #2c1917;
  }
}
* { box-sizing: border-box; }
html { -webkit-text-size-adjust: 100%; }
body {
  margin: 0; background: var(--paper); color: var(--ink);
  font: 16px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", sans-serif;
}
main, header, footer { max-width: 68rem; margin: 0 auto; padding: 0 1.25rem; }
header { padding-top: 2.5rem; }
h1 { font-size: 1.75rem; line-height: 1.2; margin: 0; letter-spacing: -0.01em; text-wrap: balance; }
h2 { font-size: 1.2rem; margin: 2.75rem 0 0.75rem; padding-top: 1.25rem; border-top: 1px solid var(--rule); }
h3 { font-size: 1rem; margin: 1.5rem 0 0.5rem; }
p { margin: 0.6rem 0; max-width: 46rem; }
.byline, .note, .unit, footer { color: var(--quiet); font-size: 0.9rem; }
.byline { margin: 0.4rem 0 0; }
/* A shadow at the right edge says that there is more; at the end, what scrolls with the table covers it. */
.scroll {
  overflow-x: auto; margin: 0.75rem 0;
  background: linear-gradient(to left, var(--paper) 40%, transparent) right / 2.5rem 100% no-repeat local,
    linear-gradient(to left, var(--rule), transparent) right / 0.75rem 100% no-repeat;
}
.scroll:focus-visible { outline: 2px solid var(--accent); outline-offset: 2px; }
figure { margin: 0; min-width: 0; }
figcaption { font-weight: 600; font-size: 0.95rem; margin-bottom: 0.5rem; }
footer { padding-top: 2rem; padding-bottom: 3rem; }
@media (max-width: 34rem) {
  header { padding-top: 1.5rem; }
  h1 { font-size: 1.45rem; }
  main, header, footer { padding-left: 1rem; padding-right: 1rem; }
}
@media print {
  :root {
    --ink: #000000; --quiet: #444444; --rule: #cccccc; --soft: #f5f5f5; --good-soft: #ffffff; --bad-soft: #ffffff;
  }
  body { font-size: 10.5pt; }
  * { print-color-adjust: exact; -webkit-print-color-adjust: exact; }
  h2, h3, figcaption { break-after: avoid; }
}
)css";

}  // namespace stagegpt
