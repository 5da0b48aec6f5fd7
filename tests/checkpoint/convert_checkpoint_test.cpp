// Conversion of models between Hugging Face directories and llm.c's files.
#include <cmath>
#include <limits>

#include "common/checkpoint/model_file.h"
#include "common/tensor/half_floats.h"
#include "tests/checkpoint/small_run.h"
#include "tests/support/tensors.h"

namespace stagegpt::test {
namespace {

constexpr const char* kGolden = STAGEGPT_SOURCE_DIR "/tests/golden";

class Convert : public SmallRun {
 protected:
  ProgramResult convert(const std::string& input, const std::string& output,
                        const Arguments& more = {}) const {
    return run_program("convert_checkpoint", with({"--input", input, "--output", output}, more),
                       directory.path());
  }
  void expect_converted(const std::string& input, const std::string& output,
                        const Arguments& more = {}) const {
    const ProgramResult result = convert(input, output, more);
    ASSERT_EQ(result.exit_code, 0) << result.errors;
  }
};

TEST_F(Convert, ThereAndBackGivesTheSameBytes) {
  const std::string golden = std::string(kGolden) + "/tiny.bin";
  expect_converted(golden, "directory");
  expect_converted("directory", "back.bin");
  EXPECT_EQ(read_bytes(in("back.bin")), read_bytes(golden));
  expect_converted("directory", "half.bin", {"--precision", "bf16"});
  EXPECT_EQ(read_bytes(in("half.bin")).size(), 1024 + (read_bytes(golden).size() - 1024) / 2);
  expect_converted("half.bin", "halved/");
  expect_converted("halved", "half2.bin", {"--precision", "bf16"});
  EXPECT_EQ(read_bytes(in("half.bin")), read_bytes(in("half2.bin")));
}

TEST_F(Convert, RefusesEndingsOfFormatsThatItDoesNotWrite) {
  const std::string golden = std::string(kGolden) + "/tiny.bin";
  for (const std::string name : {"x.gguf", "x.safetensors", "x.pt", "x.BIN", "x.h5", "x.v2a"}) {
    const ProgramResult result = convert(golden, name);
    EXPECT_EQ(result.exit_code, 2) << name;
    expect_said(result, "--output: expected llm.c's model file, NAME.bin, or a directory to create, not '" +
                            name + "'; a directory of that name is '" + name + "/'");
    EXPECT_FALSE(std::filesystem::exists(in(name)));
  }
  for (const char* name : {"gpt2.v2", "gpt2-1.5", "x.gguf/", "x.bin/"}) {
    expect_converted(golden, name);
    EXPECT_TRUE(std::filesystem::is_directory(in(name))) << name;
  }
}

TEST_F(Convert, KeepsWhatTheModelComputes) {
  // Converts the reference model to a directory and back. The result must still have the reference's logits
  // and gradients.
  expect_said(convert(std::string(kGolden) + "/tiny.bin", "directory"),
              "note: the directory gets no tokenizer; --tokenizer-path adds one");
  EXPECT_FALSE(std::filesystem::exists(in("directory/tokenizer.json")));
  expect_converted("directory", "back.bin");
  const auto verify = [&](const std::string& model) {
    return run_program("stage0_verify",
                       {"--model", model, "--state", std::string(kGolden) + "/tiny_debug_state.bin"},
                       directory.path());
  };
  for (const char* model : {"directory", "back.bin"}) EXPECT_EQ(verify(model).exit_code, 0) << model;
  expect_failure(verify(std::string(kGolden) + "/hugging_face/untied"), 2,
                 "--state: llm.c's models have the layer_norm_epsilon 1e-05, not 0.001");
}

TEST_F(Convert, TrainingBeginsFromEitherFormat) {
  expect_success(with(model_flags(), {"--steps", "1", "--run-dir", "run"}));
  expect_converted("run", "model.bin");
  const auto trained = [&](const std::string& model, const Arguments& more) {
    const Arguments flags = {"--model",     model,     "--data", "text.txt",     "--run-dir",
                             "of-" + model, "--steps", "2",      "--batch-size", "2"};
    expect_success(with(flags, more));
    return read_bytes(in("of-" + model + "/latest/model.safetensors"));
  };
  const auto expected = trained("run", {});
  EXPECT_EQ(trained("model.bin", {"--tokenizer-path", "run"}), expected);
  EXPECT_NE(read_bytes(in("run/latest/model.safetensors")), expected);
  std::filesystem::remove(in("model.bin"));
  expect_success({"--resume", "of-model.bin", "--steps", "3"});
  expect_converted("run", "model.bin");
  expect_refused(
      {"--model", "model.bin", "--data", "text.txt"},
      "--tokenizer-path: expected the path of a tokenizer, since the model file \"model.bin\" has none");
}

TEST_F(Convert, RoundsToTheNearest) {
  expect_converted(std::string(kGolden) + "/tiny.bin", "half.bin", {"--precision", "bf16"});
  const ModelFile exact = open_model(std::string(kGolden) + "/tiny.bin", "--model"),
                  rounded = open_model(in("half.bin"), "--model");
  const ParameterTable table = gpt2_parameter_table(exact.config);
  double largest = 0;
  for (std::size_t i = 0; i < table.size(); ++i) {
    const auto a = elements_of(exact.values, table, i), b = elements_of(rounded.values, table, i);
    for (std::size_t k = 0; k < a.size(); ++k) {
      if (a[k] != 0) largest = std::max(largest, std::abs(double{a[k]} - b[k]) / std::abs(a[k]));
    }
  }
  EXPECT_LE(largest, 0x1p-8);  // bf16 has 8 significant bits: at most half a unit in the last place
  EXPECT_GT(largest, 0x1p-9);  // and some errors are more than half of this
}

TEST_F(Convert, ARunKeepsItsTokenizer) {
  expect_success(with(model_flags(), {"--steps", "1", "--run-dir", "run"}));
  expect_converted("run", "directory");
  for (const char* file : {"model.safetensors", "config.json", "tokenizer.json", "tokenizer_config.json"}) {
    EXPECT_EQ(read_bytes(in("directory") / file), read_bytes(in("run/latest") / file)) << file;
  }
  expect_converted("run", "model.bin");
  expect_converted("model.bin", "again", {"--tokenizer-path", "run/tokenizer.json"});
  EXPECT_EQ(read_bytes(in("again/model.safetensors")), read_bytes(in("run/latest/model.safetensors")));
  EXPECT_EQ(read_bytes(in("again/tokenizer.json")), read_bytes(in("run/tokenizer.json")));
  expect_success({"--model", "again", "--data", "text.txt", "--steps", "1"});
}

TEST_F(Convert, RefusesToWriteAsLlmcFileWhatItCannotHold) {
  const std::string untied = std::string(kGolden) + "/hugging_face/untied";
  const ProgramResult refused = convert(untied, "model.bin");
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_EQ(refused.errors,
            "convert_checkpoint: llm.c's models have the layer_norm_epsilon 1e-05, not 0.001\n");
  EXPECT_FALSE(std::filesystem::exists(in("model.bin")));
}

TEST_F(Convert, RefusesWithOneLine) {
  const auto refused = [&](const std::string& input, const std::string& output, const Arguments& more,
                           const std::string& says) {
    expect_failure(convert(input, output, more), 2, says);
    for (const auto& entry : std::filesystem::directory_iterator(directory.path())) {
      EXPECT_EQ(entry.path().string().find(".partial"), std::string::npos);
    }
  };
  const std::string golden = std::string(kGolden) + "/tiny.bin";
  refused("nowhere", "out", {}, "--input: cannot open \"nowhere\"");
  directory.write("text", "");
  refused(golden, "text", {}, "--output: \"text\" exists already");
  refused(golden, "not/there.bin", {}, "/not\": No such file or directory");
  refused(golden, "text/there.bin", {}, "/text\": Not a directory");
  refused(golden, "text/there", {}, "--output: cannot create \"text\": ");
  refused(golden, "out", {"--precision", "bf16"},
          "--precision: expected f32 for a directory, not 'bf16'; llm.c's file, NAME.bin, can have it");
  refused(golden, "out", {"--tokenizer-path", "text.txt"}, "--tokenizer-path");
  refused("text.txt", "out", {}, "--input: expected a model file of llm.c");
  const Arguments words = {"--data",   "words.txt", "--tokenizer",  "char", "--n-layer",    "1",
                           "--n-head", "1",         "--n-embd",     "8",    "--block-size", "8",
                           "--steps",  "1",         "--batch-size", "1",    "--run-dir"};
  directory.write("words.txt", std::string(200, 'a') + "bc");
  expect_success(with(words, {"three"}));
  directory.write("words.txt", std::string(200, 'a') + "bcd");
  expect_success(with(words, {"four"}));
  expect_converted("three", "three.bin");
  expect_converted("three.bin", "of-three", {"--tokenizer-path", "three"});
  refused("three.bin", "out", {"--tokenizer-path", "four"},
          "--tokenizer-path: expected a tokenizer of at most 4 tokens, as the model has, not 5");
  expect_success(with(model_flags(), {"--steps", "1", "--run-dir", "run", "--activation", "relu"}));
  refused("run", "out.bin", {}, "llm.c's models have the activation gelu_new, not relu");
  std::filesystem::resize_file(in("run/latest/model.safetensors"), 1000);
  refused("run", "out", {}, "--input: \"run/checkpoints/step_00000001/model.safetensors\" has 1000 bytes");
}

TEST(HalfFloats, AreThoseOfTheStandards) {
  // IEEE 754 binary16: (bits, value).
  const std::pair<int, float> f16[] = {{0x3c00, 1.0f},           {0xc000, -2.0f},    {0x7bff, 65504.0f},
                                       {0x0400, 0x1p-14f},       {0x0001, 0x1p-24f}, {0x83ff, -0x3ffp-24f},
                                       {0x3555, 0.333251953125f}};
  for (const auto& [bits, value] : f16) EXPECT_EQ(float_of_f16(static_cast<std::uint16_t>(bits)), value);
  EXPECT_EQ(float_of_f16(0x7c00), std::numeric_limits<float>::infinity());
  EXPECT_TRUE(std::isnan(float_of_f16(0x7e00)));
  EXPECT_TRUE(std::signbit(float_of_f16(0x8000)));
  // Rounding to bf16: to the nearest value, ties to even.
  EXPECT_EQ(bf16_of_float(1.0f), 0x3f80);
  EXPECT_EQ(bf16_of_float(1.0f + 0x1p-8f), 0x3f80);             // a tie: down
  EXPECT_EQ(bf16_of_float(1.0f + 0x1p-7f + 0x1p-8f), 0x3f82);   // a tie: up
  EXPECT_EQ(bf16_of_float(1.0f + 0x1p-8f + 0x1p-20f), 0x3f81);  // above the tie: up
  EXPECT_EQ(bf16_of_float(-std::numeric_limits<float>::max()), 0xff80);
  EXPECT_TRUE(std::isnan(float_of_bf16(bf16_of_float(std::nanf("1")))));
  for (int bits = 0; bits < 0x7f80; ++bits) {
    EXPECT_EQ(bf16_of_float(float_of_bf16(static_cast<std::uint16_t>(bits))), bits);
  }
}

}  // namespace
}  // namespace stagegpt::test
