// What a run reports: metrics.jsonl, TensorBoard's event files, samples, steps that are not finite.
#include <cmath>
#include <cstring>
#include <limits>
#include <set>

#include "common/base/error.h"
#include "common/base/json.h"
#include "common/logging/tensorboard_log.h"
#include "tests/checkpoint/small_run.h"
#include "tests/support/event_file.h"
#include "tests/support/file_size_limit.h"

namespace stagegpt::test {
namespace {

namespace fs = std::filesystem;
class Watching : public SmallRun {
 protected:
  static Arguments flags(const std::string& run, const Arguments& more = {}) {
    return with(with(model_flags(),
                     {"--steps", "12", "--eval-every", "5", "--checkpoint-every", "6", "--run-dir", run}),
                more);
  }
  std::vector<nlohmann::json> all_metrics(const std::string& run) const {
    std::vector<nlohmann::json> lines;
    std::istringstream text(read_bytes(in(run) / "metrics.jsonl"));
    for (std::string line; std::getline(text, line);) lines.push_back(nlohmann::json::parse(line));
    return lines;
  }
  std::vector<EventRecord> events(const std::string& run, int file) const {
    return events_of(read_bytes(in(run) / ("events.out.tfevents.00000" + std::to_string(file))));
  }
};

std::set<std::string> keys_of(const nlohmann::json& json) {
  std::set<std::string> keys;
  for (const auto& [key, value] : json.items()) keys.insert(key);
  return keys;
}

TEST_F(Watching, MetricsHaveTheFieldsOfTheirVersion) {
  const ProgramResult result = train(flags("run", {"--grad-accumulation", "2"}));
  ASSERT_EQ(result.exit_code, 0) << result.errors;
  const std::vector<nlohmann::json> lines = all_metrics("run");
  ASSERT_EQ(lines.size(), 12u);
  const std::set<std::string> always = {"version",
                                        "step",
                                        "tokens",
                                        "loss",
                                        "perplexity",
                                        "grad_norm",
                                        "learning_rate",
                                        "tokens_per_second",
                                        "model_flops_per_second",
                                        "mfu",
                                        "ms",
                                        "seconds",
                                        "bytes_reduced",
                                        "peak_memory_bytes"};
  std::set<std::string> validated = always;
  validated.insert({"validation_loss", "validation_perplexity", "validation_accuracy", "validation_tokens",
                    "validation_seconds", "bits_per_byte"});
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const nlohmann::json& line = lines[i];
    const bool validation = i == 4 || i == 5 || i == 9 || i == 11;
    EXPECT_EQ(keys_of(line), validation ? validated : always) << i;
    EXPECT_EQ(line["version"], 4);
    EXPECT_EQ(line["step"], i + 1);
    EXPECT_EQ(line["tokens"], (i + 1) * 64);
    EXPECT_NEAR(line["perplexity"], std::exp(line["loss"].get<double>()), 1e-9);
    EXPECT_EQ(keys_of(line["ms"]),
              (std::set<std::string>{"data", "forward", "backward", "communication", "optimizer"}));
    double sum = 0;
    for (const auto& [phase, value] : line["ms"].items()) sum += value.get<double>();
    EXPECT_NEAR(sum, line["seconds"].get<double>() * 1e3, 1e-6);
    EXPECT_NEAR(line["tokens_per_second"].get<double>() * line["seconds"].get<double>(), 64, 1e-6);
    EXPECT_EQ(line["bytes_reduced"], 0);
    EXPECT_GT(line["mfu"], 0);
    EXPECT_LT(line["mfu"], 1.5);
    // All lines use the same peak FLOP/s.
    const auto peak_of = [](const nlohmann::json& at) {
      return at["model_flops_per_second"].get<double>() / at["mfu"].get<double>();
    };
    EXPECT_NEAR(peak_of(line) / peak_of(lines[0]), 1, 1e-12);
    EXPECT_GT(line["peak_memory_bytes"], 10000);
    EXPECT_LT(line["peak_memory_bytes"], 1000000);  // less than the matrices of the peak measurement
  }
  const nlohmann::json& last = lines.back();
  EXPECT_NEAR(last["bits_per_byte"], last["validation_loss"].get<double>() / std::log(2.0), 1e-9);
  EXPECT_NEAR(last["validation_perplexity"], std::exp(last["validation_loss"].get<double>()), 1e-9);
  const std::int64_t windows = (250 - 1) / 16;  // from the last tenth of the text; one token per character
  EXPECT_EQ(last["validation_tokens"], 16 * windows);
  // FLOPs per token: 6N + 6LCT, L = 1, C = T = 16.
  const std::size_t parameters = result.errors.find(": ") + 2;  // "3,776 parameters"
  std::string digits = result.errors.substr(parameters, result.errors.find(' ', parameters) - parameters);
  std::erase(digits, ',');
  const double N = std::stod(digits);
  EXPECT_NEAR(last["model_flops_per_second"].get<double>() * last["seconds"].get<double>(),
              64 * (6 * N + 6 * 16 * 16), 1);
}

TEST_F(Watching, AccuracyIsThatOfTheModel) {
  // A text of one repeated letter is learnt within a few steps.
  directory.write("text.txt", std::string(3000, 'a') + "b");
  expect_success(flags("run", {"--learning-rate", "0.01"}));
  EXPECT_EQ(all_metrics("run").back()["validation_accuracy"], 1);
}

TEST_F(Watching, ARunOfTheFirstVersionGoesOn) {
  expect_success(flags("run", {"--stop-after", "3"}));
  directory.write("run/metrics.jsonl",
                  "{\"version\":1,\"step\":1,\"loss\":3}\n{\"version\":1,\"step\":2,\"loss\":3}\n"
                  "{\"version\":1,\"step\":3,\"loss\":3}\n{\"version\":1,\"step\":4,\"loss\":3}\n");
  const ProgramResult result = expect_success({"--resume", "run"});
  EXPECT_EQ(result.errors.find("lacks"), std::string::npos) << result.errors;
  const std::vector<nlohmann::json> lines = all_metrics("run");
  ASSERT_EQ(lines.size(), 12u);
  for (std::size_t i = 0; i < 12; ++i) {
    EXPECT_EQ(lines[i]["step"], i + 1);
    EXPECT_EQ(lines[i]["version"], i < 3 ? 1 : 4);
  }
}

TEST_F(Watching, TensorBoardGetsWhatTheMetricsHave) {
  expect_success(flags("run"));
  const std::vector<EventRecord> all = events("run", 1);
  const std::vector<nlohmann::json> lines = all_metrics("run");
  ASSERT_EQ(all.size(), 2 + 12u);
  EXPECT_EQ(all[0].version, "brain.Event:2");
  EXPECT_TRUE(all[1].restart);
  EXPECT_EQ(all[1].step, 1);
  for (std::size_t i = 0; i < 12; ++i) {
    const EventRecord& event = all[i + 2];
    const auto expect = [&](const char* tag, const char* field) {
      ASSERT_TRUE(event.scalars.contains(tag)) << tag;
      EXPECT_EQ(event.scalars.at(tag), lines[i][field].get<float>()) << tag;
    };
    EXPECT_EQ(event.step, i + 1);
    EXPECT_GT(event.wall_time, 1.7e9);
    expect("train/loss", "loss");
    expect("train/grad_norm", "grad_norm");
    expect("train/learning_rate", "learning_rate");
    expect("speed/tokens_per_second", "tokens_per_second");
    expect("speed/mfu", "mfu");
    EXPECT_EQ(event.scalars.at("milliseconds/forward"), lines[i]["ms"]["forward"].get<float>());
    ASSERT_EQ(event.scalars.contains("validation/loss"), lines[i].contains("validation_loss"));
    if (!lines[i].contains("validation_loss")) continue;
    expect("validation/loss", "validation_loss");
    expect("validation/accuracy", "validation_accuracy");
    expect("validation/bits_per_byte", "bits_per_byte");
  }
}

TEST_F(Watching, AResumedRunHasAnotherEventFile) {
  expect_success(flags("run", {"--stop-after", "7"}));
  const std::string first = read_bytes(in("run/events.out.tfevents.000001"));
  fs::remove_all(in("run/checkpoints/step_00000007"));
  expect_success({"--resume", "run"});
  EXPECT_EQ(read_bytes(in("run/events.out.tfevents.000001")), first);
  const std::vector<EventRecord> all = events("run", 2);
  ASSERT_EQ(all.size(), 2 + 6u);
  EXPECT_TRUE(all[1].restart);
  EXPECT_EQ(all[1].step, 7);
  EXPECT_EQ(all[2].step, 7);
  expect_success({"--resume", "run"});  // no step is left, so there are no events
  EXPECT_FALSE(fs::exists(in("run/events.out.tfevents.000003")));
}

TEST_F(Watching, ARunThatBeginsAnewMayHaveEventFiles) {
  expect_success(flags("run", {"--stop-after", "2"}));
  for (const char* name : {"checkpoints", "latest", "best"}) fs::remove_all(in("run") / name);
  expect_success(flags("run"));
  ASSERT_TRUE(fs::exists(in("run/events.out.tfevents.000002")));
  EXPECT_EQ(events("run", 2)[1].step, 1);
  fs::create_directory(in("other"));
  directory.write("other/events.out.tfevents.1", "mine");
  expect_refused(flags("other"), "is not empty");
}

TEST(TensorBoardLog, ReportsOnceWhatCannotBeWritten) {
  const ScratchDirectory scratch;
  for (const fs::path& directory : {scratch.path(), fs::path("/nowhere")}) {
    std::vector<std::string> reports;
    TensorBoardLog log(directory, 0, [&](const std::string& text) { reports.push_back(text); });
    {
      const FileSizeLimit full(200);
      for (int step = 1; step < 9; ++step) log.add(step, std::vector<Scalar>{{"train/loss", 1}});
    }
    ASSERT_EQ(reports.size(), 1u);
    const fs::path file = directory / "events.out.tfevents.000001";
    EXPECT_EQ(reports[0].find(concat("warning: cannot write ", file, ": ")), 0u) << reports[0];
    log.add(9, std::vector<Scalar>{{"train/loss", 1}});
    if (directory == scratch.path()) {
      EXPECT_EQ(events_of(read_bytes(file)).size(), 2 + 9u);
    }
  }
}

// Every fifth step has the numbers of the layers, whose gradients together have the norm of all.
TEST_F(Watching, LayersAreMeasuredEverySoManySteps) {
  ASSERT_EQ(train(flags("run", {"--watch-layers", "5"})).exit_code, 0);
  const std::vector<nlohmann::json> lines = all_metrics("run");
  for (const nlohmann::json& line : lines) {
    ASSERT_EQ(line.contains("layers"), line["step"].get<int>() % 5 == 0) << line["step"];
    if (!line.contains("layers")) continue;
    std::string names;
    double squares = 0;
    for (const nlohmann::json& layer : line["layers"]) {
      names += layer["name"].get<std::string>() + ' ';
      squares += std::pow(layer["grad_norm"].get<double>(), 2);
      EXPECT_EQ(layer.contains("dead_units"), layer["name"] == "h.0");
      EXPECT_GT(layer["update_ratio"], 0);
    }
    EXPECT_EQ(names, "wte wpe h.0 ln_f ");
    EXPECT_NEAR(std::sqrt(squares), line["grad_norm"], 1e-6 * line["grad_norm"].get<double>());
  }
}

TEST_F(Watching, SamplesComeWhileItTrains) {
  const ProgramResult result =
      train(with_flags(flags("run"), {"--sample-every", "4", "--max-new-tokens", "9"}));
  ASSERT_EQ(result.exit_code, 0) << result.errors;
  std::vector<std::string> samples;
  for (const EventRecord& event : events("run", 1)) {
    if (event.texts.contains("sample")) samples.push_back(event.texts.at("sample"));
  }
  ASSERT_EQ(samples.size(), 3u);
  for (const int step : {4, 8, 12}) {
    const std::string title = "sample after step " + std::to_string(step) + ":\n";
    const std::size_t at = result.errors.find(title);
    ASSERT_NE(at, std::string::npos) << result.errors;
    EXPECT_EQ(result.errors.at(at + title.size() + 9), '\n');  // one token per character
  }
  // The last sample is also the program's output; one token per character.
  EXPECT_EQ(result.output.size(), 9 + 1u);
  const std::size_t at = result.errors.find("sample after step 12:\n");
  EXPECT_EQ(result.errors.substr(at + 22, 10), result.output);
  expect_success(flags("silent"));
  for (const EventRecord& event : events("silent", 1)) EXPECT_TRUE(event.texts.empty());
  // Sampling does not change the training.
  EXPECT_EQ(hash_of("run/latest"), hash_of("silent/latest"));
}

TEST_F(Watching, OverfitBatchTrainsOnOneBatch) {
  const Arguments more = {"--overfit-batch", "--learning-rate", "0.02", "--grad-accumulation", "2"};
  const auto longer = [&](const std::string& run) {
    return with_flags(flags(run, more), {"--steps", "120"});
  };
  directory.write("text.txt", read_bytes(STAGEGPT_SOURCE_DIR "/data/dummy.txt").substr(0, 20000));
  expect_success(longer("whole"));
  EXPECT_LT(metrics("whole").back()["loss"], 0.5);
  EXPECT_GT(metrics("whole").back()["validation_loss"], 3);
  EXPECT_EQ(metrics("whole").back()["tokens"], 120 * 64);
  EXPECT_EQ(json_in("whole/run.json")["overfit_batch"], true);
  expect_success(with(longer("run"), {"--stop-after", "50"}));
  expect_success({"--resume", "run"});
  expect_same_end("run", "whole");
}

class NonFiniteSteps : public Watching {
 protected:
  // A model whose logit of the last token, the end of text, is infinite.
  NonFiniteSteps() {
    expect_success(flags("good"));
    fs::create_directory(in("bad"));
    for (const char* name : {"config.json", "tokenizer.json", "model.safetensors"}) {
      fs::copy_file(in("good/latest") / name, in("bad") / name);
    }
    set_first_of_last_row("ln_f.bias", 3e38f);
    set_first_of_last_row("wte.weight", 3e38f);
  }
  // Of a tensor with 16 columns.
  void set_first_of_last_row(const std::string& name, float value) const {
    std::string bytes = read_bytes(in("bad/model.safetensors"));
    std::uint64_t header = 0;
    std::memcpy(&header, bytes.data(), sizeof header);
    const nlohmann::json tensors = nlohmann::json::parse(bytes.substr(8, header));
    const auto end = tensors[name]["data_offsets"][1].get<std::uint64_t>();
    std::memcpy(bytes.data() + 8 + header + end - 16 * sizeof value, &value, sizeof value);
    directory.write("bad/model.safetensors", bytes);
  }
  static Arguments from_bad(const std::string& run, const Arguments& more = {}) {
    return with({"--model", "bad", "--data", "text.txt", "--steps", "3", "--batch-size", "2", "--threads",
                 "1", "--max-new-tokens", "0", "--run-dir", run},
                more);
  }
};

TEST_F(NonFiniteSteps, StopARunAndAreNamed) {
  const ProgramResult result = train(from_bad("run"));
  expect_failure(result, 1, "step 1: the output of wte (linear) is not finite (loss nan, gradient norm nan)");
  // The state before the step has been saved.
  expect_said(result, "to continue, use --resume run --non-finite skip");
  EXPECT_EQ(fs::read_symlink(in("run/latest")), "checkpoints/step_00000000");
  EXPECT_EQ(hash_of_file(in("run/latest/model.safetensors")), hash_of_file(in("bad/model.safetensors")));
  EXPECT_EQ(train({"--resume", "run", "--non-finite", "skip"}).exit_code, 0);
  EXPECT_EQ(all_metrics("run").size(), 3u);
}

TEST_F(NonFiniteSteps, DoNotBeginWithWeightsThatAreNotFinite) {
  set_first_of_last_row("h.0.attn.c_proj.bias", -std::numeric_limits<float>::infinity());
  const std::string says = ": --model: \"bad\": h.0.attn.c_proj.bias has a value that is not finite\n";
  expect_refused(from_bad("run"), says);
  const ProgramResult generated = run_program("stage0_generate", {"--model", "bad"}, directory.path());
  EXPECT_EQ(generated.exit_code, 2);
  EXPECT_EQ(generated.errors, "stage0_generate" + says);
}

TEST_F(NonFiniteSteps, EndARunAfterAHundredInARow) {
  const ProgramResult result =
      train(with_flags(from_bad("run", {"--non-finite", "skip"}), {"--steps", "200"}));
  expect_failure(result, 1,
                 "; 100 steps skipped, 100 in a row; a lower --learning-rate may help; to continue");
  EXPECT_EQ(fs::read_symlink(in("run/latest")), "checkpoints/step_00000099");
}

TEST_F(NonFiniteSteps, SampleNothing) {
  const ProgramResult result = expect_success(
      with_flags(from_bad("run"), {"--non-finite", "skip", "--sample-every", "1", "--max-new-tokens", "5"}));
  expect_said(result, "warning: no sample: the model's logits");
  EXPECT_TRUE(fs::exists(in("run/latest")));
}

TEST_F(NonFiniteSteps, AreSkipped) {
  const ProgramResult result = expect_success(from_bad("run", {"--non-finite", "skip"}));
  expect_said(result, "note: step 3: the output of wte (linear) is not finite");
  expect_said(result, "; 3 steps skipped");
  EXPECT_EQ(result.errors.find("-nan"), std::string::npos) << result.errors;
  const std::vector<nlohmann::json> lines = all_metrics("run");
  ASSERT_EQ(lines.size(), 3u);
  for (const nlohmann::json& line : lines) {
    EXPECT_EQ(line["skipped"], true);
    for (const char* field : {"loss", "perplexity", "grad_norm"})
      EXPECT_TRUE(line.at(field).is_null()) << field;
  }
  EXPECT_TRUE(lines.back().at("validation_loss").is_null());
  EXPECT_EQ(lines.back().at("validation_accuracy"), 0);
  // The weights have not changed.
  EXPECT_EQ(hash_of_file(in("run/latest/model.safetensors")), hash_of_file(in("bad/model.safetensors")));
}

TEST_F(NonFiniteSteps, AreCountedAtTheEnd) {
  expect_said(train(with_flags(from_bad("run"), {"--non-finite", "skip", "--steps", "1"})),
              "note: loss or gradient not finite in 1 step, 1 step skipped\n");
  EXPECT_EQ(train({"--resume", "good", "--steps", "1"}).errors.find("not finite"), std::string::npos);
}

TEST_F(NonFiniteSteps, AreToldOfTenTimes) {
  const ProgramResult result =
      expect_success(with_flags(from_bad("run"), {"--non-finite", "skip", "--steps", "12"}));
  expect_said(result, "10 steps skipped; further ones are counted but not reported\n");
  EXPECT_EQ(result.errors.find("step 11: "), std::string::npos) << result.errors;
  expect_said(result, "note: loss or gradient not finite in 12 steps, 12 steps skipped\n");
}

TEST_F(NonFiniteSteps, ThatComeOfALargeLearningRateNameAnOp) {
  expect_failure(train(flags("run", {"--learning-rate", "1e30", "--warmup-steps", "0"})), 1,
                 "step 2: the output of ");
  expect_refused(flags("other", {"--non-finite", "ignore"}), "--non-finite: expected one of stop, skip");
}

}  // namespace
}  // namespace stagegpt::test
