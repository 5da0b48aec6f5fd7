// block.html: a page that steps through what one block does.
#include "common/base/error.h"
#include "common/base/grouped.h"
#include "common/base/json.h"
#include "stage2_cuda/emulation/profile/block_script.h"
#include "stage2_cuda/emulation/profile/block_style.h"
#include "stage2_cuda/emulation/profile/writers.h"
#include "tools/page/document.h"

namespace stagegpt::gpu::emulation {
namespace {

constexpr const char* kBody = R"html(<main>
<noscript><p>This page needs its script. block.json has the same events as data.</p></noscript>
<div id="player" role="group" aria-label="Steps of the block">
<div class="controls">
<button type="button" id="back-barrier" title="Barrier before (Page up)">⇤ barrier</button>
<button type="button" id="back" title="One step back (←)">← step</button>
<button type="button" id="on" title="One step on (→)">step →</button>
<button type="button" id="on-barrier" title="Next barrier (Page down)">barrier ⇥</button>
<button type="button" id="on-waste" title="Next request that costs more than it must (N)">next conflict or waste</button>
<label>warp <select id="warp"></select></label>
</div>
<input type="range" id="slider" min="0" value="0" aria-label="Step">
<div id="timeline" tabindex="0" role="application" aria-label="Threads and time. Arrow keys left and right step through time, up and down choose the warp."
aria-describedby="says"><canvas id="drawn" aria-hidden="true"></canvas></div>
<p id="legend" class="legend" aria-hidden="true"></p>
<p class="says" id="says" aria-live="polite" aria-atomic="true"></p>
</div>
<div class="two">
<section aria-labelledby="memory-title">
<h2 id="memory-title">What the warp touches</h2>
<div id="memory"></div>
<details><summary>Lane by lane, as a table</summary><div class="scroll" tabindex="0" role="region" aria-label="Lane by lane"><table class="lanes" id="lanes"></table></div></details>
</section>
<section aria-labelledby="source-title">
<h2 id="source-title">The source line</h2>
<div class="scroll source" id="source" tabindex="0" role="region" aria-label="Source"></div>
</section>
</div>
<section aria-labelledby="reading-title">
<h2 id="reading-title">How to read this page</h2>
<p><b>Rows</b> are threads, 32 of them a warp; the chosen warp is larger. <b>Columns</b> are steps: the n-th thing that each warp does
since the last barrier. They are no measure of time: on a GPU, warps run independently of each other between two barriers.</p>
<p>A <b>barrier</b> (<code>__syncthreads</code>) is a line through all threads. Nobody passes it before the last thread has arrived: a warp with
fewer steps waits there, drawn as dots. What any thread wrote before the line, every thread may read behind it.</p>
<p>A <b>bank conflict</b>: shared memory has 32 banks, and word w (4 bytes) lies in bank w mod 32. In one wavefront each bank gives one word, to
any number of lanes. If lanes of a warp ask one bank for n different words, they need n wavefronts, one after the other: an n-way conflict.
In the picture, a request without conflicts is one row, and each further row costs as much again.</p>
<p>A <b>sector</b> is 32 bytes of global memory, the least that is moved. Bytes of a sector that no lane asked for are moved for nothing.</p>
<p>A lane that <b>takes no part</b> in a step is grey: it has left the loop or taken the other branch, and its place in the warp is idle.</p>
</section>
</main>
)html";

}  // namespace

std::string block_page_of(const Json& block) {
  const auto text = [&](const char* key) { return block[key].dump(); };
  const auto extents = [&](const char* key) {
    return concat(block[key][0].dump(), " × ", block[key][1].dump(), " × ", block[key][2].dump());
  };
  const auto kernel = block["kernel"].get<std::string>();
  const auto total = block["events_total"].get<std::size_t>(),
             shown = block["events_shown"].get<std::size_t>();
  const std::string title = concat("Block ", text("block"), " of ", kernel);
  return concat(
      page_head(title, kBlockStyle, Scripts::own), "<body>\n<header><h1>", escaped(title),
      ", step by step</h1>\n<p class=\"byline\">Launch ", text("launch"),
      " of the kernel, on the emulator. Grid ", extents("grid"), ", block ", extents("block_shape"),
      " threads. ", grouped(total), " events", shown == total ? "." : "", "</p>\n",
      shown == total ? ""
                     : concat("<p class=\"cut\">This page has the first ", grouped(shown), " of ",
                              grouped(total), " events.</p>\n"),
      "</header>\n", kBody,
      "<footer>Written by --emulator-block; docs/emulator.md defines the counts. block.json has the same "
      "events as data.</footer>\n",
      page_script(block, concat(kBlockScript, kBlockPictures)), "</body>\n</html>\n");
}

}  // namespace stagegpt::gpu::emulation
