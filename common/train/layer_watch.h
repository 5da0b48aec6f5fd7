// The health of each layer in one training step: gradients, the size of the update, and activations. Fields
// and formulas: docs/file_formats.md.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/comm/rank_group.h"
#include "common/model/gpt2.h"

namespace stagegpt {

// Of the residual stream after a transformer block and of what the block adds to it, over all tokens of the
// step.
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
// keeps a copy of the weights that this rank updates for the time of the update.
class LayerWatch {
 public:
  // `owned`: what this rank updates. All arguments must outlive the watch.
  LayerWatch(RankGroup& group, Backend& backend, const Gpt2& model, ArenaParts owned);

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
  // The part of a parameter that this rank owns.
  struct Piece {
    std::size_t layer;
    ArenaRange range;
  };

  // `active`: of the block's units.
  static BlockActivations activations(const BlockSums& sums, std::span<const char> active);

  RankGroup& group_;
  Backend& backend_;
  const Gpt2& model_;
  bool divided_;                     // each rank owns another part
  std::vector<std::string> layers_;  // names, in the order of the table
  std::vector<Piece> pieces_;
  std::vector<ParameterSums> parameters_;  // by layer
  std::vector<BlockSums> blocks_;
  std::vector<char> active_;                // (L·I): whether a token has activated the unit
  std::vector<std::vector<float>> before_;  // weights of each piece
  int additions_ = 0;                       // to the residual stream in this pass
  double stream_squares_ = 0;               // of the residual stream so far
};

}  // namespace stagegpt
