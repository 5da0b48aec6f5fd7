// The tape of one training step: its ops, what each reads and writes, and the memory that is in use.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "common/model/gpt2.h"

namespace stagegpt {

struct TapeNode {
  std::string op;                       // "linear"
  std::string layer;                    // the layer of its parameters: "h.0.mlp.c_fc"; empty without any
  std::vector<std::size_t> inputs;      // the nodes whose outputs it reads, each once
  std::vector<std::string> parameters;  // those that it reads
  std::vector<Shape> outputs;
  std::size_t bytes = 0;   // of its outputs
  std::size_t in_use = 0;  // activations in memory when the op has run, in bytes
};

struct TapeGraph {
  std::int64_t B = 0, T = 0;
  std::vector<TapeNode> nodes;        // in the order in which forward runs them; backward is the reverse
  std::size_t weights = 0, peak = 0;  // bytes of weights and gradients; the most activations at any time
};

// The tape of a step with B sequences of T tokens in f32. Nothing is computed: the model runs on a planning
// backend, which takes no memory.
TapeGraph trace_tape(const Gpt2Config& config, std::int64_t B, std::int64_t T);

}  // namespace stagegpt
