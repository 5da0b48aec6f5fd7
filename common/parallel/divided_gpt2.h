// A GPT-2 that several ranks compute together: tensor ranks have parts of each layer (tensor_parallel.h), the
// stages of a pipeline have different blocks. It is composed of the layers of gpt2.h, with collectives
// between them.
#pragma once

#include <memory>
#include <optional>

#include "common/model/gpt2.h"
#include "common/parallel/grid.h"
#include "common/parallel/parts.h"

namespace stagegpt {

// One rank's part. Its residual stream has this rank's rows, (N/R,C) of N = B·T rows.
class DividedGpt2 final : public LanguageModel {
 public:
  // Keeps the grid, whose world is borrowed. The other arguments are as for Gpt2; the arena divides among the
  // data ranks.
  DividedGpt2(Backend& backend, const Gpt2Config& config, const Grid& grid, DType dtype = DType::f32,
              Purpose purpose = Purpose::training, std::optional<DType> activations = std::nullopt);

  // On a training tape, this stage's part alone: it continues options.before, which is empty on the first
  // stage, and returns its stream, of stream_shape(), or on the last stage the loss. On an inference tape all
  // stages compute the loss together, one after the other; those before the last return their streams.
  Var loss(Tape& tape, const Tensor& ids, const Tensor& targets,
           const PassOptions& options = {}) const override;
  // All ranks compute them together, and have them.
  Var logits(Tape& tape, const Tensor& ids, const PassOptions& options = {}) const override;

 private:
  Var last_logits(Tape& tape, const Tensor& ids, const KvCache& cache) const override;
  // The output of the last layernorm (B,T,C); on a stage that is not the last, its residual stream.
  Var hidden(Tape& tape, const Tensor& ids, const Pass& pass, Var before) const;
  ResidualStream block(Tape& tape, int l, ResidualStream stream, const Pass& pass) const;
  // For inference: the logits (B,T,Vp) on all ranks, of tokens of shape (B,T). `out`: on the last stage the
  // output (B,T,C) of the last layernorm; on others the stream, which is sent to the next one.
  Var logits_on_all_ranks(Tape& tape, Var out, const Shape& tokens) const;
  // For inference: the residual stream of the stage before, where all ranks have (B,T,C) = `shape`; empty on
  // the first stage. And this stage's stream to the next one.
  Var receive(Backend& backend, const Shape& shape) const;
  void send(const Var& stream) const;
  // Which elements of a dropout over the whole tensor are this rank's: of its rows (N/R,C), or of its heads.
  Dropout on_rows(Dropout dropout, const Var& rows) const;
  Dropout on_heads(Dropout dropout) const;
  VocabularyPart own_tokens() const;
  ModelStage stage() const { return stage_of(grid_); }

  Grid grid_;
  Gpt2Layers layers_;
};

// The shape of a rank's rows of the residual stream, for B sequences of T tokens.
Shape stream_shape(const Gpt2Config& config, const Grid& grid, std::int64_t B, std::int64_t T);

// What a rank of a grid holds of a model with weights in f32: Gpt2, or its part.
std::unique_ptr<LanguageModel> make_gpt2(Backend& backend, const Gpt2Config& config, const Grid& grid,
                                         Purpose purpose, std::optional<DType> activations);

}  // namespace stagegpt
