// The health of each layer in one training step: gradients, the size of the update, and activations. Fields
// and formulas: docs/file_formats.md.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/model/language_model.h"
#include "common/parallel/grid.h"

namespace stagegpt {

// Measures of the residual stream after a transformer block and of what the block adds to it, over all tokens
// of the step.
struct BlockActivations {
  double mean = 0, rms = 0, largest = 0;      // of the stream's elements; the largest absolute value
  double attention_added = 0, mlp_added = 0;  // rms of a branch's output / rms of the stream before it
  double dead_units = 0;                      // share of the MLP's units that no token activates
};

struct LayerHealth {
  std::string name;         // "wte", "wpe", "h.0", …, "ln_f", "lm_head"
  double grad_norm = 0;     // of the layer's gradients, summed over ranks, before clipping
  double weight_norm = 0;   // before the update
  double update_ratio = 0;  // ‖w after - w before‖ / ‖w before‖; NaN if all weights are zero
  std::optional<BlockActivations> activations;  // of a block
};

// Measures one step of Trainer, which calls the methods below. Sums are taken in f64 in a fixed order, on the
// host but for the norms of gradients; every rank then adds the sums of all ranks in their order. The host
// keeps a copy of the weights that this rank measures for the time of the update. What several ranks update
// in the same way, the first of them measures.
class LayerWatch {
 public:
  // `owned`: what this rank updates of its part of the model. Backend and model are borrowed. A collective
  // call.
  LayerWatch(const Grid& grid, Backend& backend, const LanguageModel& model, const ArenaParts& owned);

  // Called for the ops of every forward pass of the step.
  void look(std::string_view op, std::span<const Var> inputs, std::span<const Var> outputs);
  // Between the reduction of the gradients and the update of the weights, and after this update.
  void before_update();
  void after_update();
  // The step's result, the same on all ranks. A collective call.
  std::vector<LayerHealth> finish();

 private:
  // Squares, summed over elements.
  struct ParameterSums {
    double gradients = 0, weights = 0, updates = 0;
    void add(const ParameterSums& other);
  };
  struct BlockSums {
    double elements = 0, sum = 0, squares = 0, largest = 0;
    double before_attention = 0, attention = 0, before_mlp = 0, mlp = 0;  // squares
    void add(const BlockSums& other);
  };
  // A part of a parameter that this rank measures.
  struct Piece {
    std::size_t layer;
    ArenaRange range;
  };

  // `active`: of the block's units.
  static BlockActivations activations(const BlockSums& sums, std::span<const char> active);
  // Marks the units (B,T,…) of this rank, before their activation, that a token activates.
  void mark_active(const Tensor& units);
  // The number of elements that this rank has of a stream: (B,T,C), or its rows (N/R,C) of that.
  double elements_of(const Shape& stream) const;

  Grid grid_;
  RankGroup& group_;  // of all ranks
  Backend& backend_;
  const LanguageModel& model_;
  std::vector<std::string> layers_;  // names, in the order of the whole model's table
  std::vector<Piece> pieces_;
  std::vector<ParameterSums> parameters_;  // by layer
  std::vector<BlockSums> blocks_;
  std::vector<char> active_;                // (L·I): whether a token has activated the unit
  std::vector<std::vector<float>> before_;  // weights of each piece
  int additions_ = 0;                       // to the residual stream in this pass, also of stages before
  std::int64_t tokens_ = 0;                 // N = B·T, where tensor ranks divide rows
  double stream_squares_ = 0;               // of the residual stream so far
};

}  // namespace stagegpt
