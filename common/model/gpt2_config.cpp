#include "common/model/gpt2_config.h"

#include <cmath>
#include <utility>

namespace stagegpt {

void Gpt2Config::validate() const {
  if (vocab_size < 1 || block_size < 1 || n_layer < 1 || n_head < 1 || n_embd < 1) {
    user_error("the model's sizes must be at least 1");
  }
  if (n_embd % n_head != 0) user_error("--n-head: ", n_head, " does not divide --n-embd ", n_embd);
}

double Gpt2Config::attention_scale(int layer) const {
  const double scale = scale_attn_weights ? 1 / std::sqrt(static_cast<double>(head_size())) : 1;
  return scale_attn_by_inverse_layer_idx ? scale / (layer + 1) : scale;
}

ParameterTable gpt2_parameter_table(const Gpt2Config& config) {
  const double std = config.initializer_range;
  const double residual_std = std / std::sqrt(2.0 * config.n_layer);
  const std::int64_t C = config.n_embd, I = config.mlp_width();
  ParameterTable table;
  auto matrix = [&](std::string name, std::int64_t out, std::int64_t in, double init_std) {
    table.add({.name = std::move(name), .shape = {out, in}, .padded_rows = out, .init_std = init_std});
  };
  auto bias = [&](std::string name, std::int64_t n) {
    table.add({.name = std::move(name), .shape = {n}, .padded_rows = n});
  };
  auto tokens = [&](std::string name) {
    table.add({.name = std::move(name),
               .shape = {config.vocab_size, C},
               .padded_rows = config.padded_vocab_size(),
               .init_std = std});
  };
  auto norm = [&](const std::string& name) {
    table.add({name + ".weight", {C}, C, 1, 0, true});
    table.add({name + ".bias", {C}, C, 0, 0, true});
  };

  tokens("wte.weight");
  matrix("wpe.weight", config.block_size, C, std);
  for (int l = 0; l < config.n_layer; ++l) {
    const std::string h = concat("h.", l, ".");
    norm(h + "ln_1");
    matrix(h + "attn.c_attn.weight", 3 * C, C, std);
    bias(h + "attn.c_attn.bias", 3 * C);
    matrix(h + "attn.c_proj.weight", C, C, residual_std);
    bias(h + "attn.c_proj.bias", C);
    norm(h + "ln_2");
    matrix(h + "mlp.c_fc.weight", I, C, std);
    bias(h + "mlp.c_fc.bias", I);
    matrix(h + "mlp.c_proj.weight", C, I, residual_std);
    bias(h + "mlp.c_proj.bias", C);
  }
  norm("ln_f");
  if (!config.tie_word_embeddings) tokens("lm_head.weight");
  for (const std::string& pattern : config.frozen) table.freeze(pattern);
  return table;
}

}  // namespace stagegpt
