#include "tools/inspect/inspection.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <stdexcept>
#include <string_view>

#include "common/autograd/ops/attention.h"
#include "common/autograd/ops/embedding.h"
#include "common/autograd/ops/layernorm.h"
#include "common/autograd/ops/linear.h"
#include "common/backend/planning_backend.h"
#include "common/model/gpt2.h"

namespace stagegpt {
namespace {

class Recorder {
 public:
  Recorder(const Backend& backend, const ParameterTable& table, std::size_t before)
      : backend_(backend), table_(table), before_(before) {}

  void add(std::string_view op, std::span<const Var> inputs, std::span<const Var> outs) {
    TapeNode node{.op = std::string(op), .layer = "", .inputs = {}, .parameters = {}, .outputs = {}};
    for (const Var& input : inputs) read(input, node);
    for (const Var& out : outs) {
      node.outputs.push_back(out.value().shape());
      node.bytes += out.value().bytes();
      writer_[out.value().raw()] = nodes_.size();
    }
    node.in_use = backend_.memory_stats().bytes_in_use - before_;
    nodes_.push_back(std::move(node));
  }
  std::vector<TapeNode> take() { return std::move(nodes_); }

 private:
  void read(const Var& input, TapeNode& node) const {
    if (input.leaf_id() >= 0) {
      const std::string& name = table_[static_cast<std::size_t>(input.leaf_id())].name;
      node.parameters.push_back(name);
      const std::string layer = name.substr(0, name.rfind('.'));
      if (node.layer.find(layer) == std::string::npos)
        node.layer += concat(node.layer.empty() ? "" : ", ", layer);
      return;
    }
    if (nodes_.empty()) return;
    std::size_t from = nodes_.size() - 1;  // that of an input which the op has overwritten
    if (input.value().defined()) {
      const auto writer = writer_.find(input.value().raw());
      if (writer == writer_.end()) return;  // an input of the model
      from = writer->second;
    }
    if (std::ranges::find(node.inputs, from) == node.inputs.end()) node.inputs.push_back(from);
  }

  const Backend& backend_;
  const ParameterTable& table_;
  std::size_t before_;
  std::vector<TapeNode> nodes_;
  // By address; memory that is used again belongs to its last writer.
  std::map<const void*, std::size_t> writer_;
};

// The norm of `branch` divided by that of `stream`.
double ratio(std::span<const float> branch, std::span<const float> stream) {
  const auto squares = [](std::span<const float> values) {
    return std::accumulate(values.begin(), values.end(), 0.0,
                           [](double sum, double x) { return sum + x * x; });
  };
  return std::sqrt(squares(branch) / squares(stream));
}

// What a forward pass leaves for the inspection.
struct ForwardPass {
  std::vector<Tensor> qkv;     // of each layer, (1,T,3C)
  std::vector<Tensor> stream;  // the embedding, and the residual stream after each layer, (1,T,C)
  std::vector<double> added;   // of attention and MLP in turns: see AddedByLayer

  ForwardPass(Backend& backend, const Gpt2& model, const Tensor& ids) {
    Tape tape(backend, Tape::Mode::inference);
    int additions = 0;  // to the residual stream: two in each layer
    tape.on_op([&](std::string_view op, std::span<const Var> inputs, std::span<const Var> outs) {
      if (op == kAttention) qkv.push_back(inputs[0].value());
      if (op == kEmbedding) stream.push_back(outs[0].value());
      if (op != kResidualLayernorm) return;
      added.push_back(
          ratio(floats_to_host(backend, inputs[1].value()), floats_to_host(backend, inputs[0].value())));
      if (++additions % 2 == 0) stream.push_back(outs[0].value());
    });
    model.logits(tape, ids);
    const auto layers = static_cast<std::size_t>(model.config().n_layer);
    check(qkv.size() == layers && stream.size() == layers + 1, "inspect: found ", qkv.size(),
          " attentions and ", stream.size(), " residual streams in a model of ", layers, " layers");
  }
};

// Row t of a softmax over the keys 0…t, in place.
void softmax(std::span<double> row) {
  const double largest = *std::ranges::max_element(row);
  double sum = 0;
  for (double& x : row) sum += x = std::exp(x - largest);
  for (double& x : row) x /= sum;
}

double entropy(std::span<const double> probabilities) {
  double sum = 0;
  for (const double p : probabilities) sum -= p > 0 ? p * std::log(p) : 0;
  return sum;
}

// Adds what one row of attention says to the sums in `head`; t >= 1.
void add_row(HeadAttention& head, std::span<const double> row) {
  const std::size_t t = row.size() - 1;
  head.previous += row[t - 1];
  head.self += row[t];
  head.first += row[0];
  head.spread += entropy(row) / std::log(static_cast<double>(t + 1));
}

// One head's attention from packed qkv (T,3C), of which the head has HS columns at `column` of each third.
HeadAttention attention_of_head(std::span<const float> qkv, std::size_t C, std::size_t column, std::size_t HS,
                                double scale) {
  const std::size_t T = qkv.size() / (3 * C);
  HeadAttention head;
  head.weights.resize(T * T);
  std::vector<double> row;
  for (std::size_t t = 0; t < T; ++t) {
    const auto q = qkv.subspan(t * 3 * C + column, HS);
    row.assign(t + 1, 0);
    for (std::size_t s = 0; s <= t; ++s) {
      const auto k = qkv.subspan(s * 3 * C + C + column, HS);
      row[s] = scale * std::inner_product(q.begin(), q.end(), k.begin(), 0.0, std::plus<>(),
                                          [](double a, double b) { return a * b; });
    }
    softmax(row);
    for (std::size_t s = 0; s <= t; ++s) head.weights[t * T + s] = static_cast<float>(row[s]);
    if (t > 0) add_row(head, row);
  }
  for (double* mean : {&head.previous, &head.self, &head.first, &head.spread}) {
    *mean = T > 1 ? *mean / static_cast<double>(T - 1) : std::numeric_limits<double>::quiet_NaN();
  }
  return head;
}

// The prediction of one position, from its V logits.
LensPosition read_position(std::span<const float> logits, std::optional<std::int32_t> next, int top_k) {
  std::vector<double> probabilities(logits.begin(), logits.end());
  softmax(probabilities);
  LensPosition position{.top = {}, .entropy = entropy(probabilities)};

  std::vector<std::int32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  const auto is_before = [&](std::int32_t a, std::int32_t b) {
    const float x = logits[static_cast<std::size_t>(a)], y = logits[static_cast<std::size_t>(b)];
    return x != y ? x > y : a < b;
  };
  const auto k = std::min<std::ptrdiff_t>(top_k, std::ssize(order));
  std::ranges::partial_sort(order, order.begin() + k, is_before);
  for (const std::int32_t id : std::span(order).first(static_cast<std::size_t>(k)))
    position.top.push_back({id, probabilities[static_cast<std::size_t>(id)]});

  if (next) {
    position.next_probability = probabilities[static_cast<std::size_t>(*next)];
    position.next_rank =
        1 + std::ranges::count_if(order, [&](std::int32_t id) { return is_before(id, *next); });
  }
  return position;
}

// The logits (T,Vp) of a residual stream (1,T,C), through the last layernorm and the head.
std::vector<float> lens_logits(Backend& backend, const Gpt2& model, const Tensor& stream) {
  const Parameters& parameters = model.parameters();
  const Gpt2Config& config = model.config();
  Tape tape(backend, Tape::Mode::inference);
  const Var norm = layernorm(tape, Var(stream), parameters.var("ln_f.weight"), parameters.var("ln_f.bias"),
                             config.layer_norm_epsilon);
  const Var& head = parameters.var(config.tie_word_embeddings ? "wte.weight" : "lm_head.weight");
  return floats_to_host(backend, linear(tape, norm, head, Var()).value());
}

std::vector<LensPosition> read_lens(std::span<const float> logits, std::span<const std::int32_t> ids,
                                    const Gpt2Config& config, int top_k, std::size_t layer) {
  const auto V = static_cast<std::size_t>(config.vocab_size), T = ids.size();
  std::vector<LensPosition> positions;
  for (std::size_t t = 0; t < T; ++t) {
    const auto row = logits.subspan(t * (logits.size() / T), V);
    if (!std::ranges::all_of(row, [](float x) { return std::isfinite(x); })) {
      throw std::runtime_error(layer == 0
                                   ? "the logits of the embedding are not finite"
                                   : concat("the logits after layer h.", layer - 1, " are not finite"));
    }
    positions.push_back(read_position(row, t + 1 < T ? std::optional(ids[t + 1]) : std::nullopt, top_k));
  }
  return positions;
}

}  // namespace

TapeGraph trace_tape(const Gpt2Config& config, std::int64_t B, std::int64_t T) {
  const std::unique_ptr<Backend> backend = make_planning_backend();
  const Gpt2 model(*backend, config);
  TapeGraph graph{.B = B, .T = T, .nodes = {}, .weights = backend->memory_stats().bytes_in_use};
  const std::vector<std::int32_t> tokens(static_cast<std::size_t>(B * T));
  const Tensor ids = to_device<std::int32_t>(*backend, {B, T}, tokens);
  backend->forget_memory_peak();
  Recorder recorder(*backend, model.parameters().table(), graph.weights);
  Tape tape(*backend);
  tape.on_op([&](std::string_view op, std::span<const Var> inputs, std::span<const Var> outs) {
    recorder.add(op, inputs, outs);
  });
  tape.backward(model.loss(tape, ids, ids));
  graph.nodes = recorder.take();
  graph.peak = backend->memory_stats().peak_bytes_in_use - graph.weights;
  return graph;
}

double Inspection::loss() const {
  double sum = 0;
  for (const LensPosition& position : lens.back()) {
    if (position.next_probability) sum -= std::log(*position.next_probability);
  }
  return sum / (static_cast<double>(ids.size()) - 1);
}

std::int64_t most_inspected_tokens(const Gpt2Config& config) {
  constexpr std::int64_t kTokens = 256, kProbabilities = 1'000'000;
  const std::int64_t heads = std::int64_t{config.n_layer} * config.n_head;
  std::int64_t T = std::min(config.block_size, kTokens);
  while (T > 1 && heads * (T * (T + 1) / 2) > kProbabilities) --T;
  return T;
}

Inspection inspect(Backend& backend, const Gpt2& model, std::span<const std::int32_t> ids, int top_k) {
  const Gpt2Config& config = model.config();
  const auto C = static_cast<std::size_t>(config.n_embd), HS = C / static_cast<std::size_t>(config.n_head);
  Inspection inspection{.ids = {ids.begin(), ids.end()},
                        .n_layer = config.n_layer,
                        .n_head = config.n_head,
                        .heads = {},
                        .lens = {},
                        .added = {}};
  const ForwardPass pass(backend, model, to_device<std::int32_t>(backend, {1, std::ssize(ids)}, ids));
  for (std::size_t l = 0; l < pass.stream.size(); ++l) {
    inspection.lens.push_back(read_lens(lens_logits(backend, model, pass.stream[l]), ids, config, top_k, l));
  }
  for (std::size_t l = 0; l < pass.added.size(); l += 2)
    inspection.added.push_back({.attention = pass.added[l], .mlp = pass.added[l + 1]});
  for (int l = 0; l < config.n_layer; ++l) {
    const std::vector<float> qkv = floats_to_host(backend, pass.qkv[static_cast<std::size_t>(l)]);
    for (std::size_t column = 0; column < C; column += HS)
      inspection.heads.push_back(attention_of_head(qkv, C, column, HS, config.attention_scale(l)));
  }
  return inspection;
}

}  // namespace stagegpt
