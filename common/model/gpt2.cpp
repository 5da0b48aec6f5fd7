#include "common/model/gpt2.h"

#include <array>
#include <cmath>
#include <tuple>

#include "common/autograd/ops/add.h"
#include "common/autograd/ops/attention.h"
#include "common/autograd/ops/dropout.h"
#include "common/autograd/ops/layernorm.h"
#include "common/autograd/ops/linear.h"
#include "common/model/kv_cache.h"

namespace stagegpt {
namespace {

// The dropouts of one forward pass.
class Dropouts {
 public:
  Dropouts(double p, const std::optional<DropoutPosition>& position) : p_(position ? p : 0) {
    if (position) position_ = *position;
  }
  // The dropout of `stream` in layer `layer`, where each sequence of the batch uses `elements` random
  // numbers.
  Dropout at(RandomStream stream, int layer, std::int64_t elements) const {
    return {p_,
            {position_.seed, stream_id(stream, layer), position_.step},
            position_.first_sequence * elements,
            position_.on_backend,
            elements};
  }

 private:
  double p_;
  DropoutPosition position_;
};

constexpr std::array<std::pair<Recompute, std::string_view>, 3> kRecomputeNames = {{
    {Recompute::none, "none"},
    {Recompute::gelu, "gelu"},
    {Recompute::block, "block"},
}};

}  // namespace

std::optional<Recompute> recompute_named(std::string_view name) {
  for (const auto& [recompute, known] : kRecomputeNames) {
    if (known == name) return recompute;
  }
  return std::nullopt;
}

std::string_view name_of(Recompute recompute) {
  return kRecomputeNames[static_cast<std::size_t>(recompute)].second;
}

void Gpt2Config::validate() const {
  if (vocab_size < 1 || block_size < 1 || n_layer < 1 || n_head < 1 || n_embd < 1) {
    user_error("the model's sizes must be at least 1");
  }
  if (n_embd % n_head != 0) user_error("--n-head: ", n_head, " does not divide --n-embd ", n_embd);
}

double Gpt2Config::attention_scale(int layer) const {
  const double scale = scale_attn_weights ? 1 / std::sqrt(static_cast<double>(n_embd / n_head)) : 1;
  return scale_attn_by_inverse_layer_idx ? scale / (layer + 1) : scale;
}

const std::vector<Preset>& presets() {
  const auto preset = [](std::string_view name, int n_layer, int n_head, int n_embd, double learning_rate) {
    Gpt2Config config;
    config.n_layer = n_layer;
    config.n_head = n_head;
    config.n_embd = n_embd;
    return Preset{name, config, learning_rate};
  };
  static const std::vector<Preset> presets = [&] {
    std::vector<Preset> list = {
        preset("nano", 4, 4, 128, 3e-3),           preset("gpt2", 12, 12, 768, 6e-4),
        preset("gpt2-medium", 24, 16, 1024, 3e-4), preset("gpt2-large", 36, 20, 1280, 2.5e-4),
        preset("gpt2-xl", 48, 25, 1600, 2e-4),
    };
    Gpt2Config& nano = list[0].config;
    nano.block_size = 128;
    nano.vocab_size = 128;
    nano.initializer_range = 0.08;  // about 1/√C: with 0.02, a model this narrow learns half as fast
    return list;
  }();
  return presets;
}

ParameterTable gpt2_parameter_table(const Gpt2Config& config) {
  const double std = config.initializer_range;
  const double residual_std = std / std::sqrt(2.0 * config.n_layer);
  const std::int64_t C = config.n_embd, I = config.mlp_width();
  ParameterTable table;
  auto matrix = [&](std::string name, std::int64_t out, std::int64_t in, double init_std,
                    Split split = Split::none) {
    table.add({.name = std::move(name),
               .shape = {out, in},
               .padded_rows = out,
               .init_std = init_std,
               .split = split});
  };
  auto bias = [&](std::string name, std::int64_t n, Split split = Split::none) {
    table.add({.name = std::move(name), .shape = {n}, .padded_rows = n, .split = split});
  };
  auto tokens = [&](std::string name) {
    table.add({.name = std::move(name),
               .shape = {config.vocab_size, C},
               .padded_rows = config.padded_vocab_size(),
               .init_std = std,
               .split = Split::vocabulary});
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
    matrix(h + "attn.c_attn.weight", 3 * C, C, std, Split::qkv_heads);
    bias(h + "attn.c_attn.bias", 3 * C, Split::qkv_heads);
    matrix(h + "attn.c_proj.weight", C, C, residual_std, Split::columns);
    bias(h + "attn.c_proj.bias", C);
    norm(h + "ln_2");
    matrix(h + "mlp.c_fc.weight", I, C, std, Split::rows);
    bias(h + "mlp.c_fc.bias", I, Split::rows);
    matrix(h + "mlp.c_proj.weight", C, I, residual_std, Split::columns);
    bias(h + "mlp.c_proj.bias", C);
  }
  norm("ln_f");
  if (!config.tie_word_embeddings) tokens("lm_head.weight");
  for (const std::string& pattern : config.frozen) table.freeze(pattern);
  return table;
}

Gpt2::Gpt2(Backend& backend, Gpt2Config config, DType dtype, int ranks, Purpose purpose,
           std::optional<DType> activations, const Partition& partition)
    : config_(config),
      partition_(&partition),
      stage_(partition.stage()),
      parameters_(backend, partition.own(gpt2_parameter_table(config)), dtype, ranks, purpose, activations) {
  refer_to_parameters();
}

void Gpt2::refer_to_parameters() {
  const auto of_one_stage = [&](std::string_view name) {  // empty on the others
    return parameters_.table().find(name) < 0 ? Var() : parameters_.var(name);
  };
  layers_.assign(static_cast<std::size_t>(config_.n_layer), {});
  wte_ = of_one_stage("wte.weight");
  wpe_ = of_one_stage("wpe.weight");
  for (int l = stage_.first_block(config_.n_layer); l < stage_.end_block(config_.n_layer); ++l) {
    auto var = [&](const char* name) { return parameters_.var(concat("h.", l, ".", name)); };
    layers_[l] = {var("ln_1.weight"),      var("ln_1.bias"),          var("attn.c_attn.weight"),
                  var("attn.c_attn.bias"), var("attn.c_proj.weight"), var("attn.c_proj.bias"),
                  var("ln_2.weight"),      var("ln_2.bias"),          var("mlp.c_fc.weight"),
                  var("mlp.c_fc.bias"),    var("mlp.c_proj.weight"),  var("mlp.c_proj.bias")};
  }
  ln_f_weight_ = of_one_stage("ln_f.weight");
  ln_f_bias_ = of_one_stage("ln_f.bias");
  head_ = config_.tie_word_embeddings ? wte_ : of_one_stage("lm_head.weight");
}

Gpt2::Stream Gpt2::block(Tape& tape, int l, Stream stream, const Pass& pass) const {
  const Dropouts drop(config_.dropout, pass.dropout);
  const std::int64_t T = pass.shape[1], C = config_.n_embd, HS = C / config_.n_head;
  const double eps = config_.layer_norm_epsilon;
  const double scale = config_.attention_scale(l);
  const bool last = l + 1 == config_.n_layer;
  const Layer& h = layers_[l];
  auto& [x, norm] = stream;
  const Var& next_weight = last ? ln_f_weight_ : layers_[l + 1].ln_1_weight;
  const Var& next_bias = last ? ln_f_bias_ : layers_[l + 1].ln_1_bias;

  // Of a partition's NH heads and C channels, qkv and `wide` have those of this rank.
  const Partition& ranks = *partition_;
  Var all = ranks.enter(tape, norm, pass.shape);                // (B,T,C)
  Var qkv = linear(tape, all, h.c_attn_weight, h.c_attn_bias);  // (B,T,3C)
  const int heads = static_cast<int>(qkv.value().shape()[2] / 3 / HS);
  Var y =
      pass.cache
          ? cached_attention(tape, qkv, pass.cache->layers_[l], heads, scale, pass.cache->size_)
          : attention(tape, qkv, heads, scale,  // (B,T,C)
                      ranks.on_heads(drop.at(RandomStream::dropout_attention, l, config_.n_head * T * T)));
  y = ranks.leave(tape, linear(tape, y, h.attn_c_proj_weight, ranks.once(h.attn_c_proj_bias)));
  y = dropout(tape, y, ranks.on_rows(drop.at(RandomStream::dropout_residual, 2 * l, T * C), y.value()));
  std::tie(x, norm) = residual_layernorm(tape, x, y, h.ln_2_weight, h.ln_2_bias, eps);

  const Activated wide =  // (B,T,I), I = mlp_width()
      linear_activation(tape, ranks.enter(tape, norm, pass.shape), h.c_fc_weight, h.c_fc_bias,
                        config_.activation);
  y = ranks.leave(tape, activation_linear(tape, wide, h.mlp_c_proj_weight, ranks.once(h.mlp_c_proj_bias),
                                          pass.recompute == Recompute::gelu));  // (B,T,C)
  y = dropout(tape, y, ranks.on_rows(drop.at(RandomStream::dropout_residual, 2 * l + 1, T * C), y.value()));
  if (!last && l + 1 == stage_.end_block(config_.n_layer)) return {add(tape, x, y), Var()};
  std::tie(x, norm) = residual_layernorm(tape, x, y, next_weight, next_bias, eps);
  return stream;
}

Var Gpt2::input(Tape& tape, const Tensor& ids, const Pass& pass) const {
  if (!stage_.is_first()) return pass.before;
  const std::int64_t T = ids.shape()[1], C = config_.n_embd, first = pass.cache ? pass.cache->size_ : 0;
  const Dropouts drop(config_.dropout, pass.dropout);

  const Var wpe = pass.cache ? Var(wpe_.value().slice(first * C, {T, C})) : wpe_;
  const Var x = partition_->embed(tape, ids, wte_, wpe, config_.vocab_size);
  return dropout(tape, x, partition_->on_rows(drop.at(RandomStream::dropout_embedding, 0, T * C), x.value()));
}

Var Gpt2::hidden(Tape& tape, const Tensor& ids, const Pass& pass) const {
  const std::int64_t T = ids.shape()[1], first = pass.cache ? pass.cache->size_ : 0;
  check(first + T <= config_.block_size, "gpt2: ", first + T, " tokens in a context of ", config_.block_size);
  Stream stream;
  stream.x = input(tape, ids, pass);
  // The residual addition at the end of a branch is fused with the layernorm at the start of the next branch,
  // which may be in the next block. Only the layernorm of a stage's first block stands alone.
  const int first_block = stage_.first_block(config_.n_layer), end_block = stage_.end_block(config_.n_layer);
  const Layer& h = layers_[first_block];
  stream.norm = layernorm(tape, stream.x, h.ln_1_weight, h.ln_1_bias, config_.layer_norm_epsilon);

  for (int l = first_block; l < end_block; ++l) {
    if (pass.recompute == Recompute::block) {
      const std::vector<Var> outs = tape.recompute([=, this](Tape& inner) {
        const auto [x, norm] = block(inner, l, stream, pass);
        return norm.value().defined() ? std::vector<Var>{x, norm} : std::vector<Var>{x};
      });
      stream = {outs.front(), outs.back()};
    } else {
      stream = block(tape, l, std::move(stream), pass);
    }
  }
  if (pass.cache) pass.cache->size_ += T;
  if (!stage_.is_last()) return stream.x;
  return partition_->enter(tape, std::move(stream.norm), pass.shape);
}

Var Gpt2::own_logits(Tape& tape, Var hidden) const { return linear(tape, std::move(hidden), head_, Var()); }

Var Gpt2::all_logits(Tape& tape, Var hidden, const Shape& shape) const {
  partition_->send(hidden);
  Var logits;
  if (stage_.is_last())
    logits = partition_->all_logits(tape, own_logits(tape, std::move(hidden)), config_.vocab_size);
  return partition_->from_last_stage(tape.backend(), parameters_.activations(), shape, logits);
}

Gpt2::Pass Gpt2::inference_of(Backend& backend, const Tensor& ids) const {
  Pass pass = pass_of(ids);
  pass.before = partition_->receive(backend, parameters_.activations(), partition_->rows(pass.shape));
  return pass;
}

Var Gpt2::logits(Tape& tape, const Tensor& ids, std::optional<DropoutPosition> position,
                 Recompute recompute) const {
  Pass pass = inference_of(tape.backend(), ids);
  pass.dropout = position;
  pass.recompute = recompute;
  return all_logits(tape, hidden(tape, ids, pass),
                    {ids.shape()[0], ids.shape()[1], config_.padded_vocab_size()});
}

Tensor Gpt2::next_logits(Backend& backend, const Tensor& ids, KvCache& cache) const {
  const std::int64_t T = ids.shape()[1], C = config_.n_embd;
  check(ids.shape()[0] == 1 && T > 0, "gpt2: expected tokens of one sequence, not ids ", ids.shape());
  Tape tape(backend, Tape::Mode::inference);
  Pass pass = inference_of(backend, ids);
  pass.cache = &cache;
  Var last = hidden(tape, ids, pass);  // (1,T,C)
  if (stage_.is_last()) last = Var(last.value().slice((T - 1) * C, {1, 1, C}));
  const Tensor logits =
      all_logits(tape, std::move(last), {1, 1, config_.padded_vocab_size()}).value();  // (1,1,Vp)
  if (logits.dtype() != DType::bf16) return logits;
  const Tensor wide = backend.allocate(DType::f32, logits.shape());
  backend.cast(wide, logits);
  return wide;
}

void Gpt2::narrow_matrices(DType dtype) {
  parameters_.narrow(dtype, [](const Parameter& row) { return row.decays() && row.name != "wpe.weight"; });
  refer_to_parameters();
}

Var Gpt2::loss(Tape& tape, const Tensor& ids, const Tensor& targets, std::optional<DropoutPosition> dropout,
               Recompute recompute) const {
  check(stage_.count == 1 || tape.mode() == Tape::Mode::inference, "gpt2: the loss of one stage");
  Var before = inference_of(tape.backend(), ids).before;
  Var out = stage_output(tape, ids, targets, std::move(before), dropout, recompute);
  partition_->send(out);
  return out;
}

Var Gpt2::stage_output(Tape& tape, const Tensor& ids, const Tensor& targets, Var before,
                       std::optional<DropoutPosition> dropout, Recompute recompute) const {
  Pass pass = pass_of(ids);
  pass.dropout = std::move(dropout);
  pass.recompute = recompute;
  pass.before = std::move(before);
  Var out = hidden(tape, ids, pass);
  if (!stage_.is_last()) return out;
  return partition_->loss(tape, own_logits(tape, std::move(out)), targets, config_.vocab_size);
}

}  // namespace stagegpt
