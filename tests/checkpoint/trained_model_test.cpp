// Loading a model for generation from a directory or from llm.c's file, and error messages.
#include "common/app/trained_model.h"

#include <gtest/gtest.h>

#include "common/base/error.h"
#include "common/checkpoint/hugging_face_model.h"
#include "stage0_serial/cpu_backend.h"
#include "tests/support/program.h"
#include "tests/support/refusal.h"

namespace stagegpt::test {
namespace {

const std::string kGoldenFiles = STAGEGPT_SOURCE_DIR "/tests/golden/";
const std::string kDirectory = kGoldenFiles + "hugging_face/plain", kFile = kGoldenFiles + "one.bin";
// A tokenizer of 638 tokens.
const std::string kTokenizer = kGoldenFiles + "saved_char.json";

// The error message of load_trained_model(), which calls `check` with the model's configuration.
std::string refusal_of_model(const std::string& path, const std::optional<std::string>& tokenizer,
                             const std::function<void(const Gpt2Config&)>& check) {
  const std::unique_ptr<Backend> backend = make_cpu_backend(1);
  const std::string says = refusal([&] { load_trained_model(*backend, path, tokenizer, check); });
  EXPECT_EQ(backend->memory_stats().bytes_in_use, 0u);
  return says;
}

// `check` is called before memory is allocated for the model.
TEST(TrainedModels, AreCheckedWhenTheirSizeIsKnown) {
  const auto no_room = [](const Gpt2Config& config) {
    user_error("no room for ", config.vocab_size, " tokens and ", config.block_size, " positions");
  };
  EXPECT_EQ(refusal_of_model(kFile, kTokenizer, no_room), "no room for 37 tokens and 7 positions");
  const Gpt2Config directory = read_hugging_face(kDirectory, "--model").config;
  EXPECT_EQ(refusal_of_model(kDirectory, kTokenizer, no_room),
            concat("no room for ", directory.vocab_size, " tokens and ", directory.block_size, " positions"));
}

TEST(TrainedModels, AreNotOneFileOfTheirDirectory) {
  const auto any = [](const Gpt2Config&) {};
  for (const char* name : {"/model.safetensors", "/config.json"}) {
    EXPECT_EQ(
        refusal_of_model(kDirectory + name, kTokenizer, any),
        concat("--model: expected the directory of \"", kDirectory, name, "\", with all files of its model"));
  }
}

TEST(TrainedModels, NeedATokenizerThatFits) {
  const auto any = [](const Gpt2Config&) {};
  EXPECT_EQ(
      refusal_of_model(kFile, std::nullopt, any),
      "--tokenizer-path: expected the path of a tokenizer, since the model file \"" + kFile + "\" has none");
  EXPECT_EQ(refusal_of_model(kGoldenFiles + "none.bin", std::nullopt, any),
            "--model: cannot open \"" + kGoldenFiles + "none.bin\": No such file or directory");
  EXPECT_EQ(refusal_of_model(kFile, kTokenizer, any),
            "--tokenizer-path: expected a tokenizer of at most 37 tokens, as the model has, not 638");
}

}  // namespace
}  // namespace stagegpt::test
