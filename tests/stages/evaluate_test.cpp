// Tests of the program stage0_evaluate. What it prints is compared with a loop over the tokens, which gets
// their probabilities from the model.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <numbers>

#include "common/app/trained_model.h"
#include "common/base/json.h"
#include "stage0_serial/naive_backend.h"
#include "tests/checkpoint/small_run.h"
#include "tests/support/patterns.h"

namespace stagegpt::test {
namespace {

class Evaluate : public SmallRun {
 protected:
  Evaluate() {
    expect_success(with(model_flags(), {"--steps", "60", "--run-dir", "run"}));
    directory.write("other.txt", kOther);
  }
  // The end of this text makes the last window shorter.
  static constexpr const char* kOther = "the hen sat on the mat. the mats.\nthe eat tea at the sea";

  ProgramResult evaluate(const Arguments& more) const {
    return run_program("stage0_evaluate", with({"--threads", "1"}, more), directory.path());
  }
  nlohmann::json json(const Arguments& more) const {
    const ProgramResult result = expect_done(evaluate(with({"--model", "run", "--json"}, more)));
    return nlohmann::json::parse(result.output);
  }
  void expect_refused(const Arguments& more, const std::string& says) const {
    const ProgramResult result = evaluate(more);
    expect_failure(result, 2, says);
    EXPECT_EQ(result.output, "");
  }

  struct Sums {
    double loss = 0, correct = 0, tokens = 0;
  };
  // Predicts each token from at most T tokens before it, in windows that begin every `stride` tokens.
  static Sums defined(const TrainedModel& trained, Backend& backend, const std::vector<std::int32_t>& ids,
                      std::int64_t T, std::int64_t stride) {
    Sums sums;
    std::int64_t predicted = 0;
    for (std::int64_t begin = 0; predicted < std::ssize(ids) - 1; begin += stride) {
      const std::int64_t end = std::min(begin + T, std::ssize(ids) - 1);
      const std::vector<std::int32_t> window(ids.begin() + begin, ids.begin() + end);
      Tape tape(backend, Tape::Mode::inference);
      const Tensor logits =
          trained.model->logits(tape, to_device<std::int32_t>(backend, {1, end - begin}, window)).value();
      const std::vector<float> all = to_host<float>(backend, logits);
      const auto row_size = static_cast<std::size_t>(logits.shape()[-1]);
      for (std::int64_t t = predicted; t < end; ++t) {  // predicts token t + 1
        const auto row = std::span(all).subspan(static_cast<std::size_t>(t - begin) * row_size,
                                                static_cast<std::size_t>(trained.model->config().vocab_size));
        double sum = 0;
        for (const float logit : row) sum += std::exp(static_cast<double>(logit));
        const auto target = static_cast<std::size_t>(ids[static_cast<std::size_t>(t) + 1]);
        sums.loss += std::log(sum) - row[target];
        sums.correct += std::ranges::max_element(row) - row.begin() == static_cast<std::ptrdiff_t>(target);
        ++sums.tokens;
      }
      predicted = end;
    }
    return sums;
  }
};

TEST_F(Evaluate, IsTheMeanOverAllTokensOfTheText) {
  const auto backend = make_naive_backend();
  const TrainedModel trained = load_trained_model(*backend, in("run"), {}, [](const Gpt2Config&) {});
  const std::vector<std::int32_t> ids = trained.tokenizer->encode(kOther);
  struct Case {
    std::int64_t seq_len, stride;
    const char* batch_size;
  };
  for (const auto& [seq_len, stride, batch_size] :
       {Case{16, 16, "1"}, {16, 16, "100"}, {16, 5, "3"}, {7, 1, "4"}}) {
    const Sums sums = defined(trained, *backend, ids, seq_len, stride);
    const nlohmann::json found = json({"--data", "other.txt", "--seq-len", std::to_string(seq_len),
                                       "--stride", std::to_string(stride), "--batch-size", batch_size});
    const double loss = sums.loss / sums.tokens;
    EXPECT_EQ(found["tokens"], std::ssize(ids) - 1);
    EXPECT_NEAR(found["loss"], loss, 1e-5) << seq_len << ' ' << stride;
    EXPECT_NEAR(found["perplexity"], std::exp(loss), 1e-4);
    EXPECT_EQ(found["accuracy"], sums.correct / sums.tokens);
    EXPECT_EQ(found["bytes"], std::strlen(kOther) - 1);  // the first character is not predicted
    EXPECT_NEAR(found["bits_per_byte"], loss / std::numbers::ln2, 1e-5);  // a character is a token
    EXPECT_EQ(found["stride"], stride);
  }
}

// That the matrices are those rounded values is tested with the model (Gpt2.ReadsEveryNarrowMatrix). Here:
// how much the loss of a trained model changes.
TEST_F(Evaluate, WithNarrowMatricesChangesLittle) {
  const auto loss = [&](const char* weights) -> double {
    return json({"--data", "text.txt", "--weights", weights})["loss"];
  };
  const double exact = loss("f32"), bf16 = std::abs(loss("bf16") - exact),
               int8 = std::abs(loss("int8") - exact);
  EXPECT_GT(bf16, 0);
  EXPECT_LT(bf16, 1e-3) << exact;
  EXPECT_GT(int8, 0);
  EXPECT_LT(int8, 5e-3) << exact;
}

// The validation of training: the same part of the text, in the same windows. Its end is shorter than one.
TEST_F(Evaluate, OfTheValidationPartIsTheLastValidation) {
  const std::string tenth = read_bytes(in("text.txt")).substr(2250, 15 * 16 + 1);
  directory.write("validation.txt", tenth);
  const nlohmann::json trained = metrics("run").back(),
                       found = json({"--data", "validation.txt", "--batch-size", "2"});
  EXPECT_EQ(found["tokens"], trained["validation_tokens"]);
  EXPECT_EQ(found["loss"], trained["validation_loss"]);
  EXPECT_EQ(json({"--data", "text.txt", "--val-fraction", "0.1"})["tokens"], 249);
  EXPECT_EQ(json({"--data", "text.txt"})["tokens"], 2499);
}

TEST_F(Evaluate, PrintsATable) {
  const ProgramResult result = expect_done(evaluate(words("--model run --data other.txt --stride 8")));
  EXPECT_TRUE(matches(result.output,
                      "loss           [0-9.]+ nats per token\n"
                      "perplexity     [0-9.]+\n"
                      "bits per byte  [0-9.]+\n"
                      "accuracy       0\\.[0-9]+\n"
                      "of             55 tokens, 55 bytes, in windows of 16 "
                      "tokens that begin every 8\n"))
      << result.output;
}

TEST_F(Evaluate, OfTwoTokensPredictsOne) {
  directory.write("two.txt", "th");
  const ProgramResult result = evaluate({"--model", "run", "--data", "two.txt"});
  EXPECT_NE(result.output.find("\nof             1 token, 1 byte, in"), std::string::npos) << result.output;
}

TEST_F(Evaluate, OfUnknownWordsHasNoBytes) {
  expect_success(
      words("--data text.txt --tokenizer word --n-layer 1 --n-head 1 --n-embd 8 --block-size 8 --steps 1 "
            "--max-new-tokens 0 --run-dir words"));
  const Arguments flags = {"--model", "words", "--data", "other.txt"};
  const ProgramResult table = evaluate(flags), found = evaluate(with(flags, {"--json"}));
  EXPECT_NE(table.output.find("bits per byte  unknown"), std::string::npos) << table.output;
  EXPECT_TRUE(nlohmann::json::parse(found.output)["bits_per_byte"].is_null()) << found.output;
}

TEST_F(Evaluate, TakesTheValidationPartOfPreparedData) {
  ASSERT_EQ(
      run_program("prepare_data",
                  words("--input text.txt --output data --tokenizer-path run/latest --val-fraction 0.1"),
                  directory.path())
          .exit_code,
      0);
  const nlohmann::json part = json({"--data", "text.txt", "--val-fraction", "0.1"});
  EXPECT_EQ(json({"--data", "data"}), part);
  EXPECT_EQ(json({"--data", "data", "--val-fraction", "0.5"}), part);
  EXPECT_EQ(json({"--data", "data/train_000000.bin"})["tokens"], 2249);
  EXPECT_EQ(json({"--data", "data/*_000000.bin"})["tokens"], 2499);
  std::filesystem::remove(in("data/val_000000.bin"));
  expect_refused({"--model", "run", "--data", "data"}, "is a directory without val_*.bin");
}

// llm.c's file has no tokenizer.
TEST_F(Evaluate, OfAModelFileTakesATokenizer) {
  ASSERT_EQ(run_program("convert_checkpoint", {"--input", "run", "--output", "model.bin"}, directory.path())
                .exit_code,
            0);
  const ProgramResult found =
      expect_done(evaluate(words("--model model.bin --tokenizer-path run/latest --data other.txt --json")));
  EXPECT_EQ(nlohmann::json::parse(found.output), json({"--data", "other.txt"}));
  expect_refused({"--model", "model.bin", "--data", "other.txt"}, "--tokenizer-path: expected the path");
}

TEST_F(Evaluate, TakesNamesForSpecialTokensOrForText) {
  expect_success(
      words("--data text.txt --tokenizer bpe --vocab-size 257 --n-layer 1 --n-head 1 --n-embd 8 --block-size "
            "8 --steps 1 --max-new-tokens 0 --run-dir bpe"));
  directory.write("special.txt", "the cat<|endoftext|>the mat");
  const auto tokens = [&](const Arguments& more) {
    const ProgramResult found = evaluate(with(words("--model bpe --data special.txt --json"), more));
    return nlohmann::json::parse(found.output)["tokens"].get<int>();
  };
  EXPECT_EQ(tokens({}), 7 + 13 + 7 - 1);
  EXPECT_EQ(tokens({"--parse-special-tokens"}), 7 + 1 + 7 - 1);
  directory.write("special.txt", "\x1f\x8b");
  expect_refused({"--model", "bpe", "--data", "special.txt"}, "\"special.txt\" is a gzip file");
  EXPECT_EQ(tokens({"--any-bytes"}), 1);
}

// Questions about the text that the model has learnt: it knows how the text goes on, but one label is wrong.
TEST_F(Evaluate, OfATaskIsItsAccuracy) {
  directory.write("task.jsonl",
                  "{\"context\": \"the cat\", \"endings\": [\"sat on\", \"eat eat\"], \"label\": 0}\n"
                  "{\"context\": \"sat on\", \"endings\": [\"hen\", \"mta\", \"the\"], \"label\": 2}\n"
                  "{\"context\": \"the cat sat on\", \"endings\": [\"sea at\", \"the ma\"], \"label\": 0}\n");
  for (const char* batch_size : {"1", "4", "100"}) {
    const nlohmann::json found = json({"--task", "task.jsonl", "--batch-size", batch_size});
    EXPECT_EQ(found["acc"], 2.0 / 3) << found;
    EXPECT_EQ(found["acc_norm"], 2.0 / 3);
    EXPECT_NEAR(found["acc_stderr"], 1.0 / 3, 1e-12);
    EXPECT_NEAR(found["acc_norm_stderr"], 1.0 / 3, 1e-12);
    EXPECT_EQ(found["questions"], 3);
    EXPECT_EQ(found["cut"], 2);
  }
  const ProgramResult table = evaluate({"--model", "run", "--task", "task.jsonl"});
  EXPECT_EQ(
      table.output,
      "acc        0.6667 ± 0.3333\n"
      "acc_norm   0.6667 ± 0.3333\n"
      "of         3 questions; 2 endings had to lose the beginning of the context, which is longer than the "
      "model's, 16 tokens\n");
}

TEST_F(Evaluate, OfOneQuestionHasNoStandardError) {
  directory.write("task.jsonl", "{\"context\": \"the\", \"endings\": [\"cat\", \"tt\"], \"label\": 1}");
  const nlohmann::json found = json({"--task", "task.jsonl"});
  EXPECT_EQ(found["acc"], 0);
  EXPECT_TRUE(found["acc_stderr"].is_null());
  const ProgramResult table = evaluate({"--model", "run", "--task", "task.jsonl"});
  EXPECT_EQ(table.output, "acc        0.0000\nacc_norm   0.0000\nof         1 question\n");
}

TEST_F(Evaluate, RefusesTasksThatItCannotDo) {
  const Arguments task = {"--model", "run", "--task", "task.jsonl"};
  expect_refused(task, "--task: cannot open \"task.jsonl\"");
  directory.write("task.jsonl", "{}");
  expect_refused(task, "--task: \"task.jsonl\": line 1: ");
  expect_refused(with(task, {"--data", "other.txt"}), "--task: expected either a task or --data, not both");
  for (const Arguments& flag : {Arguments{"--stride", "1"},
                                {"--seq-len", "4"},
                                {"--val-fraction", "0.5"},
                                {"--any-bytes"},
                                {"--parse-special-tokens"}})
    expect_refused(with(task, flag), flag[0] + " is for --data, not for --task");
}

TEST_F(Evaluate, RefusesWhatItCannotDo) {
  expect_refused({"--data", "other.txt"}, "--model is missing");
  expect_refused({"--model", "run"}, "--data or --task is missing");
  const Arguments both = {"--model", "run", "--data", "other.txt"};
  expect_refused(with(both, {"--seq-len", "17"}),
                 "--seq-len: expected at most 16, the model's context, got 17");
  expect_refused(with(both, {"--stride", "17"}), "--stride: expected at most --seq-len, 16");
  expect_refused(with(both, {"--batch-size", "1000000000"}), "--batch-size");
  expect_refused({"--model", "run", "--data", "none.txt"}, "--data: cannot open \"none.txt\"");
  directory.write("one.txt", "t");
  expect_refused({"--model", "run", "--data", "one.txt"},
                 "1 token for validation, fewer than one window of 2; give a longer text or another "
                 "--val-fraction\n");
}

}  // namespace
}  // namespace stagegpt::test
