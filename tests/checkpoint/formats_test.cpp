// The JSON files of a checkpoint: every byte that is written, and the valid range of each number that is
// read.
#include <gtest/gtest.h>

#include <cmath>

#include "common/base/json.h"
#include "common/checkpoint/hugging_face_config.h"
#include "common/checkpoint/manifest.h"
#include "common/checkpoint/trainer_state.h"
#include "tests/support/program.h"
#include "tests/support/refusal.h"

namespace stagegpt::test {
namespace {

TrainerState made_state() {
  return {.step = 12,
          .data_position = 96,
          .seed = 1337,
          .schedule = {.kind = LrSchedule::Kind::linear,
                       .learning_rate = 0.5,
                       .min_lr = 0.125,
                       .warmup_steps = 3,
                       .steps = 40},
          .updates = {.all = 11, .fewer = {{"wpe.weight", 4}}},
          .train_tokens = 5000,
          .train_identity = {TokenIdentity::Of::shards, "00ff"},
          .validation_hash = "11ff",
          .validation_loss = 2.25,
          .validation_tokens = 768,
          .best_validation = BestValidation{.loss = 2.125, .tokens = 768, .step = 9, .worse = 1}};
}

constexpr const char* kState = R"({
  "format": "stagegpt trainer state",
  "version": 2,
  "step": 12,
  "data_position": 96,
  "seed": 1337,
  "schedule": {
    "kind": "linear",
    "learning_rate": 0.5,
    "min_lr": 0.125,
    "warmup_steps": 3,
    "steps": 40
  },
  "updates": {
    "all": 11,
    "fewer": {
      "wpe.weight": 4
    }
  },
  "train_data": {
    "tokens": 5000,
    "of": "shards",
    "xxh3_128": "00ff"
  },
  "validation_xxh3_128": "11ff",
  "validation_loss": 2.25,
  "validation_tokens": 768,
  "best_validation": {
    "loss": 2.125,
    "tokens": 768,
    "step": 9,
    "worse": 1
  }
}
)";

TEST(TrainerStateFile, IsWrittenLikeThis) {
  TrainerState state = made_state();
  EXPECT_EQ(to_json_text(state), kState);
  EXPECT_EQ(to_json_text(parse_trainer_state(kState)), kState);
  state.train_identity.of = TokenIdentity::Of::ids;
  state.validation_loss.reset();
  state.validation_tokens.reset();
  Json json = Json::parse(kState);
  json["train_data"]["of"] = "ids";
  json["validation_loss"] = json["validation_tokens"] = nullptr;
  EXPECT_EQ(to_json_text(state), json.dump(2) + "\n");
  EXPECT_EQ(to_json_text(parse_trainer_state(to_json_text(state))), to_json_text(state));
}

TEST(TrainerStateFile, OfTheFirstVersionHasTheHashOfIds) {
  Json json = Json::parse(kState);
  json["version"] = 1;
  json["train_data"].erase("of");
  for (const char* later : {"validation_tokens", "best_validation", "updates", "validation_xxh3_128"})
    json.erase(later);
  const TrainerState state = parse_trainer_state(json.dump());
  EXPECT_EQ(state.train_identity, (TokenIdentity{TokenIdentity::Of::ids, "00ff"}));
  EXPECT_EQ(state.validation_loss, 2.25);
  EXPECT_EQ(state.validation_tokens, std::nullopt);
  EXPECT_EQ(state.best_validation, std::nullopt);
  EXPECT_EQ(state.updates, UpdateCounts{12});
  EXPECT_EQ(state.validation_hash, "");
}

TEST(TrainerStateFile, MayHaveABestLossThatIsNoNumber) {
  TrainerState state = made_state();
  state.best_validation->loss = NAN;
  const Json json = Json::parse(to_json_text(state));
  EXPECT_EQ(json["best_validation"]["loss"], nullptr);
  EXPECT_TRUE(std::isnan(parse_trainer_state(json.dump()).best_validation->loss));
  state.best_validation.reset();
  EXPECT_EQ(parse_trainer_state(to_json_text(state)).best_validation, std::nullopt);
}

TEST(TrainerStateFile, IsRefusedWhereItCannotBeTrue) {
  const auto refusal_of = [](const char* pointer, const Json& value) {
    Json json = Json::parse(kState);
    json[Json::json_pointer(pointer)] = value;
    return refusal([&] { parse_trainer_state(json.dump()); });
  };
  constexpr std::int64_t kSteps = std::int64_t{1} << 31, kSamples = std::int64_t{1} << 60;
  for (const char* pointer : {"/step", "/schedule/steps", "/schedule/warmup_steps"}) {
    const std::string name = std::string(pointer).substr(std::string(pointer).rfind('/') + 1);
    EXPECT_EQ(refusal_of(pointer, kSteps), "") << pointer;
    EXPECT_EQ(refusal_of(pointer, kSteps + 1), "'" + name + "' is 2147483649, expected at most 2147483648");
    EXPECT_EQ(refusal_of(pointer, -1), "'" + name + "' is -1, expected a non-negative integer");
  }
  EXPECT_EQ(refusal_of("/data_position", kSamples), "");
  EXPECT_EQ(refusal_of("/data_position", kSamples + 1),
            "'data_position' is 1152921504606846977, expected at most 1152921504606846976");
  EXPECT_EQ(refusal_of("/train_data/tokens", INT64_MAX), "");
  EXPECT_EQ(refusal_of("/train_data/tokens", std::uint64_t{1} << 63),
            "'tokens' is 9223372036854775808, expected at most 9223372036854775807");
  EXPECT_EQ(refusal_of("/schedule/min_lr", "x"), "'min_lr' is \"x\", expected a number");
  EXPECT_EQ(refusal_of("/schedule/learning_rate", std::string(50, 'y')),
            "'learning_rate' is \"" + std::string(39, 'y') + ", expected a number");
  EXPECT_EQ(refusal_of("/validation_loss", true), "'validation_loss' is true, expected a number");
  EXPECT_EQ(refusal_of("/validation_tokens", 1.5),
            "'validation_tokens' is 1.5, expected a non-negative integer");
  EXPECT_EQ(refusal_of("/updates/fewer/wpe.weight", 12), "'wpe.weight' is 12, expected at most 11");
  EXPECT_EQ(refusal_of("/schedule/kind", "square"), "'kind' is not a learning-rate schedule");
  EXPECT_EQ(refusal_of("/train_data/of", "words"), "'of' is neither 'ids' nor 'shards'");
  const std::string other = "not version 1 or 2 of 'stagegpt trainer state'";
  EXPECT_EQ(refusal_of("/version", 3), other);
  EXPECT_EQ(refusal_of("/version", 0), other);
  EXPECT_EQ(refusal_of("/format", "stagegpt checkpoint"), other);
}

TEST(ManifestFile, ListsNamesSizesAndHashes) {
  const ScratchDirectory directory;
  const std::vector<FileEntry> files = {{"a.json", 10, "aa"}, {"b.bin", 20, "bb"}};
  write_manifest(directory.path(), files);
  const std::string text = read_bytes(directory.path() / "manifest.json");
  const auto with_hash = [](const std::string& hash) {
    return R"({
  "format": "stagegpt checkpoint",
  "version": 1,
  "files": [
    {
      "file": "a.json",
      "bytes": 10,
      "xxh3_128": "aa"
    },
    {
      "file": "b.bin",
      "bytes": 20,
      "xxh3_128": "bb"
    }
  ],
  "xxh3_128": ")" +
           hash + "\"\n}";
  };
  EXPECT_EQ(text, with_hash(hash_of_text(with_hash(""))) + '\n');
  EXPECT_EQ(parse_manifest(text), files);
}

TEST(ManifestFile, NamesFilesOfItsDirectoryAlone) {
  const ScratchDirectory directory;
  for (const std::string& name : {std::string(), std::string("."), std::string(".."), std::string("/"),
                                  std::string("a/b"), std::string("a/")}) {
    write_manifest(directory.path(), {{name, 1, "aa"}});
    EXPECT_EQ(refusal([&] { parse_manifest(read_bytes(directory.path() / "manifest.json")); }),
              "'" + name + "' is not the name of a file");
  }
  write_manifest(directory.path(), {{std::string("a\0b", 3), 1, "aa"}});
  EXPECT_NE(refusal([&] { parse_manifest(read_bytes(directory.path() / "manifest.json")); }), "");
  const std::string longer = std::string(100, 'x') + "/";
  write_manifest(directory.path(), {{longer, 1, "aa"}});
  EXPECT_EQ(refusal([&] { parse_manifest(read_bytes(directory.path() / "manifest.json")); }),
            "'" + std::string(80, 'x') + "' is not the name of a file");
}

TEST(HuggingFaceConfigFile, IsWrittenLikeThis) {
  const Gpt2Config config{.vocab_size = 300,
                          .block_size = 64,
                          .n_layer = 3,
                          .n_head = 2,
                          .n_embd = 16,
                          .activation = Activation::relu,
                          .dropout = 0.25,
                          .initializer_range = 0.5};
  const char* const text = R"({
  "architectures": [
    "GPT2LMHeadModel"
  ],
  "model_type": "gpt2",
  "vocab_size": 300,
  "n_positions": 64,
  "n_ctx": 64,
  "n_embd": 16,
  "n_layer": 3,
  "n_head": 2,
  "n_inner": null,
  "activation_function": "relu",
  "layer_norm_epsilon": 1e-05,
  "initializer_range": 0.5,
  "embd_pdrop": 0.25,
  "attn_pdrop": 0.25,
  "resid_pdrop": 0.25,
  "scale_attn_weights": true,
  "scale_attn_by_inverse_layer_idx": false,
  "reorder_and_upcast_attn": false,
  "tie_word_embeddings": true,
  "use_cache": true,
  "bos_token_id": 299,
  "eos_token_id": 299,
  "torch_dtype": "float32"
}
)";
  EXPECT_EQ(config_json(config, 299), text);
  EXPECT_EQ(generation_config_json(299),
            "{\n  \"_from_model_config\": true,\n  \"bos_token_id\": 299,\n  \"eos_token_id\": 299\n}\n");
  EXPECT_EQ(generation_config_json(std::nullopt),
            "{\n  \"_from_model_config\": true,\n  \"bos_token_id\": null,\n  \"eos_token_id\": null\n}\n");
  const Gpt2Config read = parse_config(parse_json(text));
  EXPECT_EQ(read.vocab_size, 300);
  EXPECT_EQ(read.block_size, 64);
  EXPECT_EQ(read.n_layer, 3);
  EXPECT_EQ(read.n_head, 2);
  EXPECT_EQ(read.n_embd, 16);
  EXPECT_EQ(read.activation, Activation::relu);
  EXPECT_EQ(read.initializer_range, 0.5);
}

TEST(HuggingFaceConfigFile, HasSizesInTheirRanges) {
  const auto refusal_of = [](const char* name, const nlohmann::json& value) {
    nlohmann::json json = {{"model_type", "gpt2"}, {"vocab_size", 8}, {"n_positions", 8},
                           {"n_embd", 65536},      {"n_layer", 1},    {"n_head", 1}};
    json[name] = value;
    return refusal([&] { parse_config(json); });
  };
  const std::pair<const char*, std::int64_t> most[] = {{"vocab_size", 16777216},
                                                       {"n_positions", 1048576},
                                                       {"n_layer", 1000},
                                                       {"n_head", 65536},
                                                       {"n_embd", 65536}};
  for (const auto& [name, n] : most) {
    EXPECT_EQ(refusal_of(name, n), "") << name;
    EXPECT_EQ(refusal_of(name, n + 1), concat("'", name, "' is ", n + 1, ", expected 1 to ", n));
    EXPECT_EQ(refusal_of(name, 0), concat("'", name, "' is 0, expected 1 to ", n));
    EXPECT_EQ(refusal_of(name, 1.5), concat("'", name, "' is 1.5, expected 1 to ", n));
    EXPECT_EQ(refusal_of(name, nullptr), concat("'", name, "' is missing"));
  }
  EXPECT_EQ(refusal_of("n_layer", std::string(50, 'y')),
            "'n_layer' is \"" + std::string(39, 'y') + ", expected 1 to 1000");
  EXPECT_EQ(refusal_of("n_inner", 4 * 65536), "");
  EXPECT_EQ(refusal_of("n_inner", 1048577), "'n_inner' is 1048577, expected 1 to 1048576");
  for (const double epsilon : {1e-30, 1e-12, 1.0}) EXPECT_EQ(refusal_of("layer_norm_epsilon", epsilon), "");
  EXPECT_EQ(refusal_of("layer_norm_epsilon", 9e-31), "'layer_norm_epsilon' is 9e-31, expected 1e-30 to 1");
  EXPECT_EQ(refusal_of("layer_norm_epsilon", 1.5), "'layer_norm_epsilon' is 1.5, expected 1e-30 to 1");
  EXPECT_EQ(refusal_of("layer_norm_epsilon", nullptr), "'layer_norm_epsilon' is null, expected 1e-30 to 1");
  EXPECT_EQ(refusal_of("layer_norm_epsilon", std::string(50, 'y')),
            "'layer_norm_epsilon' is \"" + std::string(39, 'y') + ", expected 1e-30 to 1");
}

}  // namespace
}  // namespace stagegpt::test
