// The parameters of a model. They lie in arenas, which are flat tensors: one for the weights, one for the
// gradients, and two for Adam's moments. A parameter is a named slice of each arena. One table determines
// layout, initialisation, weight decay and I/O.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/autograd/tape.h"

namespace stagegpt {

// A block of rows and columns of a whole parameter.
struct ParameterBlock {
  std::int64_t row, column;  // where it begins
  std::int64_t rows, columns;
};

// One row of the table.
struct Parameter {
  std::string name;          // Hugging Face's, as in "h.0.attn.c_attn.weight"
  Shape shape;               // without padding; weights of linear layers are (out,in)
  std::int64_t padded_rows;  // rows in the arena, at least shape[0]; rows from shape[0] on stay zero
  double init_mean = 0;
  double init_std = 0;
  bool norm = false;        // of a layernorm, which reads it in f32 whatever activations are
  bool trained = true;      // otherwise it has no gradient, and the optimizer leaves it as it is
  std::int64_t offset = 0;  // in elements from the start of the arena
  int number = -1;          // in the table of the whole model; set by the first ParameterTable::add()
  // If this is a part of a parameter (common/parallel/parts.h): its rows, block after block, and the number
  // of columns of the whole parameter. Otherwise none.
  std::vector<ParameterBlock> blocks = {};
  std::int64_t whole_columns = 0;

  // The shape in the arena, with padding.
  Shape arena_shape() const { return shape.rank() == 1 ? Shape{padded_rows} : Shape{padded_rows, shape[1]}; }
  // Weight decay applies to matrices, not to biases and layernorms.
  bool is_matrix() const { return shape.rank() >= 2; }
  bool decays() const { return is_matrix(); }
  // Divides elements [begin, end) into runs that are neighbours in the whole parameter too. Calls
  // run(element, element of the whole parameter, number of elements).
  template <class Run>
  void for_each_run(std::int64_t begin, std::int64_t end, const Run& run) const;
};

template <class Run>
void Parameter::for_each_run(std::int64_t begin, std::int64_t end, const Run& run) const {
  if (blocks.empty()) return run(begin, begin, end - begin);
  std::int64_t first = 0;  // element of a block
  for (const auto& [row, column, rows, columns] : blocks) {
    const std::int64_t width = columns == whole_columns ? rows * columns : columns;
    for (std::int64_t i = std::max(begin, first); i < std::min(end, first + rows * columns);) {
      const std::int64_t in_block = i - first, left = width - in_block % width;
      const std::int64_t whole = (row + in_block / columns) * whole_columns + column + in_block % columns;
      const std::int64_t n = std::min(left, end - i);
      run(i, whole, n);
      i += n;
    }
    first += rows * columns;
  }
}

// Elements [begin, end) of an arena.
struct ArenaRange {
  std::int64_t begin = 0, end = 0;

  std::int64_t size() const { return end - begin; }
};

// What a rank owns of an arena: ranges in ascending order, which do not overlap.
using ArenaParts = std::vector<ArenaRange>;
// The number of elements of all parts.
std::int64_t total_size(const ArenaParts& parts);

// Elements [begin, end) of parameter `parameter` of a table, in row-major order of its shape, without
// padding. It is the same on any division of the arena among ranks.
struct Piece {
  std::size_t parameter = 0;
  std::int64_t begin = 0, end = 0;

  std::int64_t size() const { return end - begin; }
  bool operator==(const Piece&) const = default;
};

class ParameterTable {
 public:
  // A parameter begins at a multiple of this many elements (256 bytes in f32), for vector loads.
  static constexpr std::int64_t kAlignment = 64;

  // Appends a row and sets its offset and, if it has none, its number. No two names may be equal.
  void add(Parameter parameter);

  const std::vector<Parameter>& rows() const { return rows_; }
  const Parameter& operator[](std::size_t i) const { return rows_[i]; }
  std::size_t size() const { return rows_.size(); }
  // Index of a name, or -1.
  int find(std::string_view name) const;
  // Number of elements of all parameters, without padding.
  std::int64_t numel() const;
  // Number of elements of the parameters that are trained.
  std::int64_t trained_numel() const;
  // Parameters whose names match a pattern, as in fnmatch(3), are not trained. Returns how many match.
  std::int64_t freeze(const std::string& pattern);
  // Number of elements of an arena, padded so that it divides into `parts` equal parts.
  std::int64_t arena_size(int parts) const;
  // The pieces in a part of the arena, in its order, each of at most `most` elements.
  std::vector<Piece> pieces(const ArenaRange& part, std::int64_t most) const;
  // Where the parameters of layernorms are. Neighbours are one range.
  ArenaParts norms() const;
  // Divides the chosen parameters in a part of the arena into ranges with and without weight decay, for
  // AdamW. Positions are relative to the beginning of the part.
  std::vector<DecayRange> decay_ranges(
      double weight_decay, ArenaRange part,
      const std::function<bool(const Parameter&)>& chosen = &Parameter::trained) const;

 private:
  std::vector<Parameter> rows_;
  std::int64_t end_ = 0;
};

// An arena of `numel` elements, all zero. Filling a large one takes seconds, because the system provides each
// page of memory when it is first written. Stop signals are therefore checked after each piece: throws
// Stopped.
Tensor zero_arena(Backend& backend, DType dtype, std::int64_t numel);

// What a model is used for. For inference, no gradients are allocated.
enum class Purpose : std::uint8_t { training, inference };

class Parameters {
 public:
  // Weights and gradients are zero at first. `activations` is bf16 where ops read parameters from a shadow in
  // bf16, but for those of layernorms; else it is `dtype`.
  Parameters(Backend& backend, ParameterTable table, DType dtype, int arena_parts = 1,
             Purpose purpose = Purpose::training, std::optional<DType> activations = std::nullopt);

  // Draws every parameter from its distribution, on `threads` threads. An element depends only on the seed,
  // on the number of its parameter, and on its index in the whole parameter. Padding is not written: it
  // stays zero. Takes little more than `threads` MB of host memory.
  void initialize(std::uint64_t seed, int threads = 1);
  // Initialises a part of the arena, such as a rank's slice.
  void initialize(std::uint64_t seed, int threads, ArenaRange part);

  const ParameterTable& table() const { return table_; }
  // Parameter i, as an input for ops.
  const Var& var(std::size_t i) const { return vars_[i]; }
  const Var& var(std::string_view name) const;
  // (arena_size); undefined after narrow(). Where ops read a shadow, those of other ranks may be out of date:
  // GradientSync::gather_weights().
  const Tensor& weights() const { return weights_; }
  // (arena_size); undefined for inference. Zero where a parameter is not trained.
  const Tensor& grads() const { return grads_; }
  // The gradients of a range of the arena.
  Tensor grads(const ArenaRange& range) const { return grads_.slice(range.begin, {range.size()}); }
  // The dtype of activations.
  DType activations() const { return activations_; }
  // bf16 (arena_size), the weights rounded, which ops read; undefined unless activations are bf16. Whoever
  // changes the weights changes it too: AdamW does, and others call update_shadow().
  const Tensor& shadow() const { return shadow_; }
  // Copies the weights to the shadow, if there is one.
  void update_shadow();
  // For inference in f32: from now on, var() of each parameter that `is_narrowed` selects is in `dtype`:
  // bf16, rounded to nearest, or i8, quantised by rows. The others are copied, and the memory of weights() is
  // freed, unless another tensor refers to it.
  void narrow(DType dtype, const std::function<bool(const Parameter&)>& is_narrowed);

  // Starts a new sum of gradients: the first contribution to each gradient overwrites it.
  void clear_grads();
  // Sets the gradients without a contribution since clear_grads() to zero.
  void finish_grads();

 private:
  Backend& backend_;
  ParameterTable table_;
  DType activations_;
  Tensor weights_, grads_, shadow_;
  std::vector<Var> vars_;
};

}  // namespace stagegpt
