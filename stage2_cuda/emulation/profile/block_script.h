// The script of block.html: the chosen step, the timeline, the sentence about the step, and the source line.
// block_pictures.h draws what the step does to memory. Texts are written with textContent alone.
#pragma once

#include "stage2_cuda/emulation/profile/block_pictures.h"

namespace stagegpt::gpu::emulation {

inline constexpr const char* kBlockScript = R"js(
const threads = data.block_shape.reduce((a, b) => a * b), warps = Math.ceil(threads / 32);
const lanesOf = warp => Math.min(32, threads - 32 * warp);
const events = data.events, barriers = events.filter(e => e.kind === "barrier");
const columns = events.length ? events[events.length - 1].column + 1 : 0;
const isCut = data.events_shown < data.events_total;
// The event of a warp in a column, and the columns of the barriers.
const at = Array.from({length: warps}, () => new Map()), barrierAt = new Map();
for (const event of events) {
  if (event.kind === "barrier") barrierAt.set(event.column, event); else at[event.warp].set(event.column, event);
}
const eventAt = (column, warp) => barrierAt.get(column) ?? at[warp].get(column);
const has = (mask, lane) => (mask >>> lane & 1) === 1;
const taking = event => Array.from({length: 32}, (_, lane) => lane).filter(lane => has(event.mask, lane));
// The addresses of the lanes that take part.
const addresses = event => event.addresses ?? taking(event).map((_, i) => event.first + i * event.stride);
const colourOf = event => event.kind === "barrier" ? "--barrier" : event.kind === "warp call" ? "--call" :
  event.kind === "atomic" ? "--atomic" : `--${event.memory}-${event.kind}`;
const cost = event => event.memory === "shared" ? event.wavefronts / event.ideal_wavefronts :
  event.memory === "global" ? event.sectors / event.ideal_sectors : 1;
const isWaste = event => cost(event) > 1.1;

// ---- Words ------------------------------------------------------------------------------------------------
const plural = (n, word) => `${n.toLocaleString("en")} ${word}${n === 1 ? "" : "s"}`;
// "0 to 3, 8": numbers in ascending order.
function ranges(numbers) {
  const parts = [];
  for (let i = 0; i < numbers.length;) {
    let end = i;
    while (end + 1 < numbers.length && numbers[end + 1] === numbers[end] + 1) ++end;
    parts.push(end === i ? `${numbers[i]}` : end === i + 1 ? `${numbers[i]}, ${numbers[end]}` : `${numbers[i]} to ${numbers[end]}`);
    i = end + 1;
  }
  return parts.length > 6 ? `${parts.slice(0, 4).join(", ")} … ${parts[parts.length - 1]}` : parts.join(", ");
}
const place = event => data.places[event.place].map(l => `${l.file.split("/").pop()}:${l.line}`).join(" > ") || "an unknown line";
// "part[12]" of an address in shared memory.
function element(address) {
  const array = data.shared_arrays.find(a => address >= a.begin && address < a.begin + a.element_bytes * a.elements);
  return array ? `${array.name}[${Math.floor((address - array.begin) / array.element_bytes)}]` : `byte ${address}`;
}
const memoryName = event => event.argument ? `argument ${event.argument}` : "global memory";
const where = (event, address) => event.memory === "shared" ? element(address) : `byte ${address.toLocaleString("en")}`;

function accessWords(event) {
  const list = addresses(event), n = list.length, distinct = new Set(list).size;
  const does = {read: "read", write: "write", atomic: "add atomically to"}[event.kind];
  const what = event.memory === "shared" ? "shared memory" : `global memory (${memoryName(event)})`;
  let which = distinct === 1 ? `all the same ${event.bytes} bytes, ${where(event, list[0])}` :
    event.stride !== undefined ? `${where(event, list[0])} to ${where(event, list[n - 1])}, ${Math.abs(event.stride)} bytes apart` :
    `${distinct} places from ${where(event, Math.min(...list))} to ${where(event, Math.max(...list))}`;
  if (n === 1) which = where(event, list[0]);
  return `${plural(n, "lane")} ${n === 1 && event.kind !== "atomic" ? does + "s" : does} ${event.bytes} bytes ${n === 1 ? "" : "each "}${
    {read: "from", write: "to", atomic: "of"}[event.kind]} ${what}: ${which}. `;
}
// [text, whether it is a waste]
function costWords(event) {
  if (event.memory === "shared") {
    const phases = event.ideal_wavefronts, ways = worstWays(event);
    const base = phases === 1 ? "" : ` (lanes of ${event.bytes} bytes take ${phases})`;
    if (event.wavefronts === phases) return [`No bank conflict: ${plural(event.wavefronts, "wavefront")}${base}.`, false];
    return [`${ways}-way bank conflict: one bank is asked for ${ways} different words, so this takes ${
      plural(event.wavefronts, "wavefront")} where ${phases} would do.`, true];
  }
  const text = `${plural(event.sectors, "sector")} of 32 bytes`;
  if (event.sectors === event.ideal_sectors) return [`${text}, the least that is possible.`, false];
  return [`${text} where ${event.ideal_sectors} would do: ${Math.round(100 * event.ideal_sectors / event.sectors)} % of what is moved was asked for.`, isWaste(event)];
}
function shuffleWords(event) {
  const lanes = taking(event), from = event.from_lanes;
  const all = test => lanes.every((lane, i) => test(lane, from[i]));
  if (all((lane, source) => source === from[0])) return `all read the value of lane ${from[0]}`;
  const flip = lanes[0] ^ from[0], shift = from[0] - lanes[0];
  if (all((lane, source) => source === (lane ^ flip))) return `lane l reads the value of lane l xor ${flip}`;
  if (all((lane, source) => source === lane || source === lane + shift)) return `lane l reads the value of lane l + ${shift}`;
  return "each lane reads the value of the lane that is drawn";
}
const idleWords = event => {
  const idle = Array.from({length: lanesOf(event.warp)}, (_, lane) => lane).filter(lane => !has(event.mask, lane));
  return idle.length ? ` ${idle.length === 1 ? "Lane" : "Lanes"} ${ranges(idle)} of this warp ${idle.length === 1 ? "takes" : "take"} no part.` : "";
};
const phaseBegin = column => { let begin = 0; for (const b of barriers) if (b.column < column) begin = b.column + 1; return begin; };
const barrierAfter = column => barriers.find(b => b.column >= column);
// Events of each warp between the barrier before a column and that column.
function stepsBefore(column) {
  const begin = phaseBegin(column);
  return at.map(own => { let n = 0; for (let c = begin; c < column; ++c) n += own.has(c) ? 1 : 0; return n; });
}
// Sentences, each [text, is waste].
function words() {
  const event = eventAt(now.column, now.warp), step = `Step ${now.column + 1} of ${columns}`, warp = `warp ${now.warp}`;
  if (!event) {
    const barrier = barrierAfter(now.column);
    const busy = at.flatMap((own, warp) => own.has(now.column) ? [warp] : []);
    return [[barrier ? `${step}: ${warp} waits at the barrier in ${place(barrier)}: ${busy.length === 1 ? "warp" : "warps"} ${ranges(busy)} ${
      busy.length === 1 ? "has" : "have"} not arrived.` : `${step}: ${warp} has nothing more to do${isCut ? " in the part that is shown" : ""}.`, false]];
  }
  if (event.kind === "barrier") {
    const steps = stepsBefore(event.column), most = Math.max(...steps), least = Math.min(...steps);
    const last = steps.flatMap((n, warp) => n === most ? [warp] : []);
    return [[`${step}, ${event.call} in ${place(event)}: all ${threads} threads have arrived. ${most === least ?
      `Each warp did ${plural(most, "step")} since the barrier before.` :
      `${last.length === 1 ? "Warp" : "Warps"} ${ranges(last)} did the most since the barrier before, ${plural(most, "step")}; others did as few as ${least} and wait.`
      } From here on, every thread may read what any of them has written.`, false]];
  }
  if (event.kind === "warp call") {
    const rest = event.from_lanes ? `: ${shuffleWords(event)}. No memory is touched.` :
      event.call === "__syncwarp" ? ": the lanes wait for each other, and see each other's writes." : ": a call of all its lanes together.";
    return [[`${step}, ${warp}, ${place(event)}: ${event.call} of ${plural(taking(event).length, "lane")}${rest}${idleWords(event)}`, false]];
  }
  return [[`${step}, ${warp}, ${place(event)}: ${accessWords(event)}`, false], costWords(event), [idleWords(event), false]];
}

// ---- What is chosen ---------------------------------------------------------------------------------------
const now = {column: 0, warp: 0};
function choose(column, warp = now.warp) {
  now.column = Math.max(0, Math.min(columns - 1, column));
  now.warp = Math.max(0, Math.min(warps - 1, warp));
  show();
}
const nextBarrier = () => choose(barriers.find(b => b.column > now.column)?.column ?? columns - 1);
const lastBarrier = () => choose(barriers.findLast(b => b.column < now.column)?.column ?? 0);
function nextWaste() {
  const wasteful = events.filter(e => e.memory && isWaste(e));
  const later = wasteful.find(e => e.column > now.column || e.column === now.column && e.warp > now.warp) ?? wasteful[0];
  if (later) choose(later.column, later.warp);
}

// ---- The timeline -----------------------------------------------------------------------------------------
const canvas = $("drawn"), context = canvas.getContext("2d");
const layout = {gutter: 58, head: 20, gap: 3, width: 14, left: 0, tops: [], heights: []};
function measure() {
  const thin = warps === 1 ? 8 : Math.max(1, Math.min(4, Math.floor(200 / (32 * (warps - 1)))));
  let top = layout.head;
  for (let warp = 0; warp < warps; ++warp) {
    layout.heights[warp] = warp === now.warp ? 8 : thin;
    layout.tops[warp] = top;
    top += lanesOf(warp) * layout.heights[warp] + layout.gap;
  }
  layout.bottom = top;
  const width = canvas.parentElement.clientWidth, ratio = window.devicePixelRatio || 1;
  layout.width = Math.max(14, Math.min(26, Math.floor((width - layout.gutter) / Math.max(1, columns))));
  layout.visible = Math.max(1, Math.floor((width - layout.gutter) / layout.width));
  const margin = Math.min(4, Math.floor(layout.visible / 4));
  if (now.column < layout.left + margin) layout.left = now.column - margin;
  if (now.column >= layout.left + layout.visible - margin) layout.left = now.column - layout.visible + margin + 1;
  layout.left = Math.max(0, Math.min(layout.left, columns - layout.visible));
  canvas.width = width * ratio;
  canvas.height = layout.bottom * ratio;
  canvas.style.height = `${layout.bottom}px`;
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
}
function draw() {
  measure();
  const style = getComputedStyle(document.documentElement), colour = name => style.getPropertyValue(name);
  const x = column => layout.gutter + (column - layout.left) * layout.width, w = layout.width;
  context.clearRect(0, 0, canvas.width, canvas.height);
  context.font = "11px system-ui, sans-serif";
  context.textBaseline = "middle";
  const end = Math.min(columns, layout.left + layout.visible);
  for (let warp = 0; warp < warps; ++warp) {
    const top = layout.tops[warp], h = layout.heights[warp], lanes = lanesOf(warp), height = lanes * h;
    context.fillStyle = colour(warp === now.warp ? "--ink" : "--quiet");
    if (warp === now.warp || height >= 10) context.fillText(`warp ${warp}`, 6, top + Math.min(height / 2, 60));
    for (let column = layout.left; column < end; ++column) {
      if (barrierAt.has(column)) continue;
      const event = at[warp].get(column);
      if (!event) {
        if (!barrierAfter(column)) continue;
        context.fillStyle = colour("--wait");
        context.fillRect(x(column) + w / 2 - 1, top + height / 2 - 1, 2, 2);
        continue;
      }
      const fill = colour(colourOf(event)), idle = colour("--idle");
      for (let lane = 0; lane < lanes; ++lane) {
        context.fillStyle = has(event.mask, lane) ? fill : idle;
        context.fillRect(x(column) + 1, top + lane * h, w - 2, h > 3 ? h - 1 : h);
      }
      if (event.memory && isWaste(event)) {
        context.fillStyle = colour("--waste");
        context.fillRect(x(column) + 1, top + height - 1, w - 2, warp === now.warp ? 4 : 3);
      }
    }
  }
  let begin = layout.left;
  for (let column = layout.left; column <= end; ++column) {
    const isBarrier = barrierAt.has(column) && column < end;
    if (isBarrier) {
      context.fillStyle = colour("--barrier");
      context.fillRect(x(column) + w / 2 - 2, layout.head - 4, 4, layout.bottom - layout.head + 2);
    }
    if (isBarrier || column === end) {
      const number = barriers.filter(b => b.column < column).length + 1, label = `part ${number}`;
      if ((column - begin) * w > context.measureText(label).width + 6) {
        context.fillStyle = colour("--quiet");
        context.fillText(label, x(begin) + 3, 9);
      }
      begin = column + 1;
    }
  }
  const rows = barrierAt.has(now.column) ? [layout.head - 5, layout.bottom - layout.head + 4] :
    [layout.tops[now.warp] - 2, lanesOf(now.warp) * layout.heights[now.warp] + 3];
  for (const [line, width] of [["--paper", 5], ["--ink", 2.5]]) {
    context.strokeStyle = colour(line);
    context.lineWidth = width;
    context.strokeRect(x(now.column), rows[0], w, rows[1]);
  }
  context.fillStyle = colour("--accent");
  context.beginPath();
  context.moveTo(x(now.column) + w / 2 - 5, 0); context.lineTo(x(now.column) + w / 2 + 5, 0); context.lineTo(x(now.column) + w / 2, 8);
  context.fill();
}

// ---- The source -------------------------------------------------------------------------------------------
const codes = new Map();  // by "file:line"
for (const excerpt of data.source) {
  const heading = document.createElement("h3"), pre = document.createElement("pre");
  heading.textContent = excerpt.file === "?" ? "unknown" : excerpt.file;
  excerpt.lines.forEach((text, i) => {
    const code = document.createElement("code"), number = document.createElement("b");
    number.textContent = excerpt.first + i;
    code.append(number, text || " ");
    codes.set(`${excerpt.file}:${excerpt.first + i}`, code);
    pre.append(code);
  });
  $("source").append(heading, pre);
}
function showSource(event) {
  for (const code of codes.values()) code.className = "";
  const of = e => data.places[e.place].map(line => codes.get(`${line.file}:${line.line}`)).filter(code => code);
  at.forEach(own => { const other = own.get(now.column); if (other) of(other).forEach(code => code.className = "other"); });
  const shown = event ?? barrierAfter(now.column);
  if (!shown) return;
  const here = of(shown);
  here.forEach(code => code.className = "here");
  if (here.length) {
    const box = $("source"), first = here[0].getBoundingClientRect(), frame = box.getBoundingClientRect();
    if (first.top < frame.top + 20 || first.bottom > frame.bottom - 20) {
      box.scrollTop += first.top - frame.top - box.clientHeight / 2;
    }
  }
}

// ---- All together -----------------------------------------------------------------------------------------
function show() {
  const event = eventAt(now.column, now.warp);
  document.documentElement.style.setProperty("--kind", `var(${event ? colourOf(event) : "--wait"})`);
  draw();
  $("says").replaceChildren(...words().map(([text, waste]) => {
    if (!waste) return document.createTextNode(text);
    const strong = document.createElement("b");
    strong.className = "waste";
    strong.textContent = text;
    return strong;
  }));
  showMemory(event);
  showSource(event);
  $("slider").value = now.column;
  $("slider").setAttribute("aria-valuetext", `step ${now.column + 1} of ${columns}`);
  $("warp").value = now.warp;
  $("back").disabled = $("back-barrier").disabled = now.column === 0;
  $("on").disabled = $("on-barrier").disabled = now.column === columns - 1;
}
)js";

}  // namespace stagegpt::gpu::emulation
