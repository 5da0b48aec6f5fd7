// Tests of the program stage0_generate.
#include <algorithm>
#include <chrono>
#include <fstream>

#include "common/base/error.h"
#include "common/base/json.h"
#include "tests/checkpoint/small_run.h"

namespace stagegpt::test {
namespace {

class Generate : public SmallRun {
 protected:
  Generate() { expect_success(with(model_flags(), {"--steps", "60", "--run-dir", "run"})); }

  ProgramResult generate(const Arguments& more, const RunOptions& options = {}) const {
    return run_program("stage0_generate", with({"--model", "run", "--threads", "1"}, more), directory.path(),
                       options);
  }
  std::string text(const Arguments& more) const { return expect_done(generate(more)).output; }
  nlohmann::json json(const Arguments& more) const {
    return nlohmann::json::parse(text(with(more, {"--json"})));
  }
  void expect_refused(const Arguments& more, const std::string& says) const {
    expect_failure(generate(more), 2, says);
  }
};

TEST_F(Generate, EchoesThePromptAndGoesOn) {
  const std::string written = text({"--prompt", "the c", "--max-new-tokens", "40", "--temperature", "0"});
  EXPECT_TRUE(written.starts_with("the c")) << written;
  EXPECT_EQ(written.size(), 5 + 40 + 1) << written;  // one character per token, and a line break
  EXPECT_TRUE(written.ends_with("\n"));
}

TEST_F(Generate, ReportsTimesOnStandardError) {
  const ProgramResult result = generate({"--prompt", "the", "--max-new-tokens", "7"});
  expect_said(result, "7 tokens: ");
  expect_said(result, "ms per token");
  expect_said(result, "tokens/s, first after");
}

// The times of all tokens, taken together, are a good part of the time that the program takes, and no more.
TEST_F(Generate, TimesOfTokensAddUpToThatOfTheProgram) {
  constexpr double kTexts = 4,
                   kTokens = 3000;  // of each text: it has no end of text, as the most probable never is
  const auto start = std::chrono::steady_clock::now();
  const nlohmann::json result =
      json(words("--prompt the --temperature 0 --num-samples 4 --max-new-tokens 3000"));
  const double wall_ms =
      std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
  ASSERT_EQ(result["tokens"], kTexts * kTokens);
  const double first = result["ms_to_first_token"], later = result["ms_per_token"];
  EXPECT_NEAR(result["tokens_per_second"].get<double>(), 1e3 / later, 1e-6 * 1e3 / later);
  const double all = first + kTexts * (kTokens - 1) * later;  // the texts grow together
  EXPECT_LE(all, wall_ms);
  EXPECT_GE(all, wall_ms / 4);
  EXPECT_GT(first, 0);
  EXPECT_LT(first, wall_ms / 4);
}

TEST_F(Generate, WritesTheSameFromEveryNameOfAModel) {
  const Arguments greedy = words("--prompt the --temperature 0 --max-new-tokens 50");
  const std::string expected = text(greedy);
  const auto from = [&](const Arguments& model) {
    return run_program("stage0_generate", with(with(model, {"--threads", "1"}), greedy), directory.path())
        .output;
  };
  EXPECT_EQ(from({"--model", "run/latest"}), expected);
  EXPECT_EQ(from({"--model", "run/checkpoints/step_00000060"}), expected);
  const ProgramResult converted =
      run_program("convert_checkpoint", {"--input", "run", "--output", "model.bin"}, directory.path());
  ASSERT_EQ(converted.exit_code, 0) << converted.errors;
  EXPECT_EQ(from({"--model", "model.bin", "--tokenizer-path", "run/tokenizer.json"}), expected);
}

// The sample of a training continues a line break at temperature 0.7, with the run's seed. If there is none
// among the first 65,536 tokens, it continues the first token.
TEST_F(Generate, WritesTheSampleOfATraining) {
  const std::string long_line(65'535, 'a'), rest = "xy\n" + std::string(9000, 'b');
  const std::pair<std::string, std::string> texts[] = {{"abc abc\nabc abc\n", "\n"},
                                                       {"bca bca ", "b"},
                                                       {'y' + long_line.substr(1) + '\n' + rest, "\n"},
                                                       {'y' + long_line + '\n' + rest, "y"}};
  std::vector<std::string> samples;
  for (const auto& [text_, prompt] : texts) {
    std::string whole = text_;
    while (whole.size() < 400) whole += text_;
    directory.write("sampled.txt", whole);
    const std::string run = "sampled" + std::to_string(samples.size());
    const ProgramResult trained = train(
        words("--data sampled.txt --tokenizer char --n-layer 1 --n-head 2 --n-embd 16 --block-size 16 "
              "--steps 2 --threads 1 --batch-size 2 --seed 6 --eval-tokens 16 --max-new-tokens 40 --json") +
        Arguments{"--run-dir", run});
    ASSERT_EQ(trained.exit_code, 0) << trained.errors;
    const ProgramResult generated =
        run_program("stage0_generate",
                    {"--model", run, "--threads", "1", "--prompt", prompt, "--temperature", "0.7", "--seed",
                     "6", "--max-new-tokens", "40", "--json"},
                    directory.path());
    ASSERT_EQ(generated.exit_code, 0) << generated.errors;
    const nlohmann::json text = nlohmann::json::parse(generated.output)["samples"][0];
    const std::string sample = nlohmann::json::parse(trained.output)["sample"];
    // The sample goes on behind the end of a text.
    const std::string end = text["ended_by"] == "end_of_text" ? "<|endoftext|>" : "";
    EXPECT_TRUE(sample.starts_with(text["text"].get<std::string>() + end)) << sample << '\n' << text;
    samples.push_back(sample);
  }
  EXPECT_NE(samples[2], samples[3]) << "the prompt makes no difference";
}

TEST_F(Generate, StopsAtTheEndOfTheText) {
  const nlohmann::json many = json(words("--num-samples 50 --max-new-tokens 60 --temperature 2"));
  int ended = 0;
  for (const auto& sample : many["samples"]) {
    ended += sample["ended_by"] == "end_of_text";
    EXPECT_EQ(sample["text"].get<std::string>().find("<|"), std::string::npos) << sample;
    if (sample["ended_by"] == "length") {
      EXPECT_EQ(sample["text"].get<std::string>().size(), 60);
    }
  }
  EXPECT_GT(ended, 0);
}

// Of 35 texts 18 grow together, of 40 as many as 20.
TEST_F(Generate, WritesTheSameTextsInGroupsOfAnySize) {
  const auto texts = [&](const char* count) {
    return json({"--num-samples", count, "--max-new-tokens", "80", "--weights", "int8"});
  };
  const nlohmann::json few = texts("35"), many = texts("40");
  EXPECT_EQ(few["texts_together"], 18);
  EXPECT_EQ(many["texts_together"], 20);
  for (int i = 0; i < 35; ++i) EXPECT_EQ(few["samples"][i], many["samples"][i]) << i;
}

TEST_F(Generate, StopsBeforeAStopString) {
  const Arguments greedy = {"--prompt", "the cat sat on", "--temperature", "0", "--max-new-tokens", "60"};
  const std::string all = json(greedy)["samples"][0]["text"];
  const std::string stop = all.substr(9, 3);
  const nlohmann::json stopped = json(with(greedy, {"--stop", "never there", "--stop", stop}));
  EXPECT_EQ(stopped["samples"][0]["text"], all.substr(0, all.find(stop)));
  EXPECT_EQ(stopped["samples"][0]["ended_by"], "stop");
}

TEST_F(Generate, TakesStopStringsAsTheyAre) {
  const Arguments greedy = {"--prompt", "the cat sat on", "--temperature", "0", "--max-new-tokens", "30"};
  const std::string all = text(greedy);
  EXPECT_EQ(text(with(greedy, {"--stop", "[a,t]"})), all);
  EXPECT_EQ(json(with(greedy, {"--stop", "[]"}))["prompt"], "the cat sat on");
  expect_refused({"--stop", "x", "stray"}, "stray");
  expect_refused({"--stop", ""}, "--stop: expected a value");
}

TEST_F(Generate, TakesAnEmptyPromptForANewText) {
  EXPECT_EQ(json({"--prompt", "", "--max-new-tokens", "20"})["samples"],
            json({"--max-new-tokens", "20"})["samples"]);
}

TEST_F(Generate, EchoesNoPromptThatItCannotUse) {
  const ProgramResult result = generate({"--prompt", "the CAT"});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_EQ(result.output, "");
}

TEST_F(Generate, AnswersPromptsFromStandardInput) {
  directory.write("prompts", "the cat\r\nTHE DOG\nthe mat");
  const ProgramResult result =
      expect_done(generate({"--interactive", "--max-new-tokens", "5"}, {.input_from = in("prompts")}));
  const std::string& written = result.output;
  EXPECT_TRUE(written.starts_with("the cat")) << written;
  EXPECT_NE(written.find("\nthe mat"), std::string::npos) << written;
  EXPECT_EQ(written.find_first_of("\rD"), std::string::npos) << written;
  expect_said(result, "the character 'T' is not in the vocabulary");
}

// The output cannot be written, so the program ends at the first of a million texts.
TEST_F(Generate, EndsWhenItsOutputCannotBeWritten) {
  const ProgramResult result = generate({"--num-samples", "1000000"}, {.output_to = "/dev/full"});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_EQ(result.errors, "stage0_generate: standard output cannot be written\n");
}

TEST_F(Generate, SaysThatItsInputCannotBeRead) {
  const ProgramResult result = generate({"--interactive"}, {.input_from = directory.path()});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_EQ(result.errors, "stage0_generate: standard input cannot be read\n");
}

TEST_F(Generate, RefusesWhatItCannotUse) {
  expect_refused({"--top-p", "0"}, "--top-p: expected a number above 0 and up to 1");
  for (const char* penalty : {"0", "1e308", "nan"}) {
    expect_refused({"--repetition-penalty", penalty},
                   concat("--repetition-penalty: expected a number above 0 and up to 1000, not '", penalty));
  }
  for (const char* temperature : {"-1", "1e300", "inf", "1001"}) {
    expect_refused({"--temperature", temperature},
                   concat("--temperature: expected a number from 0 to 1000, not '", temperature));
  }
  expect_refused({"--temperature", "1e-300"}, "0 to 1000 that f32 can hold (1.17549e-38 to 3.40282e+38)");
  expect_refused({"--tokenizer-path", "text.txt"}, "--tokenizer-path");
  expect_refused({"--prompt", "THE"}, "--prompt");  // the text had no capitals
  expect_refused({"--interactive", "--json"}, "--json: cannot be combined with --interactive");
  const auto without = [&](const Arguments& arguments) {
    return run_program("stage0_generate", arguments, directory.path()).errors;
  };
  EXPECT_NE(without({}).find("--model is missing: expected a run"), std::string::npos);
  EXPECT_NE(without({"--model", "nothing"}).find("--model: cannot open \"nothing\""), std::string::npos);
  EXPECT_NE(without({"--model", "text.txt"}).find("--model: expected a model file of llm.c"),
            std::string::npos);
}

TEST_F(Generate, SaysThatARunHasNoCheckpointYet) {
  for (const char* name : {"checkpoints", "latest", "best"}) std::filesystem::remove_all(in("run") / name);
  std::filesystem::create_directory(in("run/checkpoints"));
  expect_refused({}, "--model: \"run\" is a run that has no checkpoint yet");
  std::filesystem::create_directory(in("run/checkpoints/step_00000013.tmp"));  // unfinished
  expect_refused({}, "--model: \"run\" is a run that has no checkpoint yet");
  std::filesystem::create_directory(in("run/checkpoints/step_00000007"));
  std::filesystem::create_directory(in("run/checkpoints/step_00000012"));
  expect_refused({},
                 "--model: \"run\" is a run whose link 'latest' is missing; name a checkpoint: "
                 "\"run/checkpoints/step_00000012\"");
}

TEST_F(Generate, RefusesADamagedCheckpoint) {
  const std::filesystem::path file = in("run/latest/model.safetensors");
  std::string bytes = read_bytes(file);
  bytes[bytes.size() - 4] ^= 1;  // changes a weight to another finite number
  std::ofstream(file, std::ios::binary) << bytes;
  expect_refused({}, "model.safetensors\" is damaged");
}

}  // namespace
}  // namespace stagegpt::test
