// The position of each tensor in llm.c's files.
#include "common/checkpoint/llmc_files.h"

#include <gtest/gtest.h>

namespace stagegpt {
namespace {

TEST(LlmcOffset, StacksTheLayersOfEachKind) {
  Gpt2Config config;
  config.vocab_size = 101;
  config.block_size = 20;
  config.n_layer = 2;
  config.n_head = 3;
  config.n_embd = 48;
  const ParameterTable table = gpt2_parameter_table(config);
  const std::vector<std::int64_t> offsets = llmc_offsets(table, config);
  const auto offset = [&](const char* name) { return offsets[static_cast<std::size_t>(table.find(name))]; };
  constexpr std::int64_t C = 48, L = 2;
  EXPECT_EQ(offset("wte.weight"), 0);
  EXPECT_EQ(offset("wpe.weight"), 128 * C);
  const std::int64_t layers = (128 + 20) * C;
  EXPECT_EQ(offset("h.0.ln_1.weight"), layers);
  EXPECT_EQ(offset("h.1.ln_1.weight"), layers + C);
  EXPECT_EQ(offset("h.0.ln_1.bias"), layers + L * C);
  EXPECT_EQ(offset("h.0.attn.c_attn.weight"), layers + 2 * L * C);
  EXPECT_EQ(offset("h.1.attn.c_attn.weight"), layers + 2 * L * C + 3 * C * C);
  const std::int64_t per_layer = 12 * C * C + 13 * C;
  EXPECT_EQ(offset("h.1.mlp.c_proj.bias"), layers + L * per_layer - C);
  EXPECT_EQ(offset("ln_f.weight"), layers + L * per_layer);
  EXPECT_EQ(offset("ln_f.bias"), layers + L * per_layer + C);
}

}  // namespace
}  // namespace stagegpt
