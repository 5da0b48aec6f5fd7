// The script of an inspection's page. It reads the numbers from the element "data" (page.cpp), draws the
// maps, and writes texts of the prompt with textContent alone.
#pragma once

namespace stagegpt {

inline constexpr const char* kInspectionScript = R"js(
const T = data.tokens.length, L = data.layers, H = data.heads, triangle = T * (T + 1) / 2;
const roots = Uint8Array.from(atob(data.attention), c => c.charCodeAt(0));

// The square root of the attention of query q to key k, 0 to 1: what is drawn.
const root = (l, h, q, k) => k > q ? 0 : roots[(l * H + h) * triangle + q * (q + 1) / 2 + k] / 255;
const attention = (l, h, q, k) => root(l, h, q, k) ** 2;
const percent = p => p >= 0.9995 ? "100 %" : p >= 0.0995 ? (100 * p).toFixed(1) + " %" : (100 * p).toFixed(2) + " %";

// ---- Texts of tokens ------------------------------------------------------------------------------------
const signs = {" ": "·", "\n": "↵", "\t": "⇥", "\r": "␍"};
const names = {" ": "space", "\n": "line break", "\t": "tab", "\r": "carriage return", "": "nothing"};
const spoken = text => names[text] ?? text.replace(/\s+/g, " ");
// Appends a token with its white space made visible.
function show(element, text) {
  element.replaceChildren();
  for (const part of text.split(/([ \n\t\r\u0000-\u001f\u007f])/)) {
    if (!part) continue;
    if (part.length > 1 || part > " " && part !== "\u007f") { element.append(part); continue; }
    const sign = document.createElement("span");
    sign.className = "space";
    sign.textContent = signs[part] ?? "�";
    element.append(sign);
  }
  if (!text) element.append("∅");
  return element;
}
// From this strength on, the other colour of letters has the better contrast.
const darkScheme = window.matchMedia("(prefers-color-scheme: dark)"), turn = () => darkScheme.matches ? 0.61 : 0.76;
function paint(element, strength) {
  element.style.background = `rgb(var(--heat) / ${strength.toFixed(3)})`;
  element.style.color = strength > turn() ? "var(--on-heat)" : "";
}

// ---- What is chosen ---------------------------------------------------------------------------------------
const chosen = {layer: 0, head: 0, position: Math.max(0, T - 2), lens: L};
{
  let best = -1;
  data.patterns.forEach((p, i) => {
    if (p && p[0] > best) { best = p[0]; chosen.layer = Math.floor(i / H); chosen.head = i % H; }
  });
}

// Moves a choice in a grid with the arrow keys, Home and End. `at()` is [row, column], `go(row, column)`
// chooses; row and column are kept inside.
function arrows(element, rows, columns, at, go) {
  element.addEventListener("keydown", event => {
    let [row, column] = at();
    switch (event.key) {
      case "ArrowLeft": --column; break;
      case "ArrowRight": ++column; break;
      case "ArrowUp": if (rows === 1) --column; else --row; break;
      case "ArrowDown": if (rows === 1) ++column; else ++row; break;
      case "Home": column = 0; break;
      case "End": column = columns - 1; break;
      default: return;
    }
    event.preventDefault();
    go(Math.min(rows - 1, Math.max(0, row)), Math.min(columns - 1, Math.max(0, column)));
  });
}
// One of several: it alone is reached with Tab.
function mark(elements, index, attribute) {
  elements.forEach((element, i) => {
    element.setAttribute(attribute, i === index);
    element.tabIndex = i === index ? 0 : -1;
  });
}

// ---- Attention --------------------------------------------------------------------------------------------
const heatColour = () => getComputedStyle(document.documentElement).getPropertyValue("--heat").trim().split(/\s+/).map(Number);
function pixels(l, h) {
  const image = new ImageData(T, T), [red, green, blue] = heatColour();
  for (let q = 0; q < T; ++q) {
    for (let k = 0; k <= q; ++k) image.data.set([red, green, blue, 255 * root(l, h, q, k)], 4 * (q * T + k));
  }
  return image;
}
function patternOf(l, h) {
  const p = data.patterns[l * H + h];
  if (!p) return "";
  const [previous, self, first, spread] = p;
  if (previous >= 0.5) return "previous token";
  if (self >= 0.5) return "the token itself";
  if (first >= 0.5) return "first token";
  return spread >= 0.9 ? "spread evenly" : "";
}

const thumbnails = [];
function buildHeads() {
  const grid = $("heads");
  grid.style.gridTemplateColumns = `auto repeat(${H}, minmax(22px, 5.5rem))`;
  grid.append(make("span"));
  for (let h = 0; h < H; ++h) grid.append(make("span", "", String(h)));
  for (let l = 0; l < L; ++l) {
    grid.append(make("span", "layer", `h.${l}`));
    for (let h = 0; h < H; ++h) {
      const button = make("button"), canvas = make("canvas"), pattern = patternOf(l, h);
      canvas.width = canvas.height = T;
      button.type = "button";
      button.setAttribute("role", "radio");
      button.setAttribute("aria-label", `layer ${l}, head ${h}` + (pattern ? `: ${pattern}` : ""));
      button.title = `layer ${l}, head ${h}` + (pattern ? `: ${pattern}` : "");
      button.append(canvas);
      button.addEventListener("click", () => chooseHead(l, h));
      grid.append(button);
      thumbnails.push(button);
    }
  }
  arrows(grid, L, H, () => [chosen.layer, chosen.head], (l, h) => { chooseHead(l, h); thumbnails[l * H + h].focus(); });
}
function drawThumbnails() {
  thumbnails.forEach((button, i) => {
    button.firstChild.getContext("2d").putImageData(pixels(Math.floor(i / H), i % H), 0, 0);
  });
}

// The size of the map in CSS pixels: of its letters (0: no room for them), its margin and its cells.
function measureMap() {
  const width = $("map").parentElement.clientWidth - 2;
  const longest = Math.max(...data.tokens.map(t => [...t].length));
  const letters = Math.min(13, 0.8 * width / (T + 1)), margin = letters < 8 ? 0 : Math.min(0.3 * width, (longest * 0.62 + 1) * letters);
  return {width, letters: letters < 8 ? 0 : letters, margin, cell: (width - margin) / T};
}
let mapSize;
function drawMap() {
  mapSize = measureMap();
  const {width, letters, margin, cell} = mapSize, canvas = $("map"), scale = window.devicePixelRatio || 1;
  canvas.width = canvas.height = Math.round(width * scale);
  canvas.style.height = `${width}px`;
  const pen = canvas.getContext("2d"), style = getComputedStyle(document.documentElement);
  pen.setTransform(scale, 0, 0, scale, 0, 0);
  pen.clearRect(0, 0, width, width);
  const small = new OffscreenCanvas(T, T);
  small.getContext("2d").putImageData(pixels(chosen.layer, chosen.head), 0, 0);
  pen.imageSmoothingEnabled = false;
  pen.drawImage(small, margin, 0, width - margin, width - margin);
  pen.strokeStyle = style.getPropertyValue("--mark");
  pen.lineWidth = Math.max(1, Math.min(2, cell / 3));
  pen.strokeRect(margin + 1, Math.max(1, chosen.position * cell), width - margin - 2, Math.max(2, cell - 1));
  if (!letters) return;
  pen.font = `${letters}px system-ui, sans-serif`;
  pen.textAlign = "right";
  pen.textBaseline = "middle";
  const word = t => [...data.tokens[t]].map(c => signs[c] ?? c).join("");
  for (let t = 0; t < T; ++t) {
    const middle = (t + 0.5) * cell;
    pen.fillStyle = style.getPropertyValue(t === chosen.position ? "--mark" : "--quiet");
    pen.fillText(word(t), margin - 0.4 * letters, middle, margin - 0.5 * letters);
    pen.save();
    pen.fillStyle = style.getPropertyValue("--quiet");
    pen.translate(margin + middle, width - margin + 0.4 * letters);
    pen.rotate(-Math.PI / 2);
    pen.fillText(word(t), 0, 0, margin - 0.5 * letters);
    pen.restore();
  }
}
function cellAt(event) {
  const box = $("map").getBoundingClientRect();
  const k = Math.floor((event.clientX - box.left - mapSize.margin) / mapSize.cell), q = Math.floor((event.clientY - box.top) / mapSize.cell);
  return q >= 0 && q < T && k >= 0 && k < T ? [q, k] : null;
}
function read(event) {
  const cell = cellAt(event);
  const reading = $("reading");
  reading.replaceChildren();
  if (!cell || cell[1] > cell[0]) { reading.textContent = cell ? "a token sees no later one" : ""; return; }
  const [q, k] = cell;
  reading.append(show(make("strong", "token"), data.tokens[q]), ` (${q}) → `, show(make("strong", "token"), data.tokens[k]), ` (${k}): ${percent(attention(chosen.layer, chosen.head, q, k))}`);
}

const words = [];
function buildWords() {
  data.tokens.forEach((text, t) => {
    const word = show(make("button", "word"), text);
    word.type = "button";
    word.setAttribute("role", "radio");
    word.addEventListener("click", () => choosePosition(t));
    words.push(word);
    $("words").append(word);
  });
  if (T > 60) $("words").classList.add("small");
  arrows($("words"), 1, T, () => [0, chosen.position], (row, t) => { choosePosition(t); words[t].focus(); });
}

// A list of tokens with bars: rows of [text, probability, label].
function ranking(element, rows) {
  element.replaceChildren(...rows.map(([text, p, label]) => {
    const item = make("li"), track = make("span"), bar = make("span", "bar");
    bar.style.display = "block";
    bar.style.width = `${(100 * p).toFixed(2)}%`;
    track.append(bar);
    const name = text === null ? make("span") : show(make("span", "token"), text);
    if (label) name.append(make("span", "note", text === null ? label : ` ${label}`));
    item.append(name, track, make("span", "", percent(p)));
    return item;
  }));
}
function showAttention() {
  const {layer, head, position} = chosen, pattern = patternOf(layer, head), p = data.patterns[layer * H + head];
  $("chosen").textContent = `Layer ${layer}, head ${head}`;
  $("pattern").textContent = pattern ? ` mostly ${pattern}` : "";
  $("means").textContent = p ? `On average ${percent(p[0])} to the token before, ${percent(p[1])} to the token itself, ${percent(p[2])} to the first one; spread ${p[3].toFixed(2)} of 1.` : "";
  mark(thumbnails, layer * H + head, "aria-checked");
  words.forEach((word, k) => {
    word.classList.toggle("later", k > position);
    if (k > position) { word.style.background = ""; word.style.color = ""; } else paint(word, root(layer, head, position, k));
    word.setAttribute("aria-label", `token ${k}, ${spoken(data.tokens[k])}` + (k <= position ? `, gets ${percent(attention(layer, head, position, k))}` : ""));
  });
  mark(words, position, "aria-checked");
  show($("query"), data.tokens[position]);
  const keys = [...Array(position + 1).keys()].map(k => [k, attention(layer, head, position, k)]).sort((a, b) => b[1] - a[1]).slice(0, 6);
  ranking($("keys"), keys.map(([k, p]) => [data.tokens[k], p, position === k ? "itself" : position === k + 1 ? "the one before" : `token ${k}`]));
  $("map").setAttribute("aria-label", `Attention of layer ${layer}, head ${head}: rows are the reading tokens, columns the tokens that are read.` + (pattern ? ` Mostly ${pattern}.` : ""));
  drawMap();
}

// ---- Logit lens ---------------------------------------------------------------------------------------------
const cells = [];
const stage = l => l === 0 ? "embedding" : `after h.${l - 1}`;
function buildLens() {
  const table = $("lens"), head = make("thead"), body = make("tbody"), foot = make("tfoot");
  const line = (part, name, text) => {
    const row = make("tr");
    row.append(make("th", "", name));
    for (let t = 0; t < T; ++t) row.append(show(make("th", "column"), text(t)));
    row.querySelectorAll("th").forEach((th, i) => { th.scope = i ? "col" : "row"; });
    part.append(row);
  };
  line(head, "reads", t => data.tokens[t]);
  for (let l = 0; l <= L; ++l) {
    const row = make("tr"), name = make("th", "", stage(l));
    name.scope = "row";
    row.append(name);
    for (let t = 0; t < T; ++t) {
      const top = data.lens[l][t], cell = show(make("td"), data.strings[top[0]]);
      const next = data.next[l][t];
      if (next && next[1] === 1) cell.classList.add("right");
      cell.setAttribute("role", "gridcell");
      cell.title = `${percent(top[1])}`;
      cell.setAttribute("aria-label", `${spoken(data.strings[top[0]])}, ${percent(top[1])}`);
      cell.addEventListener("click", () => { chosen.lens = l; choosePosition(t); });
      row.append(cell);
      cells.push(cell);
    }
    body.append(row);
  }
  line(foot, "text goes on", t => t + 1 < T ? data.tokens[t + 1] : " ");
  table.append(head, body, foot);
  paintLens();
  arrows(table, L + 1, T, () => [chosen.lens, chosen.position], (l, t) => {
    chosen.lens = l;
    choosePosition(t);
    cells[l * T + t].focus();
  });
}
function paintLens() { cells.forEach((cell, i) => paint(cell, Math.sqrt(data.lens[Math.floor(i / T)][i % T][1]))); }
// Scrolls the table, not the page, to the chosen column.
function scrollToCell() {
  const view = $("lens").parentElement, cell = cells[chosen.lens * T + chosen.position];
  const first = cell.closest("tr").firstChild.offsetWidth;
  if (cell.offsetLeft - view.scrollLeft < first) view.scrollLeft = cell.offsetLeft - first - 8;
  const over = cell.offsetLeft + cell.offsetWidth - view.scrollLeft - view.clientWidth;
  if (over > 0) view.scrollLeft += over + 8;
}
function showLens() {
  const {lens, position} = chosen, top = data.lens[lens][position], next = data.next[lens][position];
  mark(cells, lens * T + position, "aria-selected");
  document.querySelectorAll("#lens .column").forEach((th, i) => th.classList.toggle("here", i % T === position));
  scrollToCell();
  $("lens-where").textContent = stage(lens);
  show($("lens-token"), data.tokens[position]);
  const rows = [];
  for (let i = 0; i < top.length; i += 2) rows.push([data.strings[top[i]], top[i + 1]]);
  ranking($("lens-top"), rows);
  const follows = $("lens-next");
  follows.replaceChildren();
  $("lens-layers").replaceChildren();
  if (!next) { follows.textContent = "The text ends here."; return; }
  follows.append("The text goes on with ", show(make("strong", "token"), data.tokens[position + 1]), ". Its probability, and its rank among all tokens, layer by layer:");
  ranking($("lens-layers"), data.next.map((all, l) => [null, all[position][0], `${stage(l)}: rank ${all[position][1]}`]));
}

// ---- What each layer adds -------------------------------------------------------------------------------------
function buildAdded() {
  const table = $("added"), head = make("tr"), most = Math.max(...data.added.flat(), 1e-9), nothing = [];
  for (const name of ["layer", "attention", "MLP"]) { const th = make("th", "", name); th.scope = "col"; head.append(th); }
  table.append(make("thead"), make("tbody"));
  table.tHead.append(head);
  data.added.forEach((values, l) => {
    const row = make("tr"), th = make("th", "", `h.${l}`);
    th.scope = "row";
    row.append(th);
    values.forEach((value, i) => {
      const cell = make("td", value < 1e-3 ? "suspicious" : ""), track = make("span", "track"), bar = make("span", "bar");
      bar.style.width = `${(100 * value / most).toFixed(1)}%`;
      track.append(bar);
      cell.append(make("span", "value", value === 0 ? "0" : String(Number(value.toPrecision(3)))), track);
      row.append(cell);
      if (value < 1e-3) nothing.push(`the ${i ? "MLP" : "attention"} of h.${l} adds nothing`);
    });
    table.tBodies[0].append(row);
  });
  const list = nothing.join(", ");
  $("added-verdict").textContent = list ? `To look at: ${list}.` : "";
  $("added-verdict").className = list ? "suspicious" : "";
}

// ---- Together -------------------------------------------------------------------------------------------------
function chooseHead(l, h) { chosen.layer = l; chosen.head = h; showAttention(); }
function choosePosition(t) { chosen.position = t; showAttention(); showLens(); }

buildHeads();
buildWords();
buildLens();
buildAdded();
drawThumbnails();
showAttention();
showLens();
$("map").addEventListener("pointermove", read);
$("map").addEventListener("click", event => { const cell = cellAt(event); if (cell) choosePosition(cell[0]); read(event); });
window.addEventListener("resize", () => { drawMap(); scrollToCell(); });
darkScheme.addEventListener("change", () => { drawThumbnails(); showAttention(); paintLens(); });
)js";

}  // namespace stagegpt
