// A run that is stopped and resumed gives the same result as an uninterrupted run.
#include <fstream>

#include "common/base/json.h"
#include "tests/checkpoint/small_run.h"
#include "tests/support/thorough.h"

namespace stagegpt::test {
namespace {

class Resume : public SmallRun {
 protected:
  static Arguments flags(const std::string& run, const Arguments& more = {}) {
    return with(with(model_flags(), {"--dropout", "0.1", "--steps", "30", "--eval-every", "7",
                                     "--checkpoint-every", "11", "--run-dir", run}),
                more);
  }
};

TEST_F(Resume, AfterAnyStepEndsInTheSameBits) {
  expect_success(flags("whole"));
  const std::string hash = hash_of("whole/latest");
  for (int k = 1; k < 30; k += kThorough ? 1 : 4) {
    const std::string run = "run" + std::to_string(k);
    expect_success(flags(run, {"--stop-after", std::to_string(k)}));
    ASSERT_EQ(metrics(run).size(), k);
    expect_success({"--resume", run});
    EXPECT_EQ(hash_of(run + "/latest"), hash) << k;
    EXPECT_EQ(metrics(run), metrics("whole")) << k;
    EXPECT_EQ(read_bytes(in(run) / "run.json"), read_bytes(in("whole/run.json")));
  }
}

// Recomputation may change at every resumption, and is not among the changes that are announced.
TEST_F(Resume, WithRecomputationEndsInTheSameBits) {
  expect_success(flags("whole"));
  expect_success(flags("run", {"--recompute", "block", "--stop-after", "9"}));
  EXPECT_EQ(json_in("run/run.json")["recompute"], "block");
  expect_success({"--resume", "run", "--stop-after", "19"});
  EXPECT_EQ(json_in("run/run.json")["recompute"], "block");
  const ProgramResult last = expect_success({"--resume", "run", "--recompute", "gelu"});
  EXPECT_EQ(last.errors.find("note:"), std::string::npos) << last.errors;
  EXPECT_EQ(json_in("run/run.json")["recompute"], "gelu");
  EXPECT_EQ(hash_of("run/latest"), hash_of("whole/latest"));
  const auto peak = [&](const std::string& run, std::size_t step) {
    return metrics(run)[step]["peak_memory_bytes"].get<std::int64_t>();
  };
  EXPECT_LT(peak("run", 0), peak("run", 29));  // blocks, then only the activation
  EXPECT_LT(peak("run", 29), peak("whole", 29));
}

// A path is a sequence of bytes, and need not be valid UTF-8.
TEST_F(Resume, FromAPathThatIsNoUtf8) {
  expect_success(flags("run\xff", {"--stop-after", "12"}));
  expect_success({"--resume", "run\xff", "--stop-after", "13"});
  expect_success({"--resume", "run\xff/checkpoints/step_00000013"});
  EXPECT_EQ(metrics("run\xff").size(), 30u);
}

TEST_F(Resume, ManyTimes) {
  expect_success(flags("whole"));
  expect_success(flags("run", {"--stop-after", "1"}));
  for (int k = 4; k < 30; k += 3)
    expect_success({"--resume", "--run-dir", "run", "--stop-after", std::to_string(k)});
  // The first command again, with --resume added, as in a job script.
  expect_success(flags("run", {"--resume"}));
  expect_same_end("run", "whole");
}

TEST_F(Resume, WithAccumulationAndAnotherTokenizer) {
  for (const char* tokenizer : {"word", "bpe"}) {
    const std::string run = tokenizer, whole = "whole_" + run;
    const Arguments arguments = {"--tokenizer", tokenizer, "--grad-accumulation", "3"};
    expect_success(with_flags(flags(whole), arguments));
    expect_success(with_flags(flags(run, {"--stop-after", "13"}), arguments));
    expect_success({"--resume", run});
    EXPECT_EQ(hash_of(run + "/latest"), hash_of(whole + "/latest"));
  }
}

TEST_F(Resume, TakesTheTokenizerOfTheRun) {
  expect_success(flags("first", {"--stop-after", "1"}));
  std::filesystem::copy_file(in("first/tokenizer.json"), in("copy.json"));
  expect_success({"--data",    "text.txt", "--tokenizer-path", "copy.json", "--n-layer",        "1",
                  "--n-head",  "2",        "--n-embd",         "16",        "--block-size",     "16",
                  "--steps",   "4",        "--stop-after",     "2",         "--max-new-tokens", "0",
                  "--run-dir", "run"});
  std::filesystem::remove(in("copy.json"));
  expect_success({"--resume", "run"});
}

// The untied head, the width of the MLP, the epsilon and the scale of attention are in the checkpoint's
// config.json alone.
TEST_F(Resume, OfAModelThatIsNotQuiteGpt2) {
  expect_success(with(model_flags(), {"--steps", "1", "--run-dir", "tokens"}));
  const auto flags = [](const std::string& run) {
    return Arguments{"--model",          STAGEGPT_SOURCE_DIR "/tests/golden/hugging_face/untied",
                     "--tokenizer-path", "tokens/tokenizer.json",
                     "--data",           "text.txt",
                     "--batch-size",     "2",
                     "--threads",        "1",
                     "--steps",          "9",
                     "--learning-rate",  "0.01",
                     "--run-dir",        run,
                     "--max-new-tokens", "0"};
  };
  expect_success(flags("whole"));
  expect_success(with(flags("run"), {"--stop-after", "4"}));
  expect_success({"--resume", "run"});
  expect_same_end("run", "whole");
  const auto config = json_in("run/latest/config.json");
  EXPECT_EQ(config["tie_word_embeddings"], false);
  EXPECT_EQ(config["n_inner"], 31);
  EXPECT_EQ(config["scale_attn_by_inverse_layer_idx"], true);
  EXPECT_EQ(config["layer_norm_epsilon"], 1e-3);
  const ProgramResult evaluated =
      run_program("stage0_evaluate", {"--model", "run", "--data", "text.txt", "--json"}, directory.path());
  ASSERT_EQ(evaluated.exit_code, 0) << evaluated.errors;
  EXPECT_LT(nlohmann::json::parse(evaluated.output)["loss"], 4.0);
}

TEST_F(Resume, WithFrozenParameters) {
  const Arguments freeze = {"--freeze", "wte*,h.0.attn.*"};
  expect_success(flags("whole", freeze));
  expect_success(flags("run", with(freeze, {"--stop-after", "7"})));
  expect_success({"--resume", "run"});
  expect_same_end("run", "whole");
  expect_success(flags("thawed", with(freeze, {"--stop-after", "7"})));
  const ProgramResult thawed = expect_success({"--resume", "thawed", "--freeze", ""});
  expect_said(thawed, "note: --freeze changes from \"wte*,h.0.attn.*\" to \"\"\n");
  EXPECT_NE(hash_of("thawed/latest"), hash_of("whole/latest"));
  const auto updates = [&](const std::string& run) {
    return parse_json(read_bytes(in(run) / "latest/trainer_state.json"))["updates"];
  };
  for (const char* name : {"wte.weight", "h.0.attn.c_proj.bias"}) {
    EXPECT_EQ(updates("whole")["fewer"][name], 0);
    EXPECT_EQ(updates("thawed")["fewer"][name], 23);
  }
  EXPECT_EQ(updates("thawed")["all"], 30);
  EXPECT_FALSE(updates("thawed")["fewer"].contains("wpe.weight"));
}

TEST_F(Resume, DropsStepsBehindTheCheckpoint) {
  expect_success(flags("whole"));
  expect_success(flags("run", {"--stop-after", "22"}));
  // The state after a crash in step 24: after the last checkpoint come the line of step 23 and a truncated
  // line.
  {
    std::ofstream log(in("run/metrics.jsonl"), std::ios::app);
    log << metrics("whole")[22].dump() << "\n{\"version\":1,\"st";
  }
  expect_success({"--resume", "run"});
  EXPECT_EQ(metrics("run"), metrics("whole"));
}

TEST_F(Resume, TellsOfMetricsThatAreLost) {
  expect_success(flags("run", {"--stop-after", "22"}));
  std::filesystem::resize_file(in("run/metrics.jsonl"),
                               std::filesystem::file_size(in("run/metrics.jsonl")) - 5);
  expect_said(expect_success({"--resume", "run"}), "metrics.jsonl\" lacks 1 of the steps up to 22");
}

TEST_F(Resume, KeepsTheLinesBehindABrokenOne) {
  expect_success(flags("run", {"--stop-after", "11"}));
  std::string text = read_bytes(in("run/metrics.jsonl"));
  text[text.find("\"step\":3")] = '#';
  directory.write("run/metrics.jsonl", text);
  expect_success({"--resume", "run", "--stop-after", "15"});
  expect_success({"--resume", "run"});
  EXPECT_EQ(metrics("run").size(), 29u);
}

TEST_F(Resume, CountsTokensThatWereSeen) {
  expect_success(flags("run", {"--stop-after", "4"}));
  expect_success({"--resume", "run", "--stop-after", "6", "--batch-size", "1"});
  EXPECT_EQ(metrics("run").back()["tokens"], 16 * (4 * 2 + 2 * 1));
}

TEST_F(Resume, TakesAnOlderCheckpointForADamagedOne) {
  expect_success(flags("whole"));
  expect_success(flags("run", {"--stop-after", "25"}));
  std::filesystem::resize_file(in("run/checkpoints/step_00000025/optimizer.safetensors"), 1000);
  const ProgramResult result = expect_success({"--resume", "run"});
  expect_said(result, "optimizer.safetensors\" has 1000 bytes, the manifest says");
  expect_said(result, "resumed from \"step_00000022\"");
  expect_same_end("run", "whole");
}

TEST_F(Resume, OfANamedCheckpointIsExactOrRefused) {
  expect_success(flags("run", {"--stop-after", "25"}));
  expect_refused({"--resume", "run/checkpoints/step_00000022"},
                 "expected the newest checkpoint of the run, \"step_00000025\", not \"step_00000022\"");
  std::filesystem::resize_file(in("run/checkpoints/step_00000025/optimizer.safetensors"), 1000);
  expect_refused({"--resume", "run/latest"}, "has 1000 bytes");
  std::filesystem::remove_all(in("run/checkpoints/step_00000025"));
  expect_success({"--resume", "run/checkpoints/step_00000022"});
}

TEST_F(Resume, ToALaterHorizonSaysSo) {
  expect_success(flags("run"));
  expect_refused({"--resume", "run", "--steps", "20"}, "--steps: the run has done 30 steps already");
  expect_said(expect_success({"--resume", "run", "--steps", "40"}),
              "the learning-rate schedule now ends at step 40, not 30");
  EXPECT_EQ(metrics("run").size(), 40u);
  EXPECT_EQ(json_in("run/run.json")["steps"], 40);
}

// A resumed run keeps the length of its decay, and may change to another schedule.
TEST_F(Resume, FromADecayAtTheEndToAnother) {
  expect_success(with(model_flags(),
                      {"--steps", "10", "--lr-schedule", "wsd", "--run-dir", "run", "--stop-after", "9"}));
  EXPECT_EQ(Json::parse(read_bytes(in("run/run.json")))["derived"]["decay_steps"], 2);
  EXPECT_EQ(metrics("run")[7]["learning_rate"], 3e-3);
  EXPECT_DOUBLE_EQ(metrics("run")[8]["learning_rate"], 3e-3);  // the decay begins at step 9, from the peak
  expect_success({"--resume", "run", "--steps", "20", "--stop-after", "18"});
  const std::string needs_wsd = "--decay-steps: expected together with --lr-schedule wsd";
  expect_refused({"--resume", "run", "--lr-schedule", "constant", "--decay-steps", "2"}, needs_wsd);
  EXPECT_EQ(metrics("run")[17]["learning_rate"], 3e-3);
  expect_success({"--resume", "run", "--lr-schedule", "constant", "--stop-after", "19"});
  expect_refused({"--resume", "run", "--decay-steps", "2"}, needs_wsd);
  expect_success({"--resume", "run"});
  EXPECT_EQ(metrics("run")[19]["learning_rate"], 3e-3);
  directory.write("decay.json", R"({"decay_steps": 2})");
  for (const Arguments& flags : {Arguments{"--decay-steps", "2"}, {"--config", "decay.json"}})
    expect_refused(with(model_flags(), flags), needs_wsd);
  expect_refused(with(model_flags(),
                      {"--lr-schedule", "wsd", "--steps", "10", "--warmup-steps", "3", "--decay-steps", "8"}),
                 "--decay-steps: expected at most 7, the steps after the warm-up, not 8");
}

// Where validations come more often, each of them has fewer windows.
TEST_F(Resume, WithMoreValidationsMakesThemSmaller) {
  const Arguments flags = with(model_flags(), {"--steps", "1000", "--run-dir", "run", "--stop-after", "1"});
  const auto tokens = [&] {
    return Json::parse(read_bytes(in("run/run.json")))["derived"].value("eval_tokens", 0);
  };
  expect_success(with(flags, {"--eval-every", "0"}));
  EXPECT_EQ(tokens(), 0);
  expect_success({"--resume", "run", "--eval-every", "500", "--stop-after", "2"});
  EXPECT_EQ(tokens(), 300 * 16);  // two validations share a tenth of 1000 · 2 · 3 passes
  expect_success({"--resume", "run", "--eval-every", "250", "--stop-after", "3"});
  EXPECT_EQ(tokens(), 150 * 16);
  expect_success({"--resume", "run", "--steps", "2000", "--stop-after", "4"});
  EXPECT_EQ(tokens(), 150 * 16);
}

// A resumed run keeps its derived settings, even if a newer program would derive other values.
TEST_F(Resume, KeepsWhatWasDerivedWhenItBegan) {
  expect_success(with(model_flags(), {"--steps", "100", "--run-dir", "run", "--stop-after", "3"}));
  auto settings = Json::parse(read_bytes(in("run/run.json")));
  EXPECT_EQ(nlohmann::json(settings["derived"]), (nlohmann::json{{"activation", "gelu_new"},
                                                                 {"learning_rate", 3e-3},
                                                                 {"min_lr", 3e-3 / 10},
                                                                 {"warmup_steps", 5},
                                                                 {"eval_tokens", 64 * 16}}));
  settings["derived"]["learning_rate"] = 0.01;
  settings["derived"]["warmup_steps"] = 8;
  directory.write("run/run.json", settings.dump(2) + '\n');
  const std::string before = read_bytes(in("run/run.json"));
  expect_success({"--resume", "run", "--stop-after", "4"});
  EXPECT_DOUBLE_EQ(metrics("run").back()["learning_rate"].get<double>(), 0.01 * 4 / 8);
  EXPECT_EQ(read_bytes(in("run/run.json")), before);
  // A new number of steps does not change the warm-up either.
  expect_success({"--resume", "run", "--stop-after", "5", "--steps", "400"});
  EXPECT_DOUBLE_EQ(metrics("run").back()["learning_rate"].get<double>(), 0.01 * 5 / 8);
}

TEST_F(Resume, OfADerivedFinalRateFollowsAnotherPeak) {
  expect_success(flags("run", {"--stop-after", "3"}));
  expect_said(expect_done(train({"--resume", "run", "--learning-rate", "0.0001"})),
              "note: --min-lr changes from 0.0003");
  EXPECT_LT(metrics("run").back()["learning_rate"].get<double>(), 0.00002);
}

TEST_F(Resume, RefusesDerivedValuesThatAreNone) {
  expect_success(flags("run", {"--stop-after", "3"}));
  auto settings = Json::parse(read_bytes(in("run/run.json")));
  settings["derived"] = 3;
  directory.write("run/run.json", settings.dump());
  expect_refused({"--resume", "run"}, "--resume: \"run/run.json\": 'derived': expected an object");
  settings["derived"] = {{"warmup_steps", "many"}};
  directory.write("run/run.json", settings.dump());
  expect_refused({"--resume", "run"}, "--warmup-steps: expected a whole number, not \"many\"");
}

TEST_F(Resume, KeepsTheModelAndTheData) {
  expect_success(flags("run", {"--stop-after", "3"}));
  const auto refused = [&](const Arguments& flag, const std::string& says) {
    expect_refused(with({"--resume", "run"}, flag), says);
  };
  refused({"--seed", "7"},
          "--seed: expected 1337, as the run began with, not 7; another value needs a new run");
  refused({"--n-layer", "2"}, "--n-layer: expected 1, as the run began with, not 2");
  refused({"--block-size", "8"}, "--block-size: expected 16, as the run began with, not 8");
  refused({"--model", "gpt2"}, "--model: expected \"nano\", as the run began with, not \"gpt2\"");
  refused({"--tokenizer", "bpe"}, "--tokenizer: expected \"char\", as the run began with, not \"bpe\"");
  directory.write("other.txt", read_bytes(in("text.txt")) + "the mat sat on the cats.\n");
  refused({"--data", "other.txt"}, "--data: these are not the 2250 tokens");
  std::string changed = read_bytes(in("text.txt"));
  changed[0] = 'c';  // the number of tokens and the vocabulary stay the same
  directory.write("changed.txt", changed);
  refused({"--data", "changed.txt"}, "--data: these are not the 2250 tokens");
  expect_said(expect_done(train({"--resume", "run", "--learning-rate", "0.004"})),
              "note: --learning-rate changes from 0.003 to 0.004");
}

TEST_F(Resume, OfAMixtureGoesOnWithItsSamples) {
  directory.write("other.txt", std::string(read_bytes(in("text.txt"))).replace(0, 3, "a t"));
  const auto mixture = [](const std::string& data, const std::string& run, const Arguments& more = {}) {
    return with_flags(flags(run, more), {"--data", data});
  };
  expect_success(mixture("text.txt=2,other.txt=1", "whole"));
  expect_success(mixture("text.txt=2,other.txt=1", "run", {"--stop-after", "7"}));
  EXPECT_EQ(json_in("run/run.json")["data"],
            in("text.txt").string() + "=2," + in("other.txt").string() + "=1");
  expect_success({"--resume", "run"});
  expect_same_end("run", "whole");
  expect_success(mixture("text.txt=2,other.txt=1", "other", {"--stop-after", "7"}));
  // Weights in the same proportion are the same mixture.
  expect_refused({"--resume", "other", "--data", "text.txt=1,other.txt=1"},
                 "--data: these are not the 4500 tokens");
  expect_success({"--resume", "other", "--data", "text.txt=4,other.txt=2", "--stop-after", "8"});
  std::filesystem::rename(in("other.txt"), in("moved.txt"));
  expect_failure(train({"--resume", "whole"}), 1,
                 in("other.txt").string() + "\", which the run was trained on, does not exist now");
}

TEST_F(Resume, NeedsARun) {
  expect_refused({"--resume"}, "--resume: expected the directory of a run, here or in --run-dir");
  expect_refused({"--resume", "nowhere"}, "--resume: cannot open \"nowhere\"");
  expect_refused({"--resume", "."}, "--resume: expected a run or one of its checkpoints, not \".\"");
  expect_success(flags("run", {"--stop-after", "3"}));
  expect_refused({"--resume", "run", "--run-dir", "other"},
                 "--run-dir: expected the run that --resume names, \"run\", not \"other\"");
  std::filesystem::remove_all(in("run/checkpoints"));
  expect_refused({"--resume", "run"}, "--resume: \"run\" has no checkpoint");
}

TEST_F(Resume, MovesWithItsDirectory) {
  expect_success(flags("whole"));
  expect_success(flags("run", {"--stop-after", "3"}));
  std::filesystem::rename(in("run"), in("moved"));
  expect_success({"--resume", "moved"});
  EXPECT_EQ(hash_of("moved/latest"), hash_of("whole/latest"));
}

}  // namespace
}  // namespace stagegpt::test
