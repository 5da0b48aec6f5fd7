// Binary files of a model, in safetensors and llm.c's format: every byte of the header, and the valid range
// of each number.
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <functional>

#include "common/checkpoint/llmc_files.h"
#include "common/checkpoint/safetensors.h"
#include "tests/support/program.h"
#include "tests/support/refusal.h"

namespace stagegpt::test {
namespace {

// The content of a safetensors file: the header's length (8 bytes), the header, and `bytes` bytes of tensor
// data.
std::string safetensors_of(const std::string& header, std::size_t bytes) {
  const std::uint64_t length = header.size();
  return std::string(reinterpret_cast<const char*>(&length), sizeof length) + header +
         std::string(bytes, 'x');
}

std::string refusal_of_safetensors(const std::string& file) {
  return refusal([&] { parse_safetensors(std::as_bytes(std::span(file))); });
}

TEST(SafetensorsFile, IsWrittenLikeThis) {
  const ScratchDirectory directory;
  const std::filesystem::path path = directory.path() / "x.safetensors";
  SafetensorsWriter writer(path, {{"b", {2, 1}}, {"a", {}}});
  const std::vector<float> b = {1, 2}, a = {3};
  writer.append(b);
  EXPECT_THROW(writer.finish(), InternalError) << "an element is missing";
  EXPECT_THROW(writer.append(b), InternalError) << "one more than was announced";
  writer.append(a);
  const FileEntry entry = writer.finish();
  std::string header = R"({"__metadata__":{"format":"pt"},)"
                       R"("b":{"dtype":"F32","shape":[2,1],"data_offsets":[0,8]},)"
                       R"("a":{"dtype":"F32","shape":[],"data_offsets":[8,12]}})";
  header.resize((header.size() + 7) / 8 * 8, ' ');
  std::string expected = safetensors_of(header, 12);
  const float numbers[] = {1, 2, 3};
  std::memcpy(expected.data() + expected.size() - 12, numbers, 12);
  EXPECT_EQ(read_bytes(path), expected);
  EXPECT_EQ(entry, (FileEntry{"x.safetensors", expected.size(), hash_of_text(expected)}));
}

TEST(SafetensorsFile, KnowsTheSizeOfEachType) {
  const std::pair<const char*, int> types[] = {{"F32", 4}, {"F16", 2}, {"BF16", 2}, {"F64", 8}, {"I64", 8},
                                               {"I32", 4}, {"I16", 2}, {"I8", 1},   {"U64", 8}, {"U32", 4},
                                               {"U16", 2}, {"U8", 1},  {"BOOL", 1}};
  for (const auto& [dtype, bytes] : types) {
    const std::string file = safetensors_of(
        concat(R"({"t":{"dtype":")", dtype, R"(","shape":[3],"data_offsets":[0,)", 3 * bytes, "]}}"),
        static_cast<std::size_t>(3 * bytes));
    EXPECT_EQ(refusal_of_safetensors(file), "") << dtype;
    const auto view = parse_safetensors(std::as_bytes(std::span(file))).at("t");
    EXPECT_EQ(is_floating_point(view), view.dtype == "F32" || view.dtype == "F16" || view.dtype == "BF16")
        << dtype;
  }
}

TEST(SafetensorsFile, IsRefusedWhereItsHeaderIsWrong) {
  const auto with = [](const std::string& header, std::size_t bytes = 0) {
    return refusal_of_safetensors(safetensors_of(header, bytes));
  };
  const auto entry = [](const std::string& fields) { return R"({"t":{)" + fields + "}}"; };
  EXPECT_EQ(refusal_of_safetensors("1234567"), "not safetensors: the file has only 7 bytes");
  EXPECT_EQ(refusal_of_safetensors(std::string(8, '\0')), "the header is not a JSON object");
  EXPECT_EQ(refusal_of_safetensors("\3" + std::string(7, '\0') + "{}"),
            "not safetensors: a header of 3 bytes in a file of 10");
  EXPECT_EQ(with("{}"), "");
  EXPECT_EQ(with("{}", 1), "the header specifies 0 bytes of tensors, the file has 1");
  EXPECT_EQ(with(" {}"), "the header is not a JSON object");
  EXPECT_EQ(with(R"({"__metadata__":{"a":"b"}})"), "");
  EXPECT_EQ(with(R"({"__metadata__":null})"), "");  // as safetensors 0.8 reads it
  EXPECT_EQ(refusal_of_safetensors("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 5\n"),
            "this is a pointer of Git LFS, not the file: fetch it with 'git lfs pull'");
  for (const char* metadata : {"1", R"({"a":1})", R"(["a"])"}) {
    EXPECT_EQ(with(concat(R"({"__metadata__":)", metadata, '}')), "__metadata__ is not an object of strings");
  }
  const std::string right = R"("dtype":"I32","shape":[2],)";
  EXPECT_EQ(with(entry(right + R"("data_offsets":[0,8])"), 8), "");
  EXPECT_EQ(with(entry(right + R"("data_offsets":[0,8])"), 7),
            "the header specifies 8 bytes of tensors, the file has 7");
  EXPECT_EQ(with(R"({"a":{"dtype":"I8","shape":[8],"data_offsets":[0,8]},)"
                 R"("b":{"dtype":"I8","shape":[4],"data_offsets":[8,12]}})",
                 7),
            "the header specifies 12 bytes of tensors, the file has 7");
  EXPECT_EQ(with(entry(right + R"("data_offsets":[0,4])"), 8),
            "tensor 't': the data_offsets are 0 and 4, dtype and shape need 8 bytes");
  EXPECT_EQ(with(entry(right + R"("data_offsets":[8,0])"), 8),
            "tensor 't': the data_offsets are 8 and 0, dtype and shape need 8 bytes");
  EXPECT_EQ(with(entry(right + R"("data_offsets":[1,9])"), 9),
            "tensor 't' begins at 1, the one before it ends at 0");
  EXPECT_EQ(with(entry(right + R"("data_offsets":[0,4,8])"), 8),
            "tensor 't': expected two data_offsets, not 3");
  EXPECT_EQ(with(entry(right + R"("data_offsets":[0,8],"more":1)"), 8),
            "tensor 't': expected exactly dtype, shape and data_offsets");
  EXPECT_EQ(with(R"({"t":3})"), "tensor 't': expected exactly dtype, shape and data_offsets");
  EXPECT_EQ(with(entry(R"("dtype":"I32","shape":[-2],"data_offsets":[0,8])"), 8),
            "tensor 't': an extent is -2, expected a non-negative integer");
  EXPECT_EQ(with(entry(right + R"("data_offsets":[0,-8])"), 8),
            "tensor 't': a data offset is -8, expected a non-negative integer");
  EXPECT_EQ(with(entry(right + R"("data_offsets":["0",8])"), 8),
            "tensor 't': a data offset is \"0\", expected a non-negative integer");
  EXPECT_EQ(with(entry(R"("dtype":"Q123456789012345678901234567890","shape":[],"data_offsets":[0,4])"), 4),
            "tensor 't': the dtype 'Q1234567890123456789' is unknown");
  const std::string most = "9223372036854775807", beyond = "9223372036854775808";
  EXPECT_EQ(with(entry(R"("dtype":"I8","shape":[)" + most + R"(],"data_offsets":[0,)" + most + "]")),
            "the header specifies " + most + " bytes of tensors, the file has 0");
  EXPECT_EQ(with(entry(R"("dtype":"I8","shape":[)" + beyond + R"(],"data_offsets":[0,)" + beyond + "]")),
            "tensor 't': the shape is too large");
  EXPECT_EQ(with(entry(R"("dtype":"I32","shape":[)" + most + R"(],"data_offsets":[0,8])")),
            "tensor 't': the shape is too large");
  const std::string name(90, 'n');
  EXPECT_EQ(with(R"({")" + name + R"(":3})"),
            "tensor '" + name.substr(0, 80) + "': expected exactly dtype, shape and data_offsets");
}

// Headers of llm.c's model file and debug state file. llmc_file() replaces the number at index i of a header
// by `value`.
constexpr std::array<std::int32_t, 8> kModel = {20240326, 3, 4, 5, 1, 2, 8, 128};
constexpr std::array<std::int32_t, 8> kDebugState = {20240327, 2, 1, 1, 0, 0, 0, 0};

std::vector<std::byte> llmc_file(std::array<std::int32_t, 8> header, std::size_t i, std::int32_t value) {
  header[i] = value;
  std::vector<std::byte> file(1024);
  std::memcpy(file.data(), header.data(), sizeof header);
  return file;
}

TEST(LlmcFile, HasNumbersInTheirRanges) {
  const auto model = [](std::size_t i, std::int32_t value) {
    return refusal([&] { parse_llmc_model(llmc_file(kModel, i, value), "--model"); });
  };
  EXPECT_EQ(
      model(0, 20240327),
      "--model: expected a model file of llm.c, which begins with 20240326; this file begins with 20240327");
  EXPECT_EQ(model(1, 4), "--model: version 4, expected 3 (f32) or 5 (bf16)");
  struct Number {
    std::size_t index;
    std::int32_t most;
    const char* name;
  };
  for (const auto& [i, most, name] :
       {Number{2, 1048576, "the context length"}, Number{3, 16777216, "the vocabulary"},
        Number{4, 1024, "the number of layers"}, Number{5, 65536, "the number of heads"},
        Number{6, 65536, "the number of channels"}}) {
    EXPECT_EQ(model(i, 0), concat("--model: ", name, " is 0, expected 1 to ", most));
    EXPECT_EQ(model(i, most + 1), concat("--model: ", name, " is ", most + 1, ", expected 1 to ", most));
    EXPECT_EQ(model(i, most).find(name), std::string::npos) << model(i, most);
    EXPECT_EQ(model(i, 1).find(name), std::string::npos) << model(i, 1);
  }
  EXPECT_EQ(model(7, 256), "--model: the padded vocabulary is 256, expected 128");
  EXPECT_EQ(model(5, 3), "--model: 8 channels are not divisible by 3 heads");
  // The file has a header of 1,024 bytes and 1,944 elements: wte (128,8), wpe (4,8), ln_f, and one layer of
  // 12·8·8 + 13·8.
  EXPECT_EQ(model(1, 3), concat("--model: the file has 1024 bytes, its header specifies ", 1024 + 4 * 1944));
  EXPECT_EQ(model(1, 5), concat("--model: the file has 1024 bytes, its header specifies ", 1024 + 2 * 1944));
  EXPECT_EQ(model(4, 1024), concat("--model: the file has 1024 bytes, its header specifies ",
                                   1024 + 4 * (132 * 8 + 16 + 1024 * 872)));
  const std::vector<std::byte> cut(1023);
  EXPECT_EQ(refusal([&] { parse_llmc_model(cut, "--model"); }),
            "--model: expected a model file of llm.c, but the file has 1023 bytes, fewer than its header");
}

TEST(LlmcFile, OfAStateHasNumbersInTheirRanges) {
  Gpt2Config config{.vocab_size = 5, .block_size = 1 << 20, .n_layer = 1, .n_head = 2, .n_embd = 8};
  const auto state = [&](std::size_t i, std::int32_t value) {
    return refusal([&] { parse_llmc_state(llmc_file(kDebugState, i, value), config, "--debug-state"); });
  };
  EXPECT_EQ(state(0, 1),
            "--debug-state: expected a debug state of llm.c, which begins with 20240327; this file "
            "begins with 1");
  EXPECT_EQ(state(1, 1), "--debug-state: version 1, expected 2");
  EXPECT_EQ(state(2, 0), "--debug-state: the batch size is 0, expected 1 to 65536");
  EXPECT_EQ(state(2, 65537), "--debug-state: the batch size is 65537, expected 1 to 65536");
  EXPECT_EQ(state(3, 1048577), "--debug-state: the sequence length is 1048577, expected 1 to 1048576");
  // For each token: its id, its target and 5 logits. Then the loss, and the gradients of all parameters.
  const auto announced = [](std::int64_t tokens, std::int64_t block_size) {
    return concat("--debug-state: the file has 1024 bytes, its header specifies ",
                  1024 + 4 * (tokens * (2 + 5) + 1 + (128 + block_size) * 8 + 16 + 872));
  };
  EXPECT_EQ(state(2, 65536), announced(65536, 1 << 20));
  EXPECT_EQ(state(3, 1 << 20), announced(1 << 20, 1 << 20));
  config.block_size = 4;
  EXPECT_EQ(state(3, 4), announced(4, 4));
  EXPECT_EQ(state(3, 5), "--debug-state: the sequences have 5 tokens, the model's context has only 4");
}

TEST(LlmcFile, IsNotWrittenForAModelThatItsHeaderCannotDescribe) {
  const ScratchDirectory directory;
  const auto refusal_of = [&](const std::function<void(Gpt2Config&)>& change) {
    Gpt2Config config{.vocab_size = 5, .block_size = 4, .n_layer = 1, .n_head = 2, .n_embd = 8};
    change(config);
    return refusal([&] {
      write_llmc_model(
          directory.path() / "model.bin", config, [](auto...) {}, LlmcPrecision::f32);
    });
  };
  EXPECT_EQ(refusal_of([](Gpt2Config& config) { config.n_inner = 32; }), "");
  EXPECT_EQ(refusal_of([](Gpt2Config& config) { config.activation = Activation::relu; }),
            "llm.c's models have the activation gelu_new, not relu");
  EXPECT_EQ(refusal_of([](Gpt2Config& config) { config.layer_norm_epsilon = 1e-6; }),
            "llm.c's models have the layer_norm_epsilon 1e-05, not 1e-06");
  EXPECT_EQ(refusal_of([](Gpt2Config& config) { config.n_inner = 31; }),
            "llm.c's models have n_inner 4 times n_embd, here 32, not 31");
  const std::string scaled_otherwise =
      "llm.c's models divide attention scores by √(n_embd/n_head) in all layers: expected "
      "'scale_attn_weights' true and 'scale_attn_by_inverse_layer_idx' false";
  EXPECT_EQ(refusal_of([](Gpt2Config& config) { config.scale_attn_weights = false; }), scaled_otherwise);
  EXPECT_EQ(refusal_of([](Gpt2Config& config) { config.scale_attn_by_inverse_layer_idx = true; }),
            scaled_otherwise);
  EXPECT_EQ(refusal_of([](Gpt2Config& config) { config.tie_word_embeddings = false; }),
            "llm.c's models have an output head that is tied to wte, not a separate lm_head.weight");
}

TEST(LlmcFile, OfAStateHasTokensOfTheVocabulary) {
  const Gpt2Config config{.vocab_size = 5, .block_size = 4, .n_layer = 1, .n_head = 2, .n_embd = 8};
  // One token, its target, five logits, the loss, and the gradients.
  std::vector<std::byte> file = llmc_file(kDebugState, 2, 1);
  file.resize(1024 + 4 * (2 + 5 + 1 + 132 * 8 + 16 + 872));
  const auto with_token = [&](std::size_t i, std::int32_t token) {
    std::vector<std::byte> changed = file;
    std::memcpy(changed.data() + 1024 + 4 * i, &token, sizeof token);
    return refusal([&] { parse_llmc_state(changed, config, "--debug-state"); });
  };
  for (const std::size_t i : {0, 1}) {
    EXPECT_EQ(with_token(i, 0), "");
    EXPECT_EQ(with_token(i, 4), "");
    EXPECT_EQ(with_token(i, 5), "--debug-state: token 5 is outside the vocabulary of 5");
    EXPECT_EQ(with_token(i, -1), "--debug-state: token -1 is outside the vocabulary of 5");
  }
}

}  // namespace
}  // namespace stagegpt::test
