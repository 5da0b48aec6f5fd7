// The sizes of a GPT-2, and the table of its parameters.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/backend/backend.h"
#include "common/model/parameters.h"
#include "common/model/vocabulary_padding.h"

namespace stagegpt {

struct Gpt2Config {
  std::int64_t vocab_size = 50257;
  std::int64_t block_size = 1024;  // longest context, in tokens
  int n_layer = 12;
  int n_head = 12;
  int n_embd = 768;
  Activation activation = Activation::gelu_new;
  double dropout = 0;  // after the embedding, on attention probabilities, and on both residual branches
  double initializer_range =
      0.02;  // standard deviation of initial weights; residual projections get 1/√(2·n_layer) of it
  double layer_norm_epsilon = 1e-5;  // added to the variance in every layernorm
  std::int64_t n_inner = 0;          // width of the MLP; 0 means 4·n_embd
  bool tie_word_embeddings = true;   // the output head is wte; otherwise lm_head.weight
  bool scale_attn_weights = true;    // attention scores are divided by √HS, HS = n_embd/n_head …
  bool scale_attn_by_inverse_layer_idx = false;  // … and by the layer's number, counted from 1

  // Patterns of the names of parameters that are not trained (ParameterTable::freeze). Not of the model, but
  // of a training: config.json does not have them.
  std::vector<std::string> frozen = {};

  // Throws UserError if no model can have these sizes.
  void validate() const;
  // Rows of wte and lm_head, columns of the logits.
  std::int64_t padded_vocab_size() const { return padded_vocabulary(vocab_size); }
  // The width of the MLP: columns of its activations.
  std::int64_t mlp_width() const { return n_inner > 0 ? n_inner : std::int64_t{4} * n_embd; }
  // The channels of an attention head.
  int head_size() const { return n_embd / n_head; }
  // The factor of the attention scores q·k in a layer, which counts from 0.
  double attention_scale(int layer) const;
};

// Names, shapes and initialisation of a model's parameters, in Hugging Face's order.
ParameterTable gpt2_parameter_table(const Gpt2Config& config);

}  // namespace stagegpt
