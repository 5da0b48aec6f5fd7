// GPT-2: Radford et al., "Language Models are Unsupervised Multitask Learners", 2019. Learned positions,
// pre-layernorm blocks, packed qkv, an output head that is tied to the token embedding or a matrix of its
// own.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/autograd/tape.h"
#include "common/model/parameters.h"
#include "common/model/partition.h"
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
  // The factor of the attention scores q·k in a layer, which counts from 0.
  double attention_scale(int layer) const;
};

struct Preset {
  std::string_view name;
  Gpt2Config config;     // the vocabulary is replaced by the tokenizer's
  double learning_rate;  // a peak learning rate with which it trains well
};

// nano (small enough to learn data/dummy.txt within a minute on two cores), and GPT-2's four sizes with the
// learning rates of Brown et al., arXiv:2005.14165, table 2.1.
const std::vector<Preset>& presets();

// Names, shapes and initialisation of a model's parameters, in Hugging Face's order.
ParameterTable gpt2_parameter_table(const Gpt2Config& config);

// Where in training a forward pass is: its dropout masks are derived from this. The sequences of a step are
// numbered over all ranks and micro-steps, so that a mask does not depend on how the batch is divided.
struct DropoutPosition {
  std::uint64_t seed = 0;
  std::uint32_t step = 0;
  std::int64_t first_sequence = 0;  // index of the batch's first sequence within the step
  // If it is defined, step and first_sequence are in the backend's memory (Dropout::position).
  Tensor on_backend = {};
};

// What a training keeps of a forward pass's activations; the rest is computed again in the backward, with the
// same bits. `gelu` does not keep the activation's output (B,T,I) in each MLP, I = mlp_width(). `block` keeps
// two tensors (B,T,C) for each transformer block.
enum class Recompute : std::uint8_t { none, gelu, block };
std::optional<Recompute> recompute_named(std::string_view name);
std::string_view name_of(Recompute recompute);

class KvCache;

class Gpt2 {
 public:
  // `dtype` is that of weights, gradients and activations. Activations may be bf16 where the others are f32:
  // ops then read a shadow of the weights (Parameters::update_shadow()). `ranks` divide an arena evenly. The
  // model is this rank's part of a partition, which is borrowed.
  Gpt2(Backend& backend, Gpt2Config config, DType dtype = DType::f32, int ranks = 1,
       Purpose purpose = Purpose::training, std::optional<DType> activations = std::nullopt,
       const Partition& partition = Partition::none());

  // Logits (B,T,Vp) for ids i32 (B,T), T <= block_size. Columns from vocab_size on are padding. Elements are
  // dropped only if `dropout` is given.
  Var logits(Tape& tape, const Tensor& ids, std::optional<DropoutPosition> dropout = std::nullopt,
             Recompute recompute = Recompute::none) const;
  // Logits (1,1,Vp), not in bf16, of the token after ids i32 (1,T), T >= 1. The tokens `ids` follow those in
  // the cache, and their keys and values are added to it: cache.size() + T <= block_size.
  Tensor next_logits(Backend& backend, const Tensor& ids, KvCache& cache) const;
  // Mean cross-entropy (1), in nats, of targets i32 (B,T). On a training tape it is the loss of the tape,
  // which no further op may use. On a stage of a pipeline only for inference: the stages work one after the
  // other, and all but the last return their residual stream.
  Var loss(Tape& tape, const Tensor& ids, const Tensor& targets,
           std::optional<DropoutPosition> dropout = std::nullopt,
           Recompute recompute = Recompute::none) const;
  // The part of the loss that this stage of a pipeline computes: from the residual stream `before` of the
  // stage before, of shape stream_shape(), which is empty on the first stage. Returns this stage's stream; on
  // the last stage, the loss.
  Var stage_output(Tape& tape, const Tensor& ids, const Tensor& targets, Var before,
                   std::optional<DropoutPosition> dropout = std::nullopt,
                   Recompute recompute = Recompute::none) const;
  // Of this rank's rows of the residual stream, for B sequences of T tokens.
  Shape stream_shape(std::int64_t B, std::int64_t T) const {
    return partition_->rows({B, T, config_.n_embd});
  }

  // For inference in f32: from now on, wte, the head and the matrices of the linear layers are in `dtype`: in
  // bf16, rounded to nearest, which has half as many bytes, or in i8, quantised by rows, which has a quarter.
  // All other tensors stay f32. Their memory in f32 is free again.
  void narrow_matrices(DType dtype);

  const Gpt2Config& config() const { return config_; }
  // Which of the model's layers this is.
  const ModelStage& stage() const { return stage_; }
  Parameters& parameters() { return parameters_; }
  const Parameters& parameters() const { return parameters_; }

 private:
  struct Layer {
    Var ln_1_weight, ln_1_bias, c_attn_weight, c_attn_bias, attn_c_proj_weight, attn_c_proj_bias;
    Var ln_2_weight, ln_2_bias, c_fc_weight, c_fc_bias, mlp_c_proj_weight, mlp_c_proj_bias;
  };

  // What a forward pass is for.
  struct Pass {
    Shape shape;  // (B,T,C)
    std::optional<DropoutPosition> dropout = {};
    KvCache* cache = nullptr;  // the tokens follow those in it
    Recompute recompute = Recompute::none;
    Var before = {};  // the residual stream of the stage before
  };
  // This rank's rows of a partition, (N/R,C) as in partition.h; with one rank (B,T,C).
  struct Stream {
    Var x;     // the residual stream
    Var norm;  // its layernorm, which the next branch reads
  };

  Pass pass_of(const Tensor& ids) const { return {{ids.shape()[0], ids.shape()[1], config_.n_embd}}; }
  // The same, with the residual stream that the stage before sends for inference.
  Pass inference_of(Backend& backend, const Tensor& ids) const;
  // What the blocks compute from: the embedding, or the residual stream of the stage before.
  Var input(Tape& tape, const Tensor& ids, const Pass& pass) const;
  // The output of the last layernorm (B,T,C); on a stage that is not the last, the residual stream.
  Var hidden(Tape& tape, const Tensor& ids, const Pass& pass) const;
  // Logits of this rank's tokens of the vocabulary, (B,T,…) for hidden (B,T,C).
  Var own_logits(Tape& tape, Var hidden) const;
  // For inference, on all ranks: logits (B,T,Vp) of all tokens for hidden (B,T,C).
  Var all_logits(Tape& tape, Var hidden, const Shape& shape) const;
  // Sets the members below to the parameters' tensors.
  void refer_to_parameters();
  // Transformer block l, without the layernorm at its start but with that of the next block, which the last
  // block of a stage does not compute.
  Stream block(Tape& tape, int l, Stream stream, const Pass& pass) const;

  Gpt2Config config_;
  const Partition* partition_;
  ModelStage stage_;
  Parameters parameters_;
  Var wte_, wpe_, ln_f_weight_, ln_f_bias_;
  Var head_;                   // (Vp,C): wte_, or lm_head.weight
  std::vector<Layer> layers_;  // those of other stages are empty
};

}  // namespace stagegpt
