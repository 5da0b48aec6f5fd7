// What a model computes for a text: how much attention each head pays to each token, and which tokens each
// layer would predict.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "common/model/gpt2.h"

namespace stagegpt {

// An op on the tape of a training step.
struct TapeNode {
  std::string op;                       // "linear"
  std::string layer;                    // the layer of its parameters: "h.0.mlp.c_fc"; empty without any
  std::vector<std::size_t> inputs;      // the nodes whose outputs it reads, each once
  std::vector<std::string> parameters;  // those that it reads
  std::vector<Shape> outputs;
  std::size_t bytes = 0;   // of its outputs
  std::size_t in_use = 0;  // activations in memory when the op has run, in bytes
};

struct TapeGraph {
  std::int64_t B = 0, T = 0;
  std::vector<TapeNode> nodes;        // in the order in which forward runs them; backward is the reverse
  std::size_t weights = 0, peak = 0;  // bytes of weights and gradients; the most activations at any time
};

// The tape of a step with B sequences of T tokens in f32. Nothing is computed: the model runs on a planning
// backend, which takes no memory.
TapeGraph trace_tape(const Gpt2Config& config, std::int64_t B, std::int64_t T);

// The attention of one head over a text of T tokens.
struct HeadAttention {
  // (T,T): row t is the softmax of scale·q·k over the keys 0…t, and zero behind them.
  std::vector<float> weights;
  // Means over the queries t >= 1; NaN for a text of one token. The first three are the attention to the
  // token before, to the query's own token and to the first token. `spread` is the entropy of a row divided
  // by the largest one possible, log(t + 1): 0 if one token gets all attention, 1 if all get the same.
  double previous = 0, self = 0, first = 0, spread = 0;
};

struct Prediction {
  std::int32_t id = 0;
  double probability = 0;
};

// What the residual stream predicts at one position, by the logit lens (nostalgebraist, "interpreting GPT:
// the logit lens", 2020): the softmax of the head's logits for the last layernorm of the stream.
struct LensPosition {
  std::vector<Prediction> top;  // the most probable tokens, in descending order; of equal ones the lower id
  double entropy = 0;           // in nats
  // The probability and the rank of the token that follows in the text; none at the last position. The rank
  // counts from 1.
  std::optional<double> next_probability = {};
  std::optional<std::int64_t> next_rank = {};
};

// What the branches of a layer add to the residual stream x, over all tokens and channels: √(Σa² / Σx²), with
// a the output of the branch and x before the addition, as --watch-layers measures it.
struct AddedByLayer {
  double attention = 0, mlp = 0;
};

struct Inspection {
  std::vector<std::int32_t> ids;     // (T)
  int n_layer = 0, n_head = 0;       // L and NH
  std::vector<HeadAttention> heads;  // head h of layer l is element l·NH + h
  // Element 0 is the embedding, element l + 1 the residual stream after layer l; each has T positions.
  std::vector<std::vector<LensPosition>> lens;
  std::vector<AddedByLayer> added;  // (L)

  // The mean of -log(next_probability) after the last layer, in nats per token; NaN for one token.
  double loss() const;
  const HeadAttention& head(int layer, int head) const {
    return heads[static_cast<std::size_t>(layer) * static_cast<std::size_t>(n_head) +
                 static_cast<std::size_t>(head)];
  }
};

// The longest text, in tokens, whose inspection a page can show: a page has at most a million probabilities
// of attention, and lists at most 256 tokens. For GPT-2 of 12 layers with 12 heads this is 117.
std::int64_t most_inspected_tokens(const Gpt2Config& config);

// Runs the model on a text of 1 to block_size tokens. Attention kernels keep no probabilities, so these are
// computed here, in f64, from the queries and keys of the forward pass. Throws std::runtime_error, which
// names the layer, if logits are not finite.
Inspection inspect(Backend& backend, const Gpt2& model, std::span<const std::int32_t> ids, int top_k);

}  // namespace stagegpt
