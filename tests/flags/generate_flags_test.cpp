// Flags of stage0_generate: the generated text is compared with the text computed from the definitions.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "common/checkpoint/hugging_face_model.h"
#include "common/data/tokenizers/load_tokenizer.h"
#include "common/tensor/half_floats.h"
#include "tests/data/make_tokenizers.h"
#include "tests/support/program.h"
#include "tests/support/tensors.h"

namespace stagegpt::test {
namespace {

using Arguments = std::vector<std::string>;

constexpr int kLetters = 20;

// The logit of token `id` after any text. All logits are different, in f32 and in bf16.
float logit_of(int id) { return 0.25f * static_cast<float>(7 * id % 23) - 2 + 0.001f; }

// A model whose logits do not depend on the text. Its last layernorm always gives its bias, (1, 0, …), so the
// logits are the first column of wte. Its tokens are letters, and the end-of-text token, which it never
// generates.
class GenerateFlags : public testing::Test {
 protected:
  GenerateFlags() {
    std::string letters;
    for (int i = 0; i < kLetters; ++i) letters += static_cast<char>('a' + i);
    const auto tokenizer = char_tokenizer(letters);
    const Gpt2Config config{
        .vocab_size = kLetters + 1, .block_size = 16, .n_layer = 1, .n_head = 1, .n_embd = 4};
    const ParameterTable table = gpt2_parameter_table(config);
    const ParameterValues values = [&](std::size_t i, std::int64_t begin, std::span<float> out) {
      for (std::size_t k = 0; k < out.size(); ++k) {
        const std::int64_t element = begin + static_cast<std::int64_t>(k);
        out[k] = 0;
        if (table[i].name == "ln_f.bias" && element == 0) out[k] = 1;
        if (table[i].name == "wte.weight" && element % 4 == 0)
          out[k] = element / 4 == kLetters ? -1000 : logit_of(static_cast<int>(element / 4));
      }
    };
    std::filesystem::create_directory(directory_.path() / "model");
    write_hugging_face(directory_.path() / "model", config, values, tokenizer.get());
  }

  ProgramResult run(const Arguments& arguments) const {
    return expect_done(run_program(
        "stage0_generate", words("--model model --threads 1 --prompt c") + arguments, directory_.path()));
  }

  ScratchDirectory directory_;
};

struct Sampling {
  double temperature = 0.7;
  std::size_t top_k = 0;
  double top_p = 1, repetition_penalty = 1;
  std::uint64_t seed = 1337;
  bool bf16 = false;
};

// The letters that may follow `text` and their probabilities, most probable first.
std::vector<std::pair<double, int>> letters_behind(const std::string& text, const Sampling& sampling) {
  std::vector<std::pair<double, int>> letters;
  for (int id = 0; id < kLetters; ++id) {
    double logit = logit_of(id);
    if (sampling.bf16) logit = float_of_bf16(bf16_of_float(logit_of(id)));
    if (text.find(static_cast<char>('a' + id)) != std::string::npos)
      logit = logit > 0 ? logit / sampling.repetition_penalty : logit * sampling.repetition_penalty;
    letters.emplace_back(logit, id);
  }
  std::ranges::sort(letters, std::greater<>());
  if (sampling.top_k > 0) letters.resize(std::min(letters.size(), sampling.top_k));
  const double best = letters[0].first;
  double sum = 0;
  for (auto& [p, id] : letters) sum += p = std::exp((p - best) / sampling.temperature);
  double kept = 0;
  std::size_t count = 0;
  while (count < letters.size() && (sampling.top_p == 1 || kept < sampling.top_p * sum))
    kept += letters[count++].first;
  letters.resize(count);
  for (auto& [p, id] : letters) p /= kept;
  // Without top-k and top-p, sampling goes through the letters in the order of their ids.
  if (sampling.top_k == 0 && sampling.top_p == 1)
    std::ranges::sort(letters, {}, [](const auto& letter) { return letter.second; });
  return letters;
}

// The text that sample `sample` adds to the prompt "c". The random numbers are tested in
// tests/random/draws_test.cpp.
std::string expected_text(const Sampling& sampling, std::uint32_t sample, std::size_t count) {
  std::string text = "c";
  while (text.size() <= count) {
    const auto letters = letters_behind(text, sampling);
    const RandomKey key{sampling.seed, stream_id(RandomStream::sample), sample};
    double u = random_uniform(key, text.size() - 1);
    std::size_t i = 0;
    while (i + 1 < letters.size() && u >= letters[i].first) u -= letters[i++].first;
    text += static_cast<char>('a' + letters[i].second);
  }
  return text.substr(1);
}

TEST_F(GenerateFlags, DecideWhichLettersAreDrawn) {
  const std::vector<std::pair<Arguments, Sampling>> cases = {
      {{}, {}},
      {{"--temperature", "2.5", "--seed", "8589934597"}, {.temperature = 2.5, .seed = 8589934597}},
      {{"--top-k", "3", "--temperature", "5"}, {.temperature = 5, .top_k = 3}},
      {{"--top-p", "0.6", "--temperature", "3"}, {.temperature = 3, .top_p = 0.6}},
      {{"--repetition-penalty", "3"}, {.repetition_penalty = 3}},
      {{"--weights", "bf16", "--temperature", "0.02"}, {.temperature = 0.02, .bf16 = true}},
  };
  std::vector<std::string> texts;
  for (const auto& [arguments, sampling] : cases) {
    const auto json =
        nlohmann::json::parse(run(arguments + words("--num-samples 2 --max-new-tokens 60 --json")).output);
    ASSERT_EQ(json["samples"].size(), 2u);
    for (const std::uint32_t sample : {0, 1}) {
      texts.push_back(json["samples"][sample]["text"]);
      EXPECT_EQ(texts.back(), expected_text(sampling, sample, 60)) << sample;
    }
    // Each flag has an effect: the default settings give a different text.
    if (!arguments.empty() && !sampling.bf16) {
      EXPECT_NE(texts.back(), expected_text({}, 1, 60)) << arguments.front();
    }
  }
}

TEST_F(GenerateFlags, DecideWhereATextEnds) {
  const std::string whole = expected_text({}, 0, 30);
  EXPECT_EQ(run({"--max-new-tokens", "30"}).output, "c" + whole + "\n");  // printed after the prompt
  const std::string stop = whole.substr(11, 3);
  EXPECT_EQ(run({"--max-new-tokens", "30", "--stop", stop}).output,
            "c" + whole.substr(0, whole.find(stop)) + "\n");
}

}  // namespace
}  // namespace stagegpt::test
