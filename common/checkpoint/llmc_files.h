// llm.c's binary files: a model's weights, and a reference state (batch, logits, loss, gradients) to compare
// with. Little-endian; a header of 256 int32, then tensors without gaps. Layouts: docs/file_formats.md.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "common/model/gpt2.h"

namespace stagegpt {

// The tensors of a model in llm.c's order, layers stacked, wte padded to padded_vocab_size() rows.
using LlmcTensors = std::span<const float>;

struct LlmcModel {
  Gpt2Config config;
  LlmcTensors weights;  // inside the file
};

struct LlmcState {
  std::int64_t B = 0, T = 0;
  std::span<const std::int32_t> ids, targets;  // (B,T)
  std::span<const float> logits;               // (B,T,V)
  float loss = 0;
  LlmcTensors grads;
};

// Reads a model file (version 3, f32). Throws UserError, naming `flag` and what is wrong, for any other file.
LlmcModel parse_llmc_model(std::span<const std::byte> file, std::string_view flag);
// Reads a debug state (version 2) of a model with this configuration. Tokens are checked against the
// vocabulary.
LlmcState parse_llmc_state(std::span<const std::byte> file, const Gpt2Config& config, std::string_view flag);

// Where parameter i of the table lies inside LlmcTensors, in elements, for its padded rows.
std::int64_t llmc_offset(const ParameterTable& table, const Gpt2Config& config, std::size_t i);

// Copies llm.c's weights into a model of the same configuration.
void load_llmc_weights(Backend& backend, const LlmcModel& file, const Parameters& parameters);

}  // namespace stagegpt
