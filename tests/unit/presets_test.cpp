// All numbers of the presets. GPT-2's four sizes are those of its paper and of Brown et al.
#include "common/model/presets.h"

#include <gtest/gtest.h>

#include "common/base/error.h"
#include "tests/support/refusal.h"

namespace stagegpt::test {
namespace {

TEST(Presets, AreThese) {
  std::string table;
  for (const auto& [name, config, learning_rate] : presets()) {
    table += concat(name, ' ', config.n_layer, ' ', config.n_head, ' ', config.n_embd, ' ', config.block_size,
                    ' ', config.vocab_size, ' ', config.initializer_range, ' ', config.dropout, ' ',
                    name_of(config.activation), ' ', learning_rate, '\n');
  }
  EXPECT_EQ(table,
            "nano 4 4 128 128 128 0.08 0 gelu_new 0.003\n"
            "gpt2 12 12 768 1024 50257 0.02 0 gelu_new 0.0006\n"
            "gpt2-medium 24 16 1024 1024 50257 0.02 0 gelu_new 0.0003\n"
            "gpt2-large 36 20 1280 1024 50257 0.02 0 gelu_new 0.00025\n"
            "gpt2-xl 48 25 1600 1024 50257 0.02 0 gelu_new 0.0002\n");
}

TEST(Gpt2Configuration, RefusesSizesThatMakeNoModel) {
  const auto refusal_of = [](const auto& change) {
    Gpt2Config config;
    change(config);
    return refusal([&] { config.validate(); });
  };
  EXPECT_EQ(refusal_of([](Gpt2Config&) {}), "");
  const std::string sizes = "the model's sizes must be at least 1";
  EXPECT_EQ(refusal_of([](Gpt2Config& config) { config.vocab_size = 0; }), sizes);
  EXPECT_EQ(refusal_of([](Gpt2Config& config) { config.block_size = 0; }), sizes);
  EXPECT_EQ(refusal_of([](Gpt2Config& config) { config.n_layer = 0; }), sizes);
  EXPECT_EQ(refusal_of([](Gpt2Config& config) { config.n_head = 0; }), sizes);
  EXPECT_EQ(refusal_of([](Gpt2Config& config) { config.n_embd = 0; }), sizes);
  EXPECT_EQ(refusal_of([](Gpt2Config& config) {
              config.vocab_size = config.block_size = config.n_layer = config.n_head = config.n_embd = 1;
            }),
            "");
  EXPECT_EQ(refusal_of([](Gpt2Config& config) { config.n_head = 5; }),
            "--n-head: 5 does not divide --n-embd 768");
}

TEST(Gpt2Configuration, RoundsTheVocabularyUp) {
  for (const auto& [size, padded] : {std::pair{1, 128}, {127, 128}, {128, 128}, {129, 256}, {50257, 50304}}) {
    EXPECT_EQ(Gpt2Config{.vocab_size = size}.padded_vocab_size(), padded);
  }
}

}  // namespace
}  // namespace stagegpt::test
