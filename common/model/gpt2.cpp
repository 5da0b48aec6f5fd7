#include "common/model/gpt2.h"

#include <utility>

#include "common/autograd/ops/attention.h"
#include "common/autograd/ops/cross_entropy.h"
#include "common/autograd/ops/dropout.h"
#include "common/autograd/ops/embedding.h"
#include "common/autograd/ops/layernorm.h"
#include "common/autograd/ops/norm_linear.h"

namespace stagegpt {

Var LayerNorm::forward(Tape& tape, ResidualStream& stream) const {
  return add_and_normalise(tape, stream.x, stream.y, weight, bias, eps);
}

Normed LayerNorm::before_linear(Tape& tape, ResidualStream& stream, bool may_be_left) const {
  return normed(tape, stream.x, stream.y, weight, bias, eps, may_be_left);
}

Var CausalSelfAttention::forward(Tape& tape, const Normed& x, const Dropout& dropout,
                                 const LayerCache& cache) const {
  const Var qkv = linear(tape, x, c_attn_weight, c_attn_bias);  // (B,T,3C)
  const Var y =
      cache.keys_and_values.defined()  // (B,T,C)
          ? cached_attention(tape, qkv, cache.keys_and_values, n_head, scale, cache.size, cache.position)
          : attention(tape, qkv, n_head, scale, dropout);
  return linear(tape, y, c_proj_weight, c_proj_bias);
}

Var Mlp::forward(Tape& tape, const Normed& x, Recompute recompute) const {
  const Activated wide = linear_activation(tape, x, c_fc_weight, c_fc_bias, activation);  // (B,T,I)
  return activation_linear(tape, wide, c_proj_weight, c_proj_bias, recompute == Recompute::gelu);
}

Gpt2Layers::Gpt2Layers(const Parameters& parameters, const Gpt2Config& config) {
  const auto var = [&](const std::string& name) {
    const int row = parameters.table().find(name);
    return row < 0 ? Var() : parameters.var(static_cast<std::size_t>(row));
  };
  const auto norm = [&](const std::string& name) {
    return LayerNorm{var(name + ".weight"), var(name + ".bias"), config.layer_norm_epsilon};
  };
  wte = var("wte.weight");
  wpe = var("wpe.weight");
  for (int l = 0; l < config.n_layer; ++l) {
    const std::string block = concat("h.", l, '.'), attn = block + "attn.", mlp = block + "mlp.";
    const Var c_attn_bias = var(attn + "c_attn.bias");
    // The heads of this model: fewer than n_head where tensor ranks divide it.
    const int heads = static_cast<int>(c_attn_bias.value().numel() / 3 / config.head_size());
    h.push_back({norm(block + "ln_1"),
                 {var(attn + "c_attn.weight"), c_attn_bias, var(attn + "c_proj.weight"),
                  var(attn + "c_proj.bias"), heads, config.attention_scale(l)},
                 norm(block + "ln_2"),
                 {var(mlp + "c_fc.weight"), var(mlp + "c_fc.bias"), var(mlp + "c_proj.weight"),
                  var(mlp + "c_proj.bias"), config.activation}});
  }
  ln_f = norm("ln_f");
  lm_head = config.tie_word_embeddings ? wte : var("lm_head.weight");
}

ResidualStream run_block(Tape& tape, Recompute recompute, ResidualStream stream,
                         std::function<ResidualStream(Tape& tape, ResidualStream stream)> block) {
  if (recompute != Recompute::block) return block(tape, std::move(stream));
  const std::vector<Var> outs = tape.recompute([block = std::move(block), stream](Tape& inner) {
    const auto [x, y] = block(inner, stream);
    return std::vector<Var>{x, y};
  });
  return {outs[0], outs[1]};
}

Var last_token(const Var& hidden) {
  const Shape& s = hidden.value().shape();
  return Var(hidden.value().slice((s[1] - 1) * s[2], {s[0], 1, s[2]}));
}

Gpt2::Gpt2(Backend& backend, Gpt2Config config, DType dtype, int arena_parts, Purpose purpose,
           std::optional<DType> activations)
    : LanguageModel(backend, config, gpt2_parameter_table(config), dtype, arena_parts, purpose, activations),
      layers_(parameters(), this->config()) {}

// x = x + attn(ln_1(x)); x = x + mlp(ln_2(x)). But the output of a branch is not added here: it waits in
// stream.y, and the next layernorm adds it, in the same kernel. That of the last block is added by ln_f.
ResidualStream Gpt2::block(Tape& tape, int l, ResidualStream stream, const Pass& pass) const {
  const Block& h = layers_.h[static_cast<std::size_t>(l)];
  Normed norm = h.ln_1.before_linear(tape, stream, pass.is_cached());
  Var y = h.attn.forward(tape, norm, pass.attention_dropout(l), pass.cache(l));
  stream.y = dropout(tape, y, pass.branch_dropout(2 * l));

  norm = h.ln_2.before_linear(tape, stream, pass.is_cached());
  y = h.mlp.forward(tape, norm, pass.recompute());
  stream.y = dropout(tape, y, pass.branch_dropout(2 * l + 1));
  return stream;
}

Var Gpt2::hidden(Tape& tape, const Tensor& ids, const Pass& pass) const {
  Var x = embedding(tape, ids, layers_.wte, layers_.wpe, pass.position());  // (B,T,C)
  ResidualStream stream{dropout(tape, std::move(x), pass.embedding_dropout())};
  for (int l = 0; l < config().n_layer; ++l) {
    stream = run_block(tape, pass.recompute(), std::move(stream), [=, this](Tape& on, ResidualStream input) {
      return block(on, l, std::move(input), pass);
    });
  }
  return layers_.ln_f.forward(tape, stream);
}

Var Gpt2::logits(Tape& tape, const Tensor& ids, const PassOptions& options) const {
  return linear(tape, hidden(tape, ids, Pass(config(), ids, options)), layers_.lm_head, Var());
}

Var Gpt2::loss(Tape& tape, const Tensor& ids, const Tensor& targets, const PassOptions& options) const {
  // The logits, the largest tensor, have no other handle: the op overwrites them with their gradient.
  return cross_entropy_loss(tape, logits(tape, ids, options), targets, config().vocab_size);
}

Var Gpt2::last_logits(Tape& tape, const Tensor& ids, const KvCache& cache) const {
  const Var x = hidden(tape, ids, Pass(config(), ids, {}, &cache));  // (B,T,C)
  return linear(tape, last_token(x), layers_.lm_head, Var());
}

void Gpt2::narrow_matrices(DType dtype) {
  parameters().narrow(dtype,
                      [](const Parameter& row) { return row.is_matrix() && row.name != "wpe.weight"; });
  layers_ = Gpt2Layers(parameters(), config());
}

}  // namespace stagegpt
