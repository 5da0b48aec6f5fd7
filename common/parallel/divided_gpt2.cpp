#include "common/parallel/divided_gpt2.h"

#include <utility>

#include "common/autograd/ops/add.h"
#include "common/autograd/ops/dropout.h"
#include "common/autograd/ops/linear.h"
#include "common/parallel/tensor_parallel.h"

namespace stagegpt {

DividedGpt2::DividedGpt2(Backend& backend, const Gpt2Config& config, const Grid& grid, DType dtype,
                         Purpose purpose, std::optional<DType> activations)
    : LanguageModel(backend, config, own_table(gpt2_parameter_table(config), grid), dtype, grid.data().size(),
                    purpose, activations),
      grid_(grid),
      layers_(parameters(), config) {
  if (grid.tensor().rank() == 0) return;
  // A bias that is added to a sum over the tensor ranks must be in one summand only.
  for (Block& h : layers_.h) h.attn.c_proj_bias = h.mlp.c_proj_bias = Var();
}

ResidualStream DividedGpt2::block(Tape& tape, int l, ResidualStream stream, const Pass& pass) const {
  const Block& h = layers_.h[static_cast<std::size_t>(l)];
  Communicator& ranks = grid_.tensor();
  Var norm = gathered(tape, ranks, h.ln_1.forward(tape, stream), pass.shape());  // (N/R,C) -> (B,T,C)
  Var y = h.attn.forward(tape, {norm}, on_heads(pass.attention_dropout(l)), pass.cache(l));
  y = scattered_sum(tape, ranks, std::move(y));  // (B,T,C) -> (N/R,C)
  stream.y = dropout(tape, y, on_rows(pass.branch_dropout(2 * l), y));

  norm = gathered(tape, ranks, h.ln_2.forward(tape, stream), pass.shape());
  y = h.mlp.forward(tape, {norm}, pass.recompute());
  y = scattered_sum(tape, ranks, std::move(y));
  stream.y = dropout(tape, y, on_rows(pass.branch_dropout(2 * l + 1), y));
  return stream;
}

Var DividedGpt2::hidden(Tape& tape, const Tensor& ids, const Pass& pass, Var before) const {
  check(before.value().defined() != stage().is_first(), "gpt2: all stages but the first continue a stream");
  Communicator& ranks = grid_.tensor();
  ResidualStream stream{std::move(before)};
  if (stage().is_first()) {
    const Var wpe = ranks.rank() == 0 ? layers_.wpe : Var();
    const Var x = vocabulary_embedding(tape, ranks, ids, layers_.wte, wpe, own_tokens(), pass.position());
    stream.x = dropout(tape, x, on_rows(pass.embedding_dropout(), x));
  }
  const int end = stage().end_block(config().n_layer);
  for (int l = stage().first_block(config().n_layer); l < end; ++l) {
    stream = run_block(tape, pass.recompute(), std::move(stream), [=, this](Tape& on, ResidualStream input) {
      return block(on, l, std::move(input), pass);
    });
  }
  if (!stage().is_last()) return add(tape, stream.x, stream.y);
  return gathered(tape, ranks, layers_.ln_f.forward(tape, stream), pass.shape());
}

Var DividedGpt2::loss(Tape& tape, const Tensor& ids, const Tensor& targets,
                      const PassOptions& options) const {
  const Pass pass(config(), ids, options);
  const bool is_inference = tape.mode() == Tape::Mode::inference;
  Var out = hidden(tape, ids, pass, is_inference ? receive(tape.backend(), pass.shape()) : options.before);
  if (stage().is_last()) {
    out = vocabulary_cross_entropy(tape, grid_.tensor(), linear(tape, std::move(out), layers_.lm_head, Var()),
                                   targets, own_tokens());
  } else if (is_inference) {
    send(out);
  }
  return out;
}

Var DividedGpt2::logits(Tape& tape, const Tensor& ids, const PassOptions& options) const {
  const Pass pass(config(), ids, options);
  Var out = hidden(tape, ids, pass, receive(tape.backend(), pass.shape()));
  return logits_on_all_ranks(tape, std::move(out), ids.shape());
}

Var DividedGpt2::last_logits(Tape& tape, const Tensor& ids, const KvCache& cache) const {
  const Pass pass(config(), ids, {}, &cache);
  Var out = hidden(tape, ids, pass, receive(tape.backend(), pass.shape()));
  if (stage().is_last()) out = last_token(out);
  return logits_on_all_ranks(tape, std::move(out), {ids.shape()[0], 1});
}

Var DividedGpt2::logits_on_all_ranks(Tape& tape, Var out, const Shape& tokens) const {
  Communicator& stages = grid_.pipeline();
  Var logits;
  if (stage().is_last()) {
    logits = linear(tape, std::move(out), layers_.lm_head, Var());
    logits = all_logits(tape, grid_.tensor(), std::move(logits), config().vocab_size);
  } else {
    send(out);
    const Shape shape{tokens[0], tokens[1], config().padded_vocab_size()};
    logits = Var(tape.backend().allocate(parameters().activations(), shape));
  }
  if (stages.size() > 1) stages.broadcast(logits.value(), stages.size() - 1);
  return logits;
}

Var DividedGpt2::receive(Backend& backend, const Shape& shape) const {
  if (stage().is_first()) return Var();
  const Tensor stream = backend.allocate(parameters().activations(), rows_of_rank(grid_.tensor(), shape));
  grid_.pipeline().receive(stream, stage().index - 1)->wait();
  return Var(stream);
}

void DividedGpt2::send(const Var& stream) const {
  grid_.pipeline().send(stream.value(), stage().index + 1)->wait();
}

Dropout DividedGpt2::on_rows(Dropout dropout, const Var& rows) const {
  dropout.first_element += grid_.tensor().rank() * rows.value().numel();
  return dropout;
}

Dropout DividedGpt2::on_heads(Dropout dropout) const {
  if (grid_.tensor().size() == 1) return dropout;
  dropout.stride = dropout.sequence_elements;  // all heads of a sequence
  dropout.run = dropout.stride / grid_.tensor().size();
  dropout.first_element += grid_.tensor().rank() * dropout.run;
  return dropout;
}

VocabularyPart DividedGpt2::own_tokens() const {
  return vocabulary_part(config().vocab_size, {grid_.tensor().rank(), grid_.tensor().size()});
}

Shape stream_shape(const Gpt2Config& config, const Grid& grid, std::int64_t B, std::int64_t T) {
  return rows_of_rank(grid.tensor(), {B, T, config.n_embd});
}

std::unique_ptr<LanguageModel> make_gpt2(Backend& backend, const Gpt2Config& config, const Grid& grid,
                                         Purpose purpose, std::optional<DType> activations) {
  if (grid.divides_model())
    return std::make_unique<DividedGpt2>(backend, config, grid, DType::f32, purpose, activations);
  return std::make_unique<Gpt2>(backend, config, DType::f32, grid.data().size(), purpose, activations);
}

}  // namespace stagegpt
