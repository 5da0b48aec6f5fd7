// Hugging Face GPT-2 directories: those that `transformers` saved, damaged ones, and our own.
#include <gtest/gtest.h>

#include <functional>

#include "common/base/json.h"
#include "common/checkpoint/hugging_face_model.h"
#include "common/data/tokenizers/load_tokenizer.h"
#include "common/model/gpt2.h"
#include "stage0_serial/cpu_backend.h"
#include "stage0_serial/naive_backend.h"
#include "tests/checkpoint/raw_safetensors.h"
#include "tests/data/make_tokenizers.h"
#include "tests/support/refusal.h"
#include "tests/support/tolerance.h"

namespace stagegpt::test {
namespace {

namespace fs = std::filesystem;
const fs::path kFixtures = STAGEGPT_SOURCE_DIR "/tests/golden/hugging_face";

nlohmann::json read_json_file(const fs::path& path) { return nlohmann::json::parse(read_bytes(path)); }

Values logits_at(Backend& backend, const Gpt2& model, const std::vector<std::int32_t>& ids, std::int64_t t) {
  Tape tape(backend, Tape::Mode::inference);
  const Tensor logits =
      model.logits(tape, to_tensor(backend, {1, std::ssize(ids)}, ids)).value();  // (1,T,Vp)
  return to_values(backend,
                   logits.slice(t * model.config().padded_vocab_size(), {model.config().vocab_size}));
}

// Loads a model in f64, which load_weights() does not support.
Gpt2 in_f64(Backend& backend, const ModelFile& file) {
  Gpt2 model(backend, file.config, DType::f64);
  for (std::size_t i = 0; i < model.parameters().table().size(); ++i) {
    const Parameter& row = model.parameters().table()[i];
    const std::vector<float> values = elements_of(file.values, model.parameters().table(), i);
    set_values(backend, model.parameters().weights().slice(row.offset, row.shape),
               Values(values.begin(), values.end()));
  }
  return model;
}

Gpt2 in_f32(Backend& backend, const ModelFile& file, std::int64_t block_size) {
  Gpt2Config config = file.config;
  config.block_size = block_size;
  Gpt2 model(backend, config);
  load_weights(backend, model.parameters(), file.values);
  return model;
}

class HuggingFaceFixture : public testing::TestWithParam<const char*> {
 protected:
  const nlohmann::json json = read_json_file(kFixtures / "logits.json");
  const std::vector<std::int32_t> ids = json["ids"];
  const std::int64_t last = std::ssize(ids) - 1;
  const ModelFile file = read_hugging_face(kFixtures / GetParam(), "--model");

  Values expected(const char* position) const { return json["logits"][GetParam()][position]; }
};

TEST_P(HuggingFaceFixture, HasTheLogitsOfTransformers) {
  ASSERT_EQ(file.config.block_size, std::ssize(ids));  // every position is used
  const auto backend = make_naive_backend();
  const Gpt2 model = in_f64(*backend, file);
  EXPECT_LE(relative_error(logits_at(*backend, model, ids, 0), expected("first")), kTenDigitsLimit);
  EXPECT_LE(relative_error(logits_at(*backend, model, ids, last), expected("last")), kTenDigitsLimit);
}

TEST_P(HuggingFaceFixture, HasThemInF32) {
  const auto error_on = [&](const std::unique_ptr<Backend>& backend) {
    const Gpt2 model = in_f32(*backend, file, file.config.block_size);
    return relative_error(logits_at(*backend, model, ids, last), expected("last"));
  };
  const double plain_error = error_on(make_naive_backend()), error = error_on(make_cpu_backend(2));
  const std::int64_t K = file.config.mlp_width();  // the longest sum, in the MLP's second matrix product
  EXPECT_LE(plain_error, plain_error_limit(DType::f32));
  EXPECT_LE(error, error_limit(plain_error, K, DType::f32));
}

TEST_P(HuggingFaceFixture, GivesAShorterContextTheFirstPositions) {
  const auto backend = make_naive_backend();
  const std::vector<std::int32_t> two(ids.begin(), ids.begin() + 2);
  const Gpt2 whole = in_f32(*backend, file, file.config.block_size), shorter = in_f32(*backend, file, 2);
  EXPECT_EQ(logits_at(*backend, shorter, two, 1), logits_at(*backend, whole, two, 1));
}

INSTANTIATE_TEST_SUITE_P(Fixtures, HuggingFaceFixture,
                         testing::Values("plain", "sharded", "bf16", "f16", "masks_without_prefix",
                                         "inner_and_epsilon", "untied"),
                         [](const auto& test) { return std::string(test.param); });

// A copy of a fixture that a test may modify.
class Copy {
 public:
  explicit Copy(const char* fixture = "plain") {
    fs::copy(kFixtures / fixture, path(), fs::copy_options::recursive);
  }

  const fs::path& path() const { return scratch_.path(); }
  void set(const char* option, const nlohmann::json& value) const {
    nlohmann::json config = read_json_file(path() / "config.json");
    config[option] = value;
    scratch_.write("config.json", config.dump());
  }
  void change_tensors(const std::function<void(RawTensors&)>& change,
                      const char* name = "model.safetensors") const {
    RawTensors tensors = read_safetensors(path() / name);
    change(tensors);
    write_safetensors(path() / name, tensors);
  }
  // Changes the index: it then says that wpe.weight is in `file`.
  void point_index_at(const std::string& file) const {
    constexpr const char* kIndex = "model.safetensors.index.json";
    nlohmann::json index = read_json_file(path() / kIndex);
    index["weight_map"]["transformer.wpe.weight"] = file;
    scratch_.write(kIndex, index.dump());
  }

 private:
  ScratchDirectory scratch_;
};

void expect_same_values(const ModelFile& a, const ModelFile& b) {
  const ParameterTable table = gpt2_parameter_table(a.config);
  for (std::size_t i = 0; i < table.size(); ++i)
    EXPECT_EQ(elements_of(a.values, table, i), elements_of(b.values, table, i));
}

TEST(HuggingFaceModel, IgnoresMasksAndATiedHead) {
  const Copy copy;
  copy.change_tensors([](RawTensors& tensors) {
    tensors["lm_head.weight"] = tensors.at("transformer.wte.weight");
    tensors["transformer.h.1.attn.bias"] = {"U8", {1, 1, 1, 1}, "\1"};
    tensors["transformer.h.1.attn.masked_bias"] = {"F32", {}, "abcd"};
  });
  expect_same_values(read_hugging_face(copy.path(), "--model"),
                     read_hugging_face(kFixtures / "plain", "--model"));
}

TEST(HuggingFaceModel, HasItsTiedWeightsUnderEitherName) {
  const Copy copy;
  copy.change_tensors([](RawTensors& tensors) {
    tensors["lm_head.weight"] = tensors.at("transformer.wte.weight");
    tensors.erase("transformer.wte.weight");
  });
  expect_same_values(read_hugging_face(copy.path(), "--model"),
                     read_hugging_face(kFixtures / "plain", "--model"));
}

// As torch.compile names the tensors of the model that it wraps.
TEST(HuggingFaceModel, MayBeCompiled) {
  const Copy copy;
  copy.change_tensors([](RawTensors& tensors) {
    RawTensors compiled;
    for (const auto& [name, tensor] : tensors) compiled["_orig_mod." + name] = tensor;
    tensors = compiled;
  });
  expect_same_values(read_hugging_face(copy.path(), "--model"),
                     read_hugging_face(kFixtures / "plain", "--model"));
}

TEST(HuggingFaceModel, TakesGeluNewByItsOtherNames) {
  const Copy copy;
  for (const char* name : {"gelu_pytorch_tanh", "gelu_fast"}) {
    copy.set("activation_function", name);
    EXPECT_EQ(read_hugging_face(copy.path(), "--model").config.activation, Activation::gelu_new) << name;
  }
}

TEST(HuggingFaceModel, NeedsNoMoreThanTheShapeOfConfig) {
  const Copy copy;
  nlohmann::json config;
  for (const char* name : {"vocab_size", "n_positions", "n_embd", "n_layer", "n_head"})
    config[name] = read_json_file(copy.path() / "config.json")[name];
  config["model_type"] = "gpt2";
  write_file(copy.path() / "config.json", config.dump());
  const ModelFile file = read_hugging_face(copy.path(), "--model");
  EXPECT_EQ(file.config.activation, Activation::gelu_new);
  expect_same_values(file, read_hugging_face(kFixtures / "plain", "--model"));
  EXPECT_EQ(file.config.layer_norm_epsilon, 1e-5);
  EXPECT_EQ(file.config.mlp_width(), 48);
  copy.set("n_inner", 4 * file.config.n_embd);
  EXPECT_EQ(read_hugging_face(copy.path(), "--model").config.mlp_width(), 48);
}

TEST(HuggingFaceModel, IsFoundInARun) {
  const ScratchDirectory run;
  fs::copy(kFixtures / "plain", run.path() / "latest", fs::copy_options::recursive);
  EXPECT_EQ(directory_of_model(run.path()), run.path() / "latest");
  EXPECT_EQ(directory_of_model(kFixtures / "plain"), kFixtures / "plain");
}

// transformers 4 takes names without "transformer." for those of a model without a head.
TEST(HuggingFaceModel, WritesAHeadOfItsOwnAsTransformersDoes) {
  const ModelFile file = read_hugging_face(kFixtures / "untied", "--model");
  const ScratchDirectory scratch;
  write_hugging_face(scratch.path(), file.config, file.values, nullptr);
  expect_same_values(read_hugging_face(scratch.path(), "--model"), file);
  const RawTensors written = read_safetensors(scratch.path() / "model.safetensors"),
                   theirs = read_safetensors(kFixtures / "untied/model.safetensors");
  ASSERT_EQ(written.size(), theirs.size());
  for (const auto& [name, tensor] : theirs) {
    ASSERT_TRUE(written.contains(name)) << name;
    EXPECT_EQ(written.at(name).shape, tensor.shape) << name;
    EXPECT_EQ(written.at(name).bytes, tensor.bytes) << name;
  }
}

struct Fault {
  const char* name;
  const char* fixture;
  std::function<void(const Copy&)> make;
  const char* says;
};

std::ostream& operator<<(std::ostream& out, const Fault& fault) { return out << fault.name; }

std::function<void(const Copy&)> option(const char* name, const nlohmann::json& value) {
  return [=](const Copy& copy) { copy.set(name, value); };
}
std::function<void(const Copy&)> tensors(const std::function<void(RawTensors&)>& change) {
  return [=](const Copy& copy) { copy.change_tensors(change); };
}

constexpr const char* kFirst = "transformer.h.0.ln_1.weight";

const Fault kFaults[] = {
    {"missing_tensor", "plain", tensors([](RawTensors& t) { t.erase(kFirst); }),
     "the tensor h.0.ln_1.weight is missing"},
    {"missing_embedding_of_a_head", "untied",
     tensors([](RawTensors& t) { t.erase("transformer.wte.weight"); }), "the tensor wte.weight is missing"},
    {"wrong_shape", "plain", tensors([](RawTensors& t) {
       t[kFirst].shape = {3, 4};
     }),
     "the tensor h.0.ln_1.weight has the shape (3, 4), expected (12)"},
    {"weights_of_linear_layers_out_in", "plain", tensors([](RawTensors& t) {
       t["transformer.h.1.mlp.c_fc.weight"].shape = {48, 12};
     }),
     "h.1.mlp.c_fc.weight has the shape (48, 12), expected (12, 48)"},
    {"unknown_tensor", "plain", tensors([](RawTensors& t) { t["transformer.h.0.extra"] = t[kFirst]; }),
     "the tensor 'h.0.extra' does not belong to this model"},
    {"tensor_of_a_layer_too_many", "plain",
     tensors([](RawTensors& t) { t["transformer.h.2.ln_1.weight"] = t[kFirst]; }),
     "the tensor 'h.2.ln_1.weight' does not belong to this model"},
    {"what_looks_like_a_mask", "plain", tensors([](RawTensors& t) { t["h.attn.bias"] = t[kFirst]; }),
     "the tensor 'h.attn.bias' does not belong to this model"},
    {"head_of_its_own", "plain", tensors([](RawTensors& t) {
       t["lm_head.weight"] = t["transformer.wte.weight"];
       t["lm_head.weight"].bytes[0] ^= 1;
     }),
     "lm_head.weight differs from wte.weight, but config.json does not have 'tie_word_embeddings': false"},
    {"tensor_twice", "plain", tensors([](RawTensors& t) { t["h.0.ln_1.weight"] = t[kFirst]; }),
     "the tensor h.0.ln_1.weight occurs twice"},
    {"tensor_in_two_files", "sharded",
     [](const Copy& copy) {
       const auto other = read_safetensors(copy.path() / "model-00002-of-00003.safetensors");
       copy.change_tensors([&](RawTensors& t) { t.insert(*other.begin()); },
                           "model-00001-of-00003.safetensors");
     },
     "occurs twice"},
    {"whole_numbers", "plain", tensors([](RawTensors& t) {
       t[kFirst].dtype = "I64";
       t[kFirst].bytes += t[kFirst].bytes;
     }),
     "the tensor h.0.ln_1.weight has the dtype I64, expected F32, F16 or BF16"},
    {"index_outside", "sharded", [](const Copy& copy) { copy.point_index_at("../x"); },
     "'../x' is not the name of a file"},
    {"index_outside_by_root", "sharded", [](const Copy& copy) { copy.point_index_at("/x"); },
     "'/x' is not the name of a file"},
    {"index_of_the_parent", "sharded", [](const Copy& copy) { copy.point_index_at(".."); }, "directory"},
    {"index_of_a_missing_file", "sharded", [](const Copy& copy) { copy.point_index_at("x.safetensors"); },
     "x.safetensors\": No such file"},
    {"index_that_is_none", "sharded",
     [](const Copy& copy) { write_file(copy.path() / "model.safetensors.index.json", "{}"); },
     "model.safetensors.index.json\": key 'weight_map' not found"},
    {"no_weights", "plain", [](const Copy& copy) { fs::remove(copy.path() / "model.safetensors"); },
     "holds no model.safetensors"},
    {"only_pytorch_weights", "plain",
     [](const Copy& copy) {
       fs::rename(copy.path() / "model.safetensors", copy.path() / "pytorch_model.bin");
     },
     "pytorch_model.bin is not supported: convert it with save_pretrained(…, safe_serialization=True)"},
    {"no_config", "plain", [](const Copy& copy) { fs::remove(copy.path() / "config.json"); }, "config.json"},
    {"another_model", "plain", option("model_type", "llama"), "'model_type' is \"llama\", expected \"gpt2\""},
    {"no_model_type", "plain", option("model_type", nullptr), "'model_type' is null, expected \"gpt2\""},
    {"activation_without_a_name", "plain", option("activation_function", nullptr),
     "'activation_function': null is not supported"},
    {"another_inner_size", "plain", option("n_inner", 47),
     "h.0.mlp.c_fc.weight has the shape (12, 48), expected (12, 47)"},
    {"untied_without_a_head", "plain", option("tie_word_embeddings", false),
     "the tensor lm_head.weight is missing"},
    {"tied_by_a_number", "plain", option("tie_word_embeddings", 1),
     "'tie_word_embeddings' is 1, expected true or false"},
    {"untied_head_of_another_shape", "untied", tensors([](RawTensors& t) {
       t["lm_head.weight"].shape = {12, 67};
     }),
     "the tensor lm_head.weight has the shape (12, 67), expected (67, 12)"},
    {"scale_by_layer", "plain", option("scale_attn_by_inverse_layer_idx", nullptr),
     "'scale_attn_by_inverse_layer_idx' is null, expected true or false"},
    {"unscaled", "plain", option("scale_attn_weights", 0),
     "'scale_attn_weights' is 0, expected true or false"},
    {"cross_attention", "plain", option("add_cross_attention", true),
     "'add_cross_attention': true is not supported, expected false"},
    {"activation", "plain", option("activation_function", "silu"),
     "'activation_function': \"silu\" is not supported, expected gelu_new, gelu_pytorch_tanh, gelu_fast, "
     "gelu "
     "or relu"},
    {"no_activation", "plain", option("activation_function", "none"), "'activation_function': \"none\""},
    {"heads_do_not_divide", "plain", option("n_head", 5), "'n_head' does not divide 'n_embd'"},
    {"other_vocabulary", "plain", option("vocab_size", 68),
     "wte.weight has the shape (67, 12), expected (68, 12)"},
    {"more_layers_than_tensors", "plain", option("n_layer", 900), "28 tensors are too few for 900 layers"},
};

class HuggingFaceRefuses : public testing::TestWithParam<Fault> {};

TEST_P(HuggingFaceRefuses, NamingTheFileAndTheFault) {
  const Copy copy(GetParam().fixture);
  GetParam().make(copy);
  const std::string message = refusal([&] { read_hugging_face(copy.path(), "--model"); });
  EXPECT_TRUE(message.starts_with("--model: ")) << message;
  EXPECT_NE(message.find(copy.path().string()), std::string::npos) << message;
  EXPECT_NE(message.find(GetParam().says), std::string::npos) << message;
  EXPECT_EQ(message.find('\n'), std::string::npos) << message;
}

INSTANTIATE_TEST_SUITE_P(Faults, HuggingFaceRefuses, testing::ValuesIn(kFaults),
                         [](const auto& test) { return std::string(test.param.name); });

std::unique_ptr<Tokenizer> tokenizer_of_kind(std::string_view kind) {
  if (kind == "char") return char_tokenizer(kText);
  if (kind == "word") return word_tokenizer(kText);
  return small_bpe();
}

class HuggingFaceRoundTrip : public testing::TestWithParam<const char*> {
 protected:
  HuggingFaceRoundTrip() {
    const ParameterTable& table = model.parameters().table();
    const Tensor& weights = model.parameters().weights();
    for (std::size_t i = 0; i < table.size(); ++i) {
      const Parameter& row = table[i];
      set_values(*backend, weights.slice(row.offset, row.shape),
                 random_values(1, static_cast<std::uint32_t>(i), row.shape.numel()));
    }
    files = write_hugging_face(scratch.path(), model.config(), arena_values(*backend, table, weights),
                               tokenizer.get());
  }

  const std::unique_ptr<Tokenizer> tokenizer = tokenizer_of_kind(GetParam());
  const std::unique_ptr<Backend> backend = make_naive_backend();
  const Gpt2 model{*backend,
                   {.vocab_size = tokenizer->size(),
                    .block_size = 7,
                    .n_layer = 3,
                    .n_head = 3,
                    .n_embd = 15,
                    .activation = Activation::relu,
                    .initializer_range = 0.01,
                    .layer_norm_epsilon = 1e-7,
                    .n_inner = 41,
                    .tie_word_embeddings = false,
                    .scale_attn_weights = false,
                    .scale_attn_by_inverse_layer_idx = true}};
  const ScratchDirectory scratch;
  std::vector<FileEntry> files;
};

TEST_P(HuggingFaceRoundTrip, KeepsConfigAndEveryBit) {
  const ModelFile read = read_hugging_face(scratch.path(), "--model");
  const Gpt2Config &a = model.config(), &b = read.config;
  EXPECT_EQ(std::tuple(a.vocab_size, a.block_size, a.n_layer, a.n_head, a.n_embd),
            std::tuple(b.vocab_size, b.block_size, b.n_layer, b.n_head, b.n_embd));
  EXPECT_EQ(a.activation, b.activation);
  EXPECT_EQ(std::tuple(a.initializer_range, a.layer_norm_epsilon, a.n_inner, a.tie_word_embeddings),
            std::tuple(b.initializer_range, b.layer_norm_epsilon, b.n_inner, b.tie_word_embeddings));
  EXPECT_EQ(std::tuple(a.scale_attn_weights, a.scale_attn_by_inverse_layer_idx),
            std::tuple(b.scale_attn_weights, b.scale_attn_by_inverse_layer_idx));
  const std::string config = read_bytes(scratch.path() / "config.json");
  EXPECT_TRUE(config.starts_with("{\n  \"") && config.ends_with("\n}\n"))
      << config;                                                // the layout that transformers writes
  EXPECT_EQ(nlohmann::json::parse(config)["use_cache"], true);  // otherwise transformers generates slowly

  const Gpt2 again = in_f32(*backend, read, b.block_size);
  EXPECT_EQ(to_host<float>(*backend, again.parameters().weights()),
            to_host<float>(*backend, model.parameters().weights()));
}

TEST_P(HuggingFaceRoundTrip, KeepsTheTokenizerAndItsEnd) {
  const auto read = load_tokenizer(scratch.path(), "--tokenizer-path");
  EXPECT_EQ(read->kind(), tokenizer->kind());
  EXPECT_EQ(read->vocabulary().tokens, tokenizer->vocabulary().tokens);
  EXPECT_EQ(read->end_of_text(), tokenizer->end_of_text());
  EXPECT_EQ(read->encode(kText), tokenizer->encode(kText));
  for (const char* name : {"config.json", "generation_config.json"}) {
    EXPECT_EQ(read_json_file(scratch.path() / name)["eos_token_id"], tokenizer->end_of_text().value())
        << name;
  }
  const nlohmann::json roles = read_json_file(scratch.path() / "tokenizer_config.json");
  EXPECT_EQ(roles["eos_token"], tokenizer->kind() == "word" ? "[EOS]" : "<|endoftext|>");
  EXPECT_EQ(roles.contains("unk_token"), tokenizer->kind() == "word");
  EXPECT_EQ(roles.contains("pad_token"), tokenizer->kind() == "word");
  EXPECT_EQ(roles["clean_up_tokenization_spaces"], false);
  EXPECT_TRUE(read_bytes(scratch.path() / "tokenizer_config.json").starts_with("{\n  \"tokenizer_class\": "));
  // The unknown token of a word-level vocabulary must be in it: `transformers` uses it for unseen words.
  // Byte-level tokenizers need none.
  const nlohmann::json written = read_json_file(scratch.path() / "tokenizer.json")["model"];
  if (written["type"] == "WordLevel") {
    EXPECT_TRUE(written["vocab"].contains(written["unk_token"])) << written["unk_token"];
  }
}

TEST_P(HuggingFaceRoundTrip, ReturnsTheFilesThatItWrote) {
  EXPECT_EQ(files.size(), 5U);
  for (const FileEntry& file : files) EXPECT_EQ(file, file_entry(scratch.path() / file.file));
  EXPECT_EQ(std::distance(fs::directory_iterator(scratch.path()), {}), std::ssize(files));
}

INSTANTIATE_TEST_SUITE_P(Kinds, HuggingFaceRoundTrip, testing::Values("char", "word", "bpe"),
                         [](const auto& test) { return std::string(test.param); });

}  // namespace
}  // namespace stagegpt::test
