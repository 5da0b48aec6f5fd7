// The parameters of a model in flat arenas: one for the weights, one for the gradients, two for Adam's
// moments. A parameter is a named slice of each. One table drives layout, initialisation, weight decay,
// sharding and I/O.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/autograd/tape.h"

namespace stagegpt {

// One row of the table.
struct Parameter {
  std::string name;          // Hugging Face's, as in "h.0.attn.c_attn.weight"
  Shape shape;               // without padding; weights of linear layers are (out,in)
  std::int64_t padded_rows;  // rows inside the arena, at least shape[0]; those behind shape[0] stay zero
  double init_mean = 0;
  double init_std = 0;
  std::int64_t offset = 0;  // in elements from the start of the arena

  // With its padding, as it lies in the arena.
  Shape arena_shape() const { return shape.rank() == 1 ? Shape{padded_rows} : Shape{padded_rows, shape[1]}; }
  // Only matrices decay: biases and layer norms do not.
  bool decays() const { return shape.rank() >= 2; }
};

// Elements [begin, end) of an arena.
struct ArenaRange {
  std::int64_t begin = 0, end = 0;

  std::int64_t size() const { return end - begin; }
};

class ParameterTable {
 public:
  // A parameter begins at a multiple of this many elements (256 bytes in f32), for vector loads.
  static constexpr std::int64_t kAlignment = 64;

  // Appends a row and places it. Names must differ.
  void add(Parameter parameter);

  const std::vector<Parameter>& rows() const { return rows_; }
  const Parameter& operator[](std::size_t i) const { return rows_[i]; }
  std::size_t size() const { return rows_.size(); }
  // Index of a name, or -1.
  int find(std::string_view name) const;
  // Elements of all parameters, without padding.
  std::int64_t numel() const;
  // Elements of an arena that divides evenly among `ranks`.
  std::int64_t arena_size(int ranks) const;
  // A part of the arena as ranges with and without weight decay, for AdamW: counted from the part's begin.
  std::vector<DecayRange> decay_ranges(double weight_decay, ArenaRange part) const;

 private:
  std::vector<Parameter> rows_;
  std::int64_t end_ = 0;
};

// What a model is for: one that only writes needs no memory for gradients.
enum class Purpose : std::uint8_t { training, inference };

class Parameters {
 public:
  // Weights and gradients are zero.
  Parameters(Backend& backend, ParameterTable table, DType dtype, int ranks = 1,
             Purpose purpose = Purpose::training);

  // Draws every parameter from its distribution, on `threads` threads. An element depends on the seed, its
  // parameter's place in the table and its own in the parameter, and on nothing else. Padding is left as it
  // is: zero. Of host memory little more than `threads` MB is needed.
  void initialize(std::uint64_t seed, int threads = 1);
  // The same for a part of the arena, such as a rank's slice.
  void initialize(std::uint64_t seed, int threads, ArenaRange part);

  const ParameterTable& table() const { return table_; }
  // Parameter i as an input of ops.
  const Var& var(std::size_t i) const { return vars_[i]; }
  const Var& var(std::string_view name) const;
  const Tensor& weights() const { return weights_; }  // (arena_size)
  const Tensor& grads() const { return grads_; }      // (arena_size); undefined for inference

  // Starts a new sum of gradients: the first contribution to each overwrites.
  void clear_grads();
  // Zeroes the gradients that nothing has contributed to since clear_grads().
  void finish_grads();

 private:
  Backend& backend_;
  ParameterTable table_;
  Tensor weights_, grads_;
  std::vector<Var> vars_;
};

}  // namespace stagegpt
