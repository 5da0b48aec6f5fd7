#include "tools/inspect/page.h"

#include <cmath>
#include <cstdio>
#include <map>

#include "common/base/grouped.h"
#include "common/model/vocabulary_padding.h"
#include "tools/inspect/page_script.h"
#include "tools/inspect/page_style.h"
#include "tools/inspect/training_script.h"
#include "tools/page/document.h"

namespace stagegpt {
namespace {

// Four digits after the point: what the page shows.
double four_digits(double x) {
  constexpr double kUnit = 1e4;
  return std::round(x * kUnit) / kUnit;
}

// The attention of all heads, row by row up to the diagonal. A byte is 255·√p, which is what is drawn: it
// resolves small probabilities better than p itself.
std::string attention_bytes(const Inspection& inspection) {
  const std::size_t T = inspection.ids.size();
  std::vector<std::uint8_t> bytes;
  bytes.reserve(inspection.heads.size() * T * (T + 1) / 2);
  for (const HeadAttention& head : inspection.heads) {
    for (std::size_t t = 0; t < T; ++t) {
      for (std::size_t s = 0; s <= t; ++s)
        bytes.push_back(static_cast<std::uint8_t>(std::lround(255 * std::sqrt(head.weights[t * T + s]))));
    }
  }
  return base64(bytes);
}

// Predicted tokens, each text once.
class Strings {
 public:
  explicit Strings(const Tokenizer& tokenizer) : tokenizer_(tokenizer) {}

  std::size_t index(std::int32_t id) {
    const auto [found, added] = indices_.try_emplace(id, indices_.size());
    if (added) texts_.push_back(token_text(tokenizer_, id));
    return found->second;
  }
  Json take() { return std::move(texts_); }

 private:
  const Tokenizer& tokenizer_;
  std::map<std::int32_t, std::size_t> indices_;
  Json texts_ = Json::array();
};

// What the script reads.
Json page_data(const Findings& findings, const Tokenizer& tokenizer) {
  const Inspection& inspection = findings.inspection;
  Strings strings(tokenizer);
  Json tokens = Json::array(), patterns = Json::array(), lens = Json::array(), next = Json::array();
  Json added = Json::array();
  for (const auto& [attention, mlp] : inspection.added)
    added.push_back(Json::array({four_digits(attention), four_digits(mlp)}));
  for (const std::int32_t id : inspection.ids) tokens.push_back(token_text(tokenizer, id));
  for (const HeadAttention& head : inspection.heads) {
    patterns.push_back(std::isnan(head.previous) ? Json()
                                                 : Json({four_digits(head.previous), four_digits(head.self),
                                                         four_digits(head.first), four_digits(head.spread)}));
  }
  for (const std::vector<LensPosition>& layer : inspection.lens) {
    Json tops = Json::array(), nexts = Json::array();
    for (const LensPosition& position : layer) {
      Json top = Json::array();  // index of a text, its probability, and so on
      for (const Prediction& prediction : position.top) {
        top.push_back(strings.index(prediction.id));
        top.push_back(four_digits(prediction.probability));
      }
      tops.push_back(std::move(top));
      nexts.push_back(
          position.next_rank ? Json({four_digits(*position.next_probability), *position.next_rank}) : Json());
    }
    lens.push_back(std::move(tops));
    next.push_back(std::move(nexts));
  }
  return {{"layers", inspection.n_layer},
          {"heads", inspection.n_head},
          {"tokens", std::move(tokens)},
          {"attention", attention_bytes(inspection)},
          {"patterns", std::move(patterns)},
          {"strings", strings.take()},
          {"lens", std::move(lens)},
          {"next", std::move(next)},
          {"added", std::move(added)},
          {"tape", to_json(findings.tape)},
          {"run", findings.run}};
}

std::string nats(double loss) {
  char text[48];
  std::snprintf(text, sizeof text, "%.3f nats per token", loss);
  return text;
}

// What the model has learnt: facts about a checkpoint of a run, and about this text.
std::string learnt(const InspectedModel& model, const Inspection& inspection) {
  std::string facts;
  if (model.step) facts += fact("steps", grouped(*model.step));
  if (model.validation_loss) facts += fact("validation loss", nats(*model.validation_loss));
  if (inspection.ids.size() > 1) facts += fact("loss of this text", nats(inspection.loss()));
  return facts;
}

std::string header(const InspectedModel& model, const Inspection& inspection) {
  return concat(
      "<body>\n<!-- ", kInspectionMark, " -->\n<header>\n<h1>Inside ", escaped(model.name),
      "</h1>\n<dl class=\"facts byline\">\n", fact("parameters", grouped(model.parameters)),
      fact("layers", concat(inspection.n_layer)), fact("heads", concat(inspection.n_head)),
      fact("channels", concat(model.config.n_embd)), learnt(model, inspection),
      fact("tokens of the text", concat(inspection.ids.size())), fact("machine", model.machine),
      "</dl>\n<noscript><p class=\"warning\">The maps on this page are drawn by its own script, which "
      "this browser does not run. stageN_inspect --json writes the same numbers.</p></noscript>\n"
      "</header>\n<main>\n");
}

constexpr const char* kAttentionSection = R"(<section aria-labelledby="attention-title">
<h2 id="attention-title">Attention</h2>
<p>Each head of each layer lets a token read the tokens before it, in parts that add up to 100&nbsp;%. Choose a head (a map below) and a
token; the colour of the other tokens is how much of it they get. Keys: <kbd>Tab</kbd> goes on, the arrows choose.</p>
<div class="words" id="words" role="radiogroup" aria-label="The text: the token that reads"></div>
<div class="two">
<div>
<h3 class="chosen">All heads</h3>
<p class="note">A row for each layer, a column for each head.</p>
<div class="scroll"><div class="heads" id="heads" role="radiogroup" aria-label="Head"></div></div>
<h3>What <span class="token" id="query"></span> reads</h3>
<ol class="ranking" id="keys" aria-live="polite"></ol>
</div>
<div>
<h3 class="chosen"><span id="chosen"></span><span class="pattern" id="pattern"></span></h3>
<p class="note" id="means"></p>
<div class="map"><canvas id="map" role="img"></canvas></div>
<p class="reading note" id="reading"></p>
<p class="scale"><span>0</span><i></i><span>100 % &middot; the strength of the colour is the square root</span></p>
</div>
</div>
</section>
)";

constexpr const char* kLens = R"(<section aria-labelledby="lens-title">
<h2 id="lens-title">Logit lens</h2>
<p>What the model would predict if it stopped after a layer: the residual stream after that layer, through the last layernorm and the
head. Each cell is the most probable next token; a <span class="key"></span> frame says that the text goes on with it.</p>
<div class="scroll" role="region" aria-label="Predictions by layer and token">
<table class="lens" id="lens" role="grid" aria-label="Most probable next token, by layer and token"></table>
</div>
<div class="two">
<div>
<h3>Predicted after <span class="token" id="lens-token"></span>, <span id="lens-where"></span></h3>
<ol class="ranking" id="lens-top" aria-live="polite"></ol>
</div>
<div>
<p class="note" id="lens-next"></p>
<ol class="ranking" id="lens-layers"></ol>
</div>
</div>
</section>
)";

constexpr const char* kAdded = R"(<section aria-labelledby="added-title">
<h2 id="added-title">What each layer adds</h2>
<p>Attention and MLP of a layer add their outputs to the residual stream. The bars show how large they are, relative to the stream
that they are added to, for this text. <span id="added-verdict"></span></p>
<div class="scroll" role="region" tabindex="0" aria-label="What each layer adds"><table class="layers added" id="added" aria-label="What each layer adds"></table></div>
</section>
)";

// The two sections about training; that of the run is shown if there is something in it.
constexpr const char* kTape = R"(<section aria-labelledby="tape-title">
<h2 id="tape-title">The tape of a training step</h2>
)";
constexpr const char* kTapeTable =
    R"(<div class="scroll" role="region" tabindex="0" aria-label="Ops of the tape">
<div class="tape"><svg id="tape-edges" aria-hidden="true"></svg>
<table aria-label="Ops of the tape"><thead><tr><td></td><th scope="col">op</th><th scope="col">parameters of</th><th scope="col">outputs</th><th scope="col"
class="number">bytes</th><th scope="col" class="number">activations in memory</th></tr></thead>
<tbody id="tape-rows"></tbody></table></div></div>
</section>
)";

constexpr const char* kRun = R"(<section aria-labelledby="run-title" id="run" hidden>
<h2 id="run-title">The layers of this run</h2>
<p>Gradients, updates and activations of each layer, from metrics.jsonl. <span id="run-steps"></span> <span id="run-verdict"></span></p>
<div class="scroll" role="region" tabindex="0" aria-label="Layers at the last measured step"><table class="layers" id="layers"></table></div>
<div class="plots" id="plots"></div>
</section>
)";

std::string megabytes(std::size_t bytes) {
  char text[32];
  std::snprintf(text, sizeof text, "%.2f MB", static_cast<double>(bytes) / 1e6);
  return text;
}

std::string tape_section(const TapeGraph& tape, std::int64_t vocabulary) {
  const std::int64_t padded = padded_vocabulary(vocabulary);
  const std::string padding = padded == vocabulary
                                  ? ""
                                  : concat(" Logits have ", padded, " columns: the ", vocabulary,
                                           " tokens of the vocabulary, and padding to a multiple of 128.");
  return concat(
      kTape, "<p>", tape.nodes.size(), " ops, recorded by a forward pass on ", tape.B, " sequence of ",
      tape.T,
      " tokens in f32; the backward pass visits them from the last to the first. A line leads from an op to "
      "those that read its output. Weights and gradients take ",
      megabytes(tape.weights), ", activations at most ", megabytes(tape.peak), ".", padding, "</p>\n",
      kTapeTable);
}

}  // namespace

std::string inspection_page(const Findings& findings, const Tokenizer& tokenizer) {
  return concat(
      page_head("Inside " + findings.model.name, kInspectionStyle, Scripts::own),
      header(findings.model, findings.inspection), kAttentionSection, kLens, kAdded,
      tape_section(findings.tape, findings.model.config.vocab_size), kRun,
      "</main>\n<footer>Written by StageGPT's stageN_inspect. --json writes the same numbers in full "
      "precision.</footer>\n",
      page_script(page_data(findings, tokenizer), concat(kInspectionScript, kTrainingScript)),
      "</body>\n</html>\n");
}

}  // namespace stagegpt
