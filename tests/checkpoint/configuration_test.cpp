// Settings: the order of defaults, --config and flags; and invalid settings.
#include <algorithm>

#include "common/base/json.h"
#include "tests/checkpoint/small_run.h"

namespace stagegpt::test {
namespace {

namespace fs = std::filesystem;

class Settings : public SmallRun {
 protected:
  nlohmann::json printed(const Arguments& arguments) const {
    const ProgramResult result = expect_success(with(arguments, {"--print-config"}));
    return nlohmann::json::parse(result.output);
  }
  void expect_config_refused(const std::string& text, const std::string& says) const {
    directory.write("config.json", text);
    const ProgramResult result = train({"--config", "config.json"});
    EXPECT_EQ(result.exit_code, 2) << text << result.errors;
    EXPECT_EQ(result.output, "");
    EXPECT_EQ(std::ranges::count(result.errors, '\n'), 1) << result.errors;
    expect_said(result, "--config: \"config.json\": " + says);
    EXPECT_FALSE(fs::exists(in("runs")));
  }
};

TEST_F(Settings, AreDefaultsThenFileThenFlags) {
  const nlohmann::json defaults = printed({});
  EXPECT_EQ(defaults["steps"], 2000);
  EXPECT_EQ(defaults["learning_rate"], nullptr);
  EXPECT_EQ(defaults["derived"]["learning_rate"], 3e-3);
  EXPECT_EQ(defaults["derived"]["n_layer"], 4);
  EXPECT_EQ(defaults["derived"]["warmup_steps"], 100);
  directory.write("config.json",
                  R"({"steps": 50, "batch-size": 3, "learning_rate": 1, "tokenizer": "char"})");
  const nlohmann::json json = printed({"--batch-size", "5", "--config", "config.json"});
  EXPECT_EQ(json["steps"], 50);
  EXPECT_EQ(json["batch_size"], 5);
  EXPECT_EQ(json["learning_rate"], 1.0);
  EXPECT_FALSE(json["derived"].contains("learning_rate"));
  EXPECT_EQ(json["min_lr"], nullptr);
  EXPECT_EQ(json["derived"]["min_lr"], 0.1);  // derived from learning_rate
  EXPECT_EQ(json["tokenizer"], "char");
}

TEST_F(Settings, ThatArePrintedGiveTheSameAgain) {
  const Arguments arguments = {"--model", "gpt2",         "--n-layer", "3",          "--dropout",
                               "0.1",     "--seed",       "7",         "--no-fused", "--min-lr",
                               "1e-7",    "--cpu-matmul", "tiled",     "--threads",  "1"};
  const nlohmann::json json = printed(arguments);
  directory.write("config.json", json.dump());
  EXPECT_EQ(printed({"--config", "config.json"}), json);
  EXPECT_EQ(json["no_fused"], true);
  EXPECT_EQ(json["threads"], 1);
}

// All settings that are derived from others. A printed configuration contains their values. When it is read
// with --config, they are derived again.
TEST_F(Settings, ThatWereDerivedAreDerivedAnewFromWhatWasPrinted) {
  directory.write("config.json", printed({}).dump());
  const nlohmann::json gpt2 = printed({"--config", "config.json", "--model", "gpt2", "--steps", "40"});
  const nlohmann::json expected = {{"n_layer", 12},
                                   {"n_head", 12},
                                   {"n_embd", 768},
                                   {"block_size", 1024},
                                   {"activation", "gelu_new"},
                                   {"learning_rate", 6e-4},
                                   {"min_lr", 6e-4 / 10},
                                   {"warmup_steps", 2},
                                   {"eval_tokens", 96 * 1024}};
  EXPECT_EQ(gpt2["derived"], expected);
  EXPECT_EQ(gpt2["model"], "gpt2");
  for (const auto& [key, value] : expected.items()) EXPECT_EQ(gpt2[key], nullptr) << key;
}

TEST_F(Settings, OfAFileForAnotherModelAreRefused) {
  directory.write("config.json", R"({"model": "nano", "n-layer": 4, "activation": "gelu_new"})");
  expect_refused({"--config", "config.json", "--model", "gpt2", "--print-config"},
                 "--model: gpt2 has n_layer 12, but the file of --config says 4, for nano; "
                 "leave n_layer out there, or give --n-layer too");
  directory.write("size.json", R"({"activation": "relu"})");
  expect_refused({"--config", "size.json", "--model", "gpt2", "--print-config"},
                 "--model: gpt2 has activation gelu_new, but the file of --config says relu; leave");
  // A flag next to --model, or a file that contains both settings, states the difference explicitly: it is
  // accepted.
  const auto n_layer = [&](const Arguments& flags) {
    return printed(with({"--config", "config.json"}, flags))["n_layer"];
  };
  EXPECT_EQ(n_layer({"--model", "gpt2", "--n-layer", "4"}), 4);
  EXPECT_EQ(n_layer({"--model", "nano"}), 4);
  directory.write("config.json", R"({"model": "gpt2", "n_layer": 5})");
  EXPECT_EQ(n_layer({}), 5);
  EXPECT_EQ(n_layer({"--model", "gpt2"}), 5);
}

TEST_F(Settings, ThatChangeAPresetAreNamedWithIt) {
  const ProgramResult result = train(with(model_flags(), {"--steps", "1", "--json"}));
  const std::string name = "nano with n_layer 1, n_head 2, n_embd 16, block_size 16";
  EXPECT_TRUE(result.errors.starts_with(name + ": 3,776 parameters")) << result.errors;
  EXPECT_EQ(nlohmann::json::parse(result.output)["model"], name);
  EXPECT_TRUE(train({"--dry-run"}).errors.starts_with("nano: "));
}

TEST_F(Settings, OfARunAreInItAndMakeItAgain) {
  ASSERT_EQ(train(with(model_flags(), {"--steps", "3", "--run-dir", "a"})).exit_code, 0);
  ASSERT_EQ(train({"--config", "a/run.json", "--run-dir", "b"}).exit_code, 0);
  EXPECT_EQ(hash_of("a/latest"), hash_of("b/latest"));
  EXPECT_EQ(read_bytes(in("a/run.json")), read_bytes(in("b/run.json")));
}

TEST_F(Settings, MayHaveWholeNumbersWithAnExponent) {
  directory.write("config.json", R"({"steps": 1e4, "batch_size": 4.0})");
  const nlohmann::json settings = printed({"--config", "config.json"});
  EXPECT_EQ(settings["steps"], 10'000);
  EXPECT_EQ(settings["batch_size"], 4);
}

TEST_F(Settings, ThatAreWrongAreRefused) {
  expect_config_refused(R"({"bacth_size": 8})", "unknown key 'bacth_size', did you mean batch_size?");
  expect_config_refused(R"({"batch_size": 8, "batch_size": 9})", "the key 'batch_size' occurs twice");
  expect_config_refused(R"({"batch_size": 8, "batch-size": 9})",
                        "the key 'batch_size' occurs twice: once with dashes, once with underscores");
  expect_config_refused(R"({"n_layer": -1, "batch_size": 8, "batch_size": 9})",
                        "the key 'batch_size' occurs twice");
  expect_config_refused(R"({"batch_size": "8"})", "--batch-size: expected a whole number, not \"8\"");
  expect_config_refused(R"({"batch_size": 8.5})",
                        "--batch-size: expected a whole number from 1 to 1048576, not '8.5'");
  expect_config_refused(R"({"batch_size": 0})",
                        "--batch-size: expected a whole number from 1 to 1048576, not '0'");
  expect_config_refused(R"({"batch_size": null})", "--batch-size: expected a whole number, not null");
  expect_config_refused(R"({"batch_size": [8]})", "--batch-size: expected a whole number, not [8]");
  expect_config_refused(R"({"batch_size": 99999999999999999999})",
                        "--batch-size: expected a whole number from 1 to 1048576, not '1e+20'");
  expect_config_refused(R"({"learning_rate": true})", "--learning-rate: expected a number, not true");
  expect_config_refused(R"({"learning_rate": 1e999})", "number overflow");
  expect_config_refused(R"({"learning_rate": 1e39})",
                        "--learning-rate: expected a number above 0 that f32 can hold (1.17549e-38 to "
                        "3.40282e+38), not '1e+39'");
  expect_config_refused(R"({"learning_rate": NaN})", "parse error");
  expect_config_refused(R"({"model": 124})", "--model: expected a text, not 124");
  expect_config_refused(R"({"lr_schedule": "cosin"})",
                        "--lr-schedule: expected one of cosine, linear, constant, wsd");
  expect_config_refused(R"({"no_fused": 1})", "--no-fused: expected true or false, not 1");
  expect_config_refused(R"({"gpu_attention": "flash"})",
                        "--gpu-attention: stage 0 has no use for it; it belongs to stages 2 and 3");
  expect_config_refused(R"({"resume": "run"})", "unknown key 'resume'");
  expect_config_refused(R"({"derved": {}})", "unknown key 'derved'");
  expect_config_refused("[]", "expected a JSON object");
  expect_config_refused("", "parse error");
  expect_config_refused(R"({"steps": 5} {})", "parse error");
  expect_config_refused(std::string(100, '['), "values are nested more than 64 levels deep");
}

// Flags of earlier versions. Values that mean what is always done now are taken from a file.
TEST_F(Settings, ThatAreGoneAreRefusedWithWhatTakesTheirPlace) {
  const std::string
      writers = "--checkpoint-writers was removed: one rank writes a checkpoint\n",
      async = "--checkpoint-async was removed: a checkpoint is complete before the next step begins\n";
  expect_refused({"--checkpoint-writers", "1"}, "stage0_train: " + writers);
  expect_refused({"--checkpoint-async"}, "stage0_train: " + async);
  expect_config_refused(R"({"checkpoint_writers": 2})", writers);
  expect_config_refused(R"({"checkpoint-async": true})", async);
  expect_config_refused(R"({"checkpoint_async": null})", async);
  directory.write("config.json", R"({"checkpoint_writers": 1, "checkpoint-async": false, "steps": 7})");
  EXPECT_EQ(printed({"--config", "config.json"})["steps"], 7);
}

TEST_F(Settings, NeedAFile) {
  expect_refused({"--config", "nowhere.json"}, "--config: cannot open \"nowhere.json\"");
  expect_refused({"--config", "."}, "--config: \".\" is a directory");
}

TEST_F(Settings, DryRunTellsWhatATrainingTakes) {
  const Arguments arguments = with(model_flags(), {"--steps", "10", "--dry-run", "--json"});
  const ProgramResult result = train(arguments);
  ASSERT_EQ(result.exit_code, 0) << result.errors;
  const auto json = nlohmann::json::parse(result.output);
  // One layer, C = 16, 13 tokens, 16 positions: (13 + 16 + 2)C + 12C² + 13C.
  const std::int64_t parameters = 31 * 16 + 12 * 256 + 13 * 16;
  EXPECT_EQ(json["parameters"], parameters);
  EXPECT_EQ(json["tokens_per_step"], 32);
  EXPECT_EQ(json["flops_per_token"], 6 * parameters + 6 * 16 * 16);
  const auto& memory = json["memory_bytes"];
  EXPECT_EQ(memory["total"], memory["weights"].get<std::int64_t>() + memory["gradients"].get<std::int64_t>() +
                                 memory["moments"].get<std::int64_t>() +
                                 memory["activations"].get<std::int64_t>());
  EXPECT_GE(memory["weights"], parameters * 4);
  EXPECT_GT(json["needed_bytes"], memory["total"].get<double>());  // includes the program's own memory
  EXPECT_GT(json["available_bytes"], json["needed_bytes"]);
  EXPECT_EQ(json["fits"], true);
  EXPECT_FALSE(fs::exists(in("runs")));
}

TEST_F(Settings, ATrainingThatHasNoRoomIsRefused) {
  // The model is too large for any allocation. If the check is missing, the test fails quickly.
  const Arguments huge = {"--n-layer", "100", "--n-head", "64", "--n-embd", "65536"};
  const ProgramResult result = train(huge);
  expect_failure(result, 2, "--batch-size: training with 8 sequences of 128 tokens takes ");
  EXPECT_EQ(result.errors.find("data:"), std::string::npos);  // the text has not been read yet
  EXPECT_FALSE(fs::exists(in("runs")));
  const ProgramResult dry = expect_success(with(huge, {"--dry-run"}));
  EXPECT_NE(dry.output.find("fits        no; "), std::string::npos) << dry.output;
}

// The preset gpt2 has 50,257 tokens, but the text has fewer than 30. The check before the text is read must
// not count more memory than the plan with the text's own vocabulary.
TEST_F(Settings, ATrainingIsNotRefusedForTokensThatTheTextLacks) {
  const Arguments large = {"--model",      "gpt2",     "--data",       "text.txt", "--tokenizer",
                           "char",         "--n-head", "16",           "--n-embd", "1024",
                           "--block-size", "128",      "--batch-size", "40000"};
  const auto number_behind = [](std::string text, const std::string& words) {
    std::erase(text, ',');
    const std::size_t at = text.find(words);
    return at == text.npos ? 0 : std::stod(text.substr(at + words.size()));
  };
  const double refused_gib = number_behind(train(large).errors, " sequences of 128 tokens takes "),
               planned_mib = number_behind(train(with(large, {"--dry-run"})).output, "  needed ");
  EXPECT_GT(planned_mib, 0);
  EXPECT_NEAR(refused_gib, planned_mib / 1024, 1);
}

TEST_F(Settings, ATrainingBeginsFromADirectory) {
  ASSERT_EQ(
      train(with(model_flags(), {"--steps", "40", "--run-dir", "a", "--learning-rate", "0.01"})).exit_code,
      0);
  const double learnt = metrics("a").back()["loss"];
  // With all positions of the trained model, or with fewer. The tokenizer is copied too.
  for (const Arguments& more : {Arguments{}, {"--block-size", "12"}}) {
    fs::remove_all(in("b"));
    const ProgramResult result =
        train(with({"--model", "a", "--data", "text.txt", "--steps", "1", "--run-dir", "b"}, more));
    ASSERT_EQ(result.exit_code, 0) << result.errors;
    EXPECT_NEAR(metrics("b").front()["loss"].get<double>(), learnt, 0.3);  // untrained: log 13 = 2.6
    EXPECT_EQ(read_bytes(in("a/tokenizer.json")), read_bytes(in("b/tokenizer.json")));
  }
  const auto refused = [&](const Arguments& flag, const std::string& says) {
    expect_refused(with({"--model", "a/latest", "--data", "text.txt"}, flag), says);
  };
  refused({"--n-layer", "2"}, "--n-layer: expected 1, as the weights of --model have, not 2");
  refused({"--block-size", "17"},
          "--block-size: expected at most 16, the positions that --model has learnt, not 17");
  refused({"--activation", "relu"},
          "--activation: expected gelu_new, as the weights of --model have, not relu");
  refused({"--tokenizer", "bpe"},
          "--tokenizer: bpe, but \"a/checkpoints/step_00000040\" has a tokenizer of kind char");
  const Arguments more_characters = with_flags(model_flags(), {"--data", "more.txt", "--run-dir", "more"});
  directory.write("more.txt", read_bytes(in("text.txt")) + "XYZ");
  ASSERT_EQ(train(with(more_characters, {"--steps", "1"})).exit_code, 0);
  refused({"--tokenizer-path", "more"}, " tokens, as the tokenizer has, not ");
  expect_refused({"--model", "nowhere"}, "--model: expected one of nano, gpt2");
  fs::create_directory(in("empty"));
  expect_refused({"--model", "empty"}, "--model: \"empty/config.json\"");
}

}  // namespace
}  // namespace stagegpt::test
