// The second part of the script of block.html (block_script.h): the banks, sectors and lanes of a step, and
// how the page is operated.
#pragma once

namespace stagegpt::gpu::emulation {

inline constexpr const char* kBlockPictures = R"js(
// ---- Shared memory: 32 banks ------------------------------------------------------------------------------
// Lanes of 8 bytes are served in two phases of 16 lanes, of 16 bytes in four of 8. For each phase, the distinct
// words of each bank with the lanes that ask for them: row k of the picture has the k-th word of every bank.
function phasesOf(event) {
  const lanes = taking(event), list = addresses(event), size = event.bytes <= 4 ? 32 : event.bytes <= 8 ? 16 : 8;
  const phases = [];
  for (let begin = 0; begin < 32; begin += size) {
    const banks = Array.from({length: 32}, () => new Map());
    lanes.forEach((lane, i) => {
      if (lane < begin || lane >= begin + size) return;
      for (let word = Math.floor(list[i] / 4); 4 * word < list[i] + event.bytes; ++word) {
        const words = banks[word % 32];
        if (!words.has(word)) words.set(word, []);
        words.get(word).push(lane);
      }
    });
    const rows = Math.max(...banks.map(words => words.size));
    if (rows > 0) phases.push({begin, end: begin + size - 1, rows, banks});
  }
  return phases;
}
const worstWays = event => Math.max(...phasesOf(event).map(phase => phase.rows));
function drawBanks(event) {
  const grid = make("div", "banks"), phases = phasesOf(event);
  grid.setAttribute("aria-hidden", "true");
  const narrow = $("memory").clientWidth < 480;
  grid.append(make("span", "label", "bank"));
  for (let bank = 0; bank < 32; ++bank) grid.append(make("span", "head", narrow && bank % 4 ? "" : bank));
  let wavefront = 0;
  for (const phase of phases) {
    if (wavefront) grid.append(make("span", "gap"));
    for (let row = 0; row < phase.rows; ++row) {
      grid.append(make("span", "label", ++wavefront));
      for (const words of phase.banks) {
        const [word, lanes] = [...words][row] ?? [];
        const shared = lanes?.length > 1, css = lanes ? (row ? "late" : "used") + (shared ? " many" : "") : "";
        const cell = make("span", css, shared ? (narrow ? "×" : `×${lanes.length}`) : lanes?.[0]);
        if (lanes) cell.title = `word ${word}, ${element(4 * word)}: ${lanes.length > 1 ? "lanes" : "lane"} ${ranges(lanes)}`;
        grid.append(cell);
      }
    }
  }
  const caption = make("p", "caption", `Each column is a bank, each row a wavefront; in a cell, the lane that ${
    event.kind === "read" ? "reads" : "writes"} the word (×n: n lanes share it). ` + (phases.length > 1 ?
    `Lanes of ${event.bytes} bytes are served in ${phases.length} groups, of ${phases[0].end - phases[0].begin + 1} lanes each. ` : ""));
  return [caption, grid];
}

// ---- Global memory: sectors -------------------------------------------------------------------------------
function drawSectors(event) {
  const origin = data.arguments.find(a => a.argument === event.argument)?.in_line ?? 0;
  const lines = new Map();  // number of the line of 128 bytes -> bytes asked for, by word
  addresses(event).forEach(address => {
    for (let byte = address; byte < address + event.bytes; ++byte) {
      const line = Math.floor((byte + origin) / 128);
      if (!lines.has(line)) lines.set(line, new Set());
      lines.get(line).add(Math.floor((byte + origin) / 4));
    }
  });
  const grid = make("div", "sectors"), sorted = [...lines.keys()].sort((a, b) => a - b);
  grid.setAttribute("aria-hidden", "true");
  let before = null;
  for (const line of sorted.slice(0, 40)) {
    if (before !== null && line !== before + 1) { const gap = make("span", "label", "⋮"); gap.style.gridColumn = "1"; grid.append(gap); for (let i = 0; i < 4; ++i) grid.append(make("span")); }
    before = line;
    grid.append(make("span", "label", (128 * line - origin).toLocaleString("en")));
    for (let sector = 4 * line; sector < 4 * line + 4; ++sector) {
      const words = Array.from({length: 8}, (_, i) => 8 * sector + i), used = word => lines.get(line).has(word);
      const touched = words.some(used), box = make("span", touched ? "sector touched" : "sector");
      if (touched) for (const word of words) box.append(make("i", used(word) ? "used" : ""));
      grid.append(box);
    }
  }
  const caption = make("p", "caption");
  const key = css => { const i = make("i"); i.style.background = css; return i; };
  caption.append(`${memoryName(event)}, by byte: each row is a line of 128 bytes, of four sectors. `, key("var(--kind)"), " asked for; ",
    key("var(--waste-soft)"), " moved, but asked for by no lane.", sorted.length > 40 ? ` The first 40 of ${sorted.length} lines.` : "");
  return [caption, grid];
}

// ---- Lanes, shuffles, barriers ----------------------------------------------------------------------------
function drawLanes(event) {
  const row = make("div", "banks lanes-row");
  row.setAttribute("aria-hidden", "true");
  row.append(make("span", "label", "lane"));
  const narrow = $("memory").clientWidth < 480;
  for (let lane = 0; lane < 32; ++lane) {
    const cell = make("span", has(event.mask, lane) ? "used" : "", narrow && lane % 4 ? "" : lane);
    cell.style.visibility = lane < lanesOf(now.warp) ? "" : "hidden";
    row.append(cell);
  }
  return row;
}
const svg = (tag, values, text) => {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(values)) element.setAttribute(name, value);
  if (text !== undefined) element.textContent = text;
  return element;
};
function drawShuffle(event) {
  const picture = svg("svg", {viewBox: "0 0 640 110", class: "shuffle", "aria-hidden": "true"}), x = lane => 10 + 20 * lane;
  for (let lane = 0; lane < lanesOf(event.warp); ++lane) {
    for (const y of [0, 92]) {
      picture.append(svg("rect", {x: x(lane) - 9, y, width: 18, height: 18, rx: 3, class: has(event.mask, lane) ? "" : "idle"}),
        svg("text", {x: x(lane), y: y + 12}, lane));
    }
  }
  taking(event).forEach((lane, i) => picture.append(svg("line", {x1: x(event.from_lanes[i]), y1: 19, x2: x(lane), y2: 91})));
  return [make("p", "caption", "Above, the lanes with their values; below, the lanes that get them."), picture];
}
function drawArrivals(barrier) {
  const steps = stepsBefore(barrier.column), most = Math.max(1, ...steps), table = make("table", "arrivals");
  steps.forEach((n, warp) => {
    const row = make("tr"), head = make("th", "", `warp ${warp}`), bar = make("td", "bar"), box = make("div"), done = make("i"), wait = make("i", "wait");
    done.style.width = `${100 * n / most}%`;
    wait.style.width = `${100 - 100 * n / most}%`;
    box.append(done, wait);
    bar.append(box);
    head.scope = "row";
    row.append(head, bar, make("td", "", `${plural(n, "step")}${n < most ? ", waits" : ""}`));
    table.append(row);
  });
  return [make("p", "caption", "Steps of each warp since the barrier before, and who waits for whom."), table];
}
function laneRows(event) {
  const lanes = taking(event);
  if (event.from_lanes) return lanes.map((lane, i) => [lane, `reads from lane ${event.from_lanes[i]}`]);
  if (!event.memory) return lanes.map(lane => [lane, "takes part"]);
  const list = addresses(event), origin = data.arguments.find(a => a.argument === event.argument)?.in_line ?? 0;
  return lanes.map((lane, i) => event.memory === "shared" ?
    [lane, `${element(list[i])}, word ${Math.floor(list[i] / 4)}, bank ${Math.floor(list[i] / 4) % 32}`] :
    [lane, `byte ${list[i]} of ${memoryName(event)}, sector ${Math.floor((list[i] + origin) / 32)}`]);
}
function showMemory(event) {
  const rows = event && event.kind !== "barrier" ? laneRows(event) : [];
  $("lanes").replaceChildren(...rows.map(([lane, text]) => {
    const row = make("tr"), head = make("th", "", `lane ${lane}`);
    head.scope = "row";
    row.append(head, make("td", "", text));
    return row;
  }));
  $("lanes").closest("details").hidden = rows.length === 0;
  const title = $("memory-title"), box = $("memory");
  if (!event || event.kind === "barrier") {
    const barrier = event ?? barrierAfter(now.column);
    title.textContent = barrier ? "Who waits at the barrier" : "Nothing more to do";
    return box.replaceChildren(...barrier ? drawArrivals(barrier) : []);
  }
  title.textContent = event.memory === "shared" ? "The banks of shared memory" : event.memory === "global" ? "The sectors of global memory" :
    "The lanes of the warp";
  const picture = event.memory === "shared" ? drawBanks(event) : event.memory === "global" ? drawSectors(event) :
    event.from_lanes ? drawShuffle(event) : [];
  box.replaceChildren(...event.from_lanes ? [] : [drawLanes(event)], ...picture);
}

// ---- How it is operated -----------------------------------------------------------------------------------
for (let warp = 0; warp < warps; ++warp) {
  const option = make("option", "", `${warp} (threads ${32 * warp} to ${32 * warp + lanesOf(warp) - 1})`);
  option.value = warp;
  $("warp").append(option);
}
$("legend").append(...[["--global-read", "read of global memory"], ["--global-write", "write of global memory"],
  ["--shared-read", "read of shared memory"], ["--shared-write", "write of shared memory"], ["--atomic", "atomic operation"],
  ["--call", "warp call"], ["--barrier", "barrier"], ["--idle", "lane takes no part"], ["--wait", "waits at the barrier"],
  ["--waste", "bank conflict, or sectors for nothing"]].map(([colour, text]) => {
  const item = make("span"), sample = make("i");
  sample.style.background = `var(${colour})`;
  if (colour === "--wait") sample.className = "dot";
  item.append(sample, text);
  return item;
}));
$("slider").max = Math.max(0, columns - 1);
$("slider").addEventListener("input", () => choose(Number($("slider").value)));
$("warp").addEventListener("change", () => choose(now.column, Number($("warp").value)));
for (const [id, act] of [["back", () => choose(now.column - 1)], ["on", () => choose(now.column + 1)], ["back-barrier", lastBarrier],
  ["on-barrier", nextBarrier], ["on-waste", nextWaste]]) $(id).addEventListener("click", act);
$("on-waste").disabled = !events.some(event => event.memory && isWaste(event));
const keys = {ArrowLeft: () => choose(now.column - 1), ArrowRight: () => choose(now.column + 1),
  ArrowUp: () => choose(now.column, now.warp - 1), ArrowDown: () => choose(now.column, now.warp + 1),
  PageUp: lastBarrier, PageDown: nextBarrier, Home: () => choose(0), End: () => choose(columns - 1), n: nextWaste, N: nextWaste};
document.addEventListener("keydown", event => {
  const focus = document.activeElement, onTimeline = focus === $("timeline");
  const sideways = event.key === "ArrowLeft" || event.key === "ArrowRight" || event.key.toLowerCase() === "n";
  const free = sideways && (focus === document.body || focus?.tagName === "BUTTON");
  if (event.altKey || event.ctrlKey || event.metaKey || !(onTimeline || free) || !keys[event.key]) return;
  event.preventDefault();
  keys[event.key]();
});
canvas.addEventListener("click", event => {
  const column = layout.left + Math.floor((event.offsetX - layout.gutter) / layout.width);
  let warp = layout.tops.findLastIndex(top => event.offsetY >= top);
  choose(event.offsetX < layout.gutter ? now.column : column, warp < 0 ? now.warp : warp);
});
window.addEventListener("resize", show);
window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", show);
// block.html#STEP,WARP opens a step.
const [column, warp] = location.hash.slice(1).split(",").map(Number);
if (columns) choose(column >= 1 ? column - 1 : 0, warp >= 0 ? warp : 0);
)js";

}  // namespace stagegpt::gpu::emulation
