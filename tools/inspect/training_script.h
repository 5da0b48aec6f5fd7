// The second half of the script of an inspection's page: the tape of a training step, and the layers of a
// run. It uses what page_script.h defines.
#pragma once

namespace stagegpt {

inline constexpr const char* kTrainingScript = R"js(
// ---- The tape -----------------------------------------------------------------------------------------------
function bytesText(bytes) {
  const units = ["B", "kB", "MB", "GB", "TB"];
  let unit = 0;
  while (bytes >= 1000 && unit < 4) { bytes /= 1000; ++unit; }
  return `${unit === 0 || bytes >= 100 ? Math.round(bytes) : bytes.toPrecision(3)} ${units[unit]}`;
}
const svgElement = (tag, attributes) => {
  const element = document.createElementNS($("tape-edges").namespaceURI, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  return element;
};

// The ops in groups: one for each block, others alone.
const tapeGroups = [];
{
  let block = null;
  data.tape.nodes.forEach((node, i) => {
    const found = /^h\.(\d+)\./.exec(node.layer);
    if (found) block = `h.${found[1]}`; else if (node.layer) block = null;
    const last = tapeGroups.at(-1);
    if (block && last?.block === block) last.nodes.push(i); else tapeGroups.push({block, nodes: [i], open: !block || block === "h.0"});
  });
}
function tapeRow(columns, css) {
  const row = make("tr", css);
  columns.forEach((column, i) => {
    const cell = make(i === 1 ? "th" : "td", i > 3 ? "number" : "");
    if (i === 1) cell.scope = "row";
    cell.append(column);
    row.append(cell);
  });
  return row;
}
function bar(bytes, most) {
  const track = make("span", "memory"), fill = make("span", "bar");
  fill.style.width = `${(100 * bytes / most).toFixed(1)}%`;
  track.append(fill, make("span", "", bytesText(bytes)));
  return track;
}
function drawTape() {
  const body = $("tape-rows"), most = Math.max(...data.tape.nodes.map(n => n.in_use)), rowOf = [];
  body.replaceChildren();
  const rows = [];
  for (const group of tapeGroups) {
    const nodes = group.nodes.map(i => data.tape.nodes[i]);
    if (group.block) {
      const button = make("button", "fold", `${group.open ? "▾" : "▸"} ${group.block}`);
      button.type = "button";
      button.setAttribute("aria-expanded", group.open);
      button.addEventListener("click", () => { group.open = !group.open; drawTape(); $("tape-rows").querySelectorAll(".fold")[tapeGroups.filter(g => g.block).indexOf(group)].focus(); });
      const sum = nodes.reduce((bytes, n) => bytes + n.bytes, 0);
      if (!group.open) group.nodes.forEach(i => { rowOf[i] = rows.length; });
      rows.push(tapeRow(["", button, `${nodes.length} ops`, "", bytesText(sum), bar(nodes.at(-1).in_use, most)], "block"));
    }
    if (!group.open) continue;
    nodes.forEach((node, k) => {
      rowOf[group.nodes[k]] = rows.length;
      rows.push(tapeRow(["", node.op, node.layer, node.outputs.map(shape => `(${shape.join(", ")})`).join(" and "), bytesText(node.bytes), bar(node.in_use, most)], group.block ? "inner" : ""));
    });
  }
  body.append(...rows);
  drawEdges(body, rows, rowOf);
}
// Lines from each op to those that read its outputs, left of the rows.
function drawEdges(body, rows, rowOf) {
  const table = body.parentElement, drawing = $("tape-edges"), top = table.getBoundingClientRect().top;
  const middle = rows.map(row => { const box = row.getBoundingClientRect(); return box.top + box.height / 2 - top; });
  drawing.replaceChildren();
  drawing.setAttribute("height", table.offsetHeight);
  const seen = new Set(), x = 52;
  data.tape.nodes.forEach((node, i) => {
    for (const from of node.inputs) {
      const a = rowOf[from], b = rowOf[i], key = `${a} ${b}`;
      if (a === b || seen.has(key)) continue;
      seen.add(key);
      const away = b - a === 1 ? 0 : Math.min(46, 10 + 5 * (b - a));
      drawing.append(svgElement("path", {d: `M${x} ${middle[a]} C${x - away} ${middle[a]} ${x - away} ${middle[b]} ${x} ${middle[b]}`, class: "edge"}));
    }
  });
  [...new Set(rowOf)].forEach(row => drawing.append(svgElement("circle", {cx: x, cy: middle[row], r: 3.5, class: "op"})));
}

// ---- The layers of a run --------------------------------------------------------------------------------------
// `why` says what is wrong with a value; `middle` is the median of the blocks, or NaN where there are fewer than three.
const rare = 10;  // a block is compared with the median of the blocks: it is named where it is so many times larger or smaller
const branch = name => (v, middle) => v === null ? "" : v < 1e-3 ? `${name} adds nothing` : v < middle / rare ? `${name} adds ${Math.round(middle / v)} times less than the median block's` : "";
function whyUpdate(v, middle) {
  if (v === 0) return "not updated";
  return v > rare * middle ? `updated ${Math.round(v / middle)} times more than the median block` : "";
}
// The largest updates of layers, in all measured steps, that are more than a tenth of the weights: what they have in common is said once.
const largestUpdate = i => Math.max(...data.run.update_ratio[i].filter(v => v !== null));
const isLarge = i => largestUpdate(i) > 0.1;
function largeUpdates() {
  const large = data.run.layers.map((name, i) => i).filter(isLarge), values = large.map(largestUpdate);
  if (!large.length) return [];
  const steps = [...new Set(large.map((i, k) => data.run.steps[data.run.update_ratio[i].indexOf(values[k])]))];
  const who = large.length === data.run.layers.length ? "every layer" : large.map(i => data.run.layers[i]).join(", ");
  const percents = [...new Set([Math.min(...values), Math.max(...values)].map(v => (100 * v).toFixed(0)))].join(" to ");
  return [`${who} (changed by ${percents} % in step ${steps.join(", ")}: the learning rate may be too large)`];
}
const measures = [
  {field: "grad_norm", title: "Norm of the gradient", log: true, why: v => v === 0 ? "no gradient" : ""},
  {field: "update_ratio", title: "Update divided by weights", log: true, why: whyUpdate},
  {field: "rms", title: "Residual stream after the block, rms", log: true, why: () => ""},
  {field: "attention_added", title: "Added by attention, relative to the stream", log: true, why: branch("attention")},
  {field: "mlp_added", title: "Added by the MLP, relative to the stream", log: true, why: branch("MLP")},
  {field: "dead_units", title: "Dead units of the MLP", log: false, why: v => v >= 0.5 ? `${(100 * v).toFixed(0)} % of the units are dead` : ""},
];
const numberText = v => v === null ? "–" : v === 0 ? "0" : Math.abs(v) >= 1e-3 && Math.abs(v) < 1e4 ? Number(v.toPrecision(3)).toString() : v.toExponential(1);
const isBlock = name => name.startsWith("h.");
function layerLook(name, names) {
  const blocks = names.filter(isBlock), at = blocks.indexOf(name);
  return at < 0 ? {stroke: "var(--mark)", "stroke-dasharray": {wte: "none", wpe: "5 3"}[name] ?? "2 3"}
                : {stroke: `rgb(var(--heat) / ${(0.3 + 0.7 * (at + 1) / blocks.length).toFixed(2)})`};
}
function plotOf({field, title, log}) {
  const {steps, layers} = data.run, width = 484, height = 220, left = 58, right = 404, top = 8, bottom = 190;
  const shown = layers.map((name, i) => [name, data.run[field][i]]).filter(([, values]) => values.some(v => v !== null));
  const usable = v => v !== null, all = shown.flatMap(([, values]) => values.filter(v => v !== null && (!log || v > 0)));
  const scaled = v => log ? Math.log10(v) : v;
  let low = all.length ? Math.min(...all.map(scaled)) : 0, high = all.length ? Math.max(...all.map(scaled)) : 1;
  const zeros = log && shown.some(([, values]) => values.includes(0));  // these are drawn at the lower end
  if (log) { low = Math.floor(low) - zeros; high = Math.max(low + 1, Math.ceil(high)); } else { low = 0; high = Math.max(Math.ceil(20 * high) / 20, 0.05); }
  const x = i => steps.length < 2 ? (left + right) / 2 : left + (right - left) * (steps[i] - steps[0]) / (steps.at(-1) - steps[0]);
  const y = v => bottom - (bottom - top) * (log && v <= 0 ? 0 : (scaled(v) - low) / (high - low));
  const figure = make("figure");
  figure.setAttribute("aria-label", title);
  const drawing = svgElement("svg", {viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": `${title}, by layer, over the steps; the last values are in the table above`});
  const write = (tx, ty, anchor, words) => { const text = svgElement("text", {x: tx, y: ty, "text-anchor": anchor}); text.textContent = words; drawing.append(text); };
  figure.append(make("figcaption", "", title), drawing);
  const ticks = log ? [...Array(high - low + 1).keys()].map(i => low + i).filter((t, i, list) => i === 0 || i % Math.ceil(list.length / 6) === 0) : [0, 0.25, 0.5, 0.75, 1].map(t => t * high);
  for (const t of ticks) {
    const place = bottom - (bottom - top) * (t - low) / (high - low);
    drawing.append(svgElement("line", {x1: left, x2: right, y1: place, y2: place, class: "grid"}));
    write(left - 6, place + 4, "end", zeros && t === low ? "0" : log ? (t < -3 ? `1e${t}` : numberText(10 ** t)) : `${Number((100 * t).toFixed(2))} %`);
  }
  write(x(0), bottom + 18, "middle", String(steps[0]));
  if (steps.length > 1) write(x(steps.length - 1), bottom + 18, "middle", String(steps.at(-1)));
  write((left + right) / 2, bottom + 26, "middle", "step");
  const ends = [];
  for (const [name, values] of shown) {
    const points = values.map((v, i) => usable(v) ? `${x(i).toFixed(1)},${y(v).toFixed(1)}` : null);
    const line = svgElement("polyline", {points: points.filter(Boolean).join(" "), class: "line", ...layerLook(name, layers)});
    const label = svgElement("title", {});
    label.textContent = name;
    line.append(label);
    drawing.append(line);
    const last = values.findLastIndex(usable);
    if (last >= 0) ends.push([y(values[last]), name]);
  }
  // Names at the ends of the lines, from the top; those that have no room join the one above them.
  ends.sort((a, b) => a[0] - b[0]);
  const labels = [];
  for (const [place, name] of ends) { if (labels.length && place - labels.at(-1)[0] < 11) labels.at(-1)[1].push(name); else labels.push([place, [name]]); }
  for (const [place, names] of labels) write(right + 6, place + 4, "start", names.length > 2 ? `${names[0]}, +${names.length - 1}` : names.join(", "));
  return figure;
}
function buildRun() {
  if (!data.run) return;
  const {steps, layers} = data.run, table = $("layers"), head = make("tr");
  $("run").hidden = false;
  $("run-steps").textContent = steps.length === 1 ? `Measured at step ${steps[0]}.` : `Measured at ${steps.length} steps, ${steps[0]} to ${steps.at(-1)}; the table shows the last of them.`;
  for (const name of ["layer", ...measures.map(m => m.title)]) { const th = make("th", "", name); th.scope = "col"; head.append(th); }
  table.setAttribute("aria-label", "Layers at the last measured step");
  table.append(make("thead"), make("tbody"));
  table.tHead.append(head);
  const findings = largeUpdates();
  layers.forEach((name, i) => {
    const row = make("tr"), th = make("th", "", name), reasons = [];
    th.scope = "row";
    row.append(th);
    for (const measure of measures) {
      const value = data.run[measure.field][i].at(-1), why = measure.why(value, data.run.medians[measure.field] ?? NaN);
      if (why) reasons.push(why);
      row.append(make("td", why || (measure.field === "update_ratio" && isLarge(i)) ? "number suspicious" : "number", measure.field === "dead_units" && value !== null ? `${(100 * value).toFixed(1)} %` : numberText(value)));
    }
    if (reasons.length) findings.push(`${name} (${reasons.join(", ")})`);
    table.tBodies[0].append(row);
  });
  $("run-verdict").textContent = findings.length ? `To look at: ${findings.join("; ")}.` : "No layer is dead, and none differs much from the others.";
  $("run-verdict").className = findings.length ? "suspicious" : "";
  $("plots").append(...measures.map(plotOf));
}

if (data.tape) { drawTape(); window.addEventListener("resize", drawTape); }
buildRun();
)js";

}  // namespace stagegpt
