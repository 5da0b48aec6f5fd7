// GPT-2: Radford et al., "Language Models are Unsupervised Multitask Learners", 2019. Learned positions,
// pre-layernorm blocks, packed qkv, an output head that is tied to the token embedding or a matrix of its
// own.
//
// Its layers are written once: a larger model is composed of the same ones (common/parallel/divided_gpt2.h).
// Shapes are those of the whole model.
#pragma once

#include <functional>
#include <vector>

#include "common/autograd/ops/norm_linear.h"
#include "common/model/language_model.h"
#include "common/model/pass.h"

namespace stagegpt {

// The residual stream x (B,T,C), and y (B,T,C), the output of a branch that is still to be added to it.
// Before the first branch, and after a layernorm, there is no y.
struct ResidualStream {
  Var x, y = {};
};

struct LayerNorm {
  Var weight, bias;  // (C)
  double eps;

  // Adds y, if there is one, to x, and returns the layernorm of x (B,T,C).
  Var forward(Tape& tape, ResidualStream& stream) const;
  Normed before_linear(Tape& tape, ResidualStream& stream, bool may_be_left) const;  // as normed()
};

struct CausalSelfAttention {
  Var c_attn_weight, c_attn_bias;  // (3C,C), (3C)
  Var c_proj_weight, c_proj_bias;  // (C,C), (C)
  int n_head;
  double scale;

  // x (B,T,C) -> (B,T,C). `dropout` acts on the probabilities. With a cache, for inference, the tokens follow
  // those in it, and their keys and values are added to it.
  Var forward(Tape& tape, const Normed& x, const Dropout& dropout, const LayerCache& cache) const;
};

struct Mlp {
  Var c_fc_weight, c_fc_bias;      // (I,C), (I), I = mlp_width()
  Var c_proj_weight, c_proj_bias;  // (C,I), (C)
  Activation activation;

  // x (B,T,C) -> (B,T,C)
  Var forward(Tape& tape, const Normed& x, Recompute recompute) const;
};

struct Block {
  LayerNorm ln_1;
  CausalSelfAttention attn;
  LayerNorm ln_2;
  Mlp mlp;
};

// The layers of a model. A part of a model has empty Vars for parameters that it lacks.
struct Gpt2Layers {
  Gpt2Layers(const Parameters& parameters, const Gpt2Config& config);

  Var wte, wpe;          // (Vp,C), (P,C)
  std::vector<Block> h;  // n_layer
  LayerNorm ln_f;
  Var lm_head;  // (Vp,C): wte, or a matrix of its own
};

// What block(tape, stream) returns. With Recompute::block nothing else is kept of it but its input: the
// backward calls `block` again.
ResidualStream run_block(Tape& tape, Recompute recompute, ResidualStream stream,
                         std::function<ResidualStream(Tape& tape, ResidualStream stream)> block);

// The last row (B,1,C) of hidden (B,T,C), without a gradient. B or T is 1.
Var last_token(const Var& hidden);

class Gpt2 final : public LanguageModel {
 public:
  // As for LanguageModel.
  explicit Gpt2(Backend& backend, Gpt2Config config, DType dtype = DType::f32, int arena_parts = 1,
                Purpose purpose = Purpose::training, std::optional<DType> activations = std::nullopt);

  Var loss(Tape& tape, const Tensor& ids, const Tensor& targets,
           const PassOptions& options = {}) const override;
  Var logits(Tape& tape, const Tensor& ids, const PassOptions& options = {}) const override;

  // For inference in f32: from now on, wte, the head and the matrices of the linear layers are in `dtype`: in
  // bf16, rounded to nearest, which has half as many bytes, or in i8, quantised by rows, which has a quarter.
  // All other tensors stay f32. Their memory in f32 is free again.
  void narrow_matrices(DType dtype);

 private:
  Var last_logits(Tape& tape, const Tensor& ids, const KvCache& cache) const override;
  // The output of the last layernorm (B,T,C).
  Var hidden(Tape& tape, const Tensor& ids, const Pass& pass) const;
  ResidualStream block(Tape& tape, int l, ResidualStream stream, const Pass& pass) const;

  Gpt2Layers layers_;
};

}  // namespace stagegpt
