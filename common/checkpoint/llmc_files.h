// llm.c's binary files: a model's weights, and a reference state (batch, logits, loss, gradients) for
// comparison. Little-endian; a header of 256 int32, then tensors without gaps. Layouts: docs/file_formats.md.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "common/checkpoint/model_file.h"

namespace stagegpt {

// The data type of the weights in a model file.
enum class LlmcPrecision : std::uint8_t { f32, bf16 };

struct LlmcState {
  std::int64_t B = 0, T = 0;
  std::span<const std::int32_t> ids, targets;  // (B,T)
  std::span<const float> logits;               // (B,T,V)
  float loss = 0;
  std::span<const float> grads;  // in the order of the weights in a model file
};

// Parses a model file: version 3 (f32) or 5 (bf16). The values are read from `file`, which is borrowed.
// Throws UserError, which names `flag` and the problem, for any other file.
ModelFile parse_llmc_model(std::span<const std::byte> file, std::string_view flag);
// Parses a debug state (version 2) of a model with this configuration. Throws UserError for a model that
// llm.c does not support, and for tokens that are not in the vocabulary.
LlmcState parse_llmc_state(std::span<const std::byte> file, const Gpt2Config& config, std::string_view flag);

// The offset of each parameter of the table in llm.c's order, in elements, including padded rows.
std::vector<std::int64_t> llmc_offsets(const ParameterTable& table, const Gpt2Config& config);

// Writes a model file, which is on the disk when the call returns. Throws UserError for a model that llm.c
// does not support. Other errors are those of OutputFile.
void write_llmc_model(const std::filesystem::path& path, const Gpt2Config& config,
                      const ParameterValues& values, LlmcPrecision precision);

}  // namespace stagegpt
