// Wrong input gives one line on standard error that names the mistake, exit code 2, no standard output, and
// no files.
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "tests/support/program.h"

namespace stagegpt::test {
namespace {

using Arguments = std::vector<std::string>;

struct Mistake {
  std::string name;
  Arguments arguments;
  std::string says;  // a part of the message
};

std::ostream& operator<<(std::ostream& out, const Mistake& mistake) { return out << mistake.name; }

void expect_refused(const std::string& program, const Arguments& arguments, const std::string& says) {
  const ScratchDirectory directory;
  const ProgramResult result = run_program(program, arguments, directory.path());
  EXPECT_EQ(result.exit_code, 2) << result.errors;
  EXPECT_EQ(result.output, "");
  EXPECT_EQ(std::ranges::count(result.errors, '\n'), 1) << result.errors;
  expect_said(result, says);
  EXPECT_TRUE(std::filesystem::is_empty(directory.path()));
}

class TrainRefuses : public testing::TestWithParam<Mistake> {};

TEST_P(TrainRefuses, WithOneLine) { expect_refused("stage0_train", GetParam().arguments, GetParam().says); }

const Mistake kMistakes[] = {
    {"missing_corpus", {"--data", "nowhere.txt"}, "--data: cannot open \"nowhere.txt\": No such file"},
    {"empty_corpus", {"--data", "/proc/self/mem"}, "is empty"},
    {"device", {"--data", "/dev/zero"}, "is not a regular file"},
    {"directory", {"--data", "/"}, "is a directory"},
    {"empty_path", {"--data", ""}, "--data: expected a value"},
    {"unknown_flag", {"--bacth-size", "4"}, "unknown flag --bacth-size, did you mean --batch-size?"},
    {"unknown_flag_with_value", {"--step=4"}, "unknown flag --step, did you mean --steps?"},
    {"strange_flag", {"--zzzzzzzz"}, "unknown flag --zzzzzzzz; see --help"},
    {"short_flag", {"-x"}, "unknown flag -x"},
    {"unknown_model", {"--model", "nanoo"}, "did you mean nano?"},
    {"unknown_activation", {"--activation", "swish"}, "--activation: expected one of gelu_new, gelu, relu"},
    {"unknown_tokenizer",
     {"--tokenizer", "sentencepiece"},
     "--tokenizer: expected one of char, word, bpe, gpt2"},
    {"unknown_schedule", {"--lr-schedule", "cosin"}, "did you mean cosine?"},
    {"unknown_matmul",
     {"--cpu-matmul", "mkl"},
     "--cpu-matmul: expected one of naive, tiled, packed, packed-bf16, blas"},
    {"heads_do_not_divide", {"--n-head", "5"}, "--n-head: 5 does not divide --n-embd 128"},
    {"missing_value", {"--steps"}, "--steps: expected a value"},
    {"zero_steps", {"--steps", "0"}, "--steps: expected a whole number from 1"},
    {"negative_steps", {"--steps", "-5"}, "not '-5'"},
    {"fractional_steps", {"--steps", "1.5"}, "not '1.5'"},
    {"not_a_number", {"--steps", "many"}, "not 'many'"},
    {"trailing_letters", {"--steps", "10k"}, "not '10k'"},
    {"leading_space", {"--steps", " 10"}, "not ' 10'"},
    {"hexadecimal", {"--steps", "0x10"}, "not '0x10'"},
    {"empty_number", {"--steps", ""}, "not ''"},
    {"overflowing", {"--steps", "99999999999999999999"}, "not '99999999999999999999'"},
    {"fractional_power_of_ten", {"--steps", "1.25e1"}, "not '1.25e1'"},
    {"wrong_the_last_time", {"--steps", "1", "--steps", "0"}, "--steps: expected a whole number from 1"},
    {"zero_batch", {"--batch-size", "0"}, "--batch-size"},
    {"zero_layers", {"--n-layer", "0"}, "--n-layer"},
    {"zero_heads", {"--n-head", "0"}, "--n-head"},
    {"zero_channels", {"--n-embd", "0"}, "--n-embd"},
    {"zero_context", {"--block-size", "0"}, "--block-size"},
    {"overflowing_channels", {"--n-embd", "4294967296"}, "--n-embd"},
    {"zero_threads", {"--threads", "0"}, "--threads"},
    {"negative_threads", {"--threads", "-1"}, "--threads"},
    {"negative_seed", {"--seed", "-1"}, "--seed"},
    {"zero_accumulation", {"--grad-accumulation", "0"}, "--grad-accumulation"},
    {"zero_learning_rate", {"--learning-rate", "0"}, "--learning-rate: expected a number above 0"},
    {"infinite_learning_rate", {"--learning-rate", "inf"}, "not 'inf'"},
    {"nan_learning_rate", {"--learning-rate", "nan"}, "not 'nan'"},
    {"overflowing_learning_rate", {"--learning-rate", "1e999"}, "not '1e999'"},
    {"learning_rate_beyond_f32", {"--learning-rate", "1e39"}, "not '1e39'"},
    {"eps_below_f32", {"--eps", "1e-46"}, "not '1e-46'"},
    {"min_lr_above_peak", {"--min-lr", "1"}, "--min-lr: 1 exceeds --learning-rate"},
    {"warmup_beyond_steps", {"--steps", "5", "--warmup-steps", "6"}, "--warmup-steps: 6 exceeds --steps 5"},
    {"negative_weight_decay", {"--weight-decay", "-0.1"}, "--weight-decay"},
    {"beta_of_one", {"--beta2", "1"}, "--beta2: expected a number from 0 to below 1"},
    {"zero_eps", {"--eps", "0"}, "--eps"},
    {"negative_clip", {"--grad-clip", "-1"}, "--grad-clip"},
    {"dropout_of_one", {"--dropout", "1"}, "--dropout"},
    {"less_than_no_validation", {"--val-fraction", "-0.1"}, "--val-fraction"},
    {"fewer_than_no_tokens", {"--eval-tokens", "-1"}, "--eval-tokens"},
    {"all_validation", {"--val-fraction", "1"}, "--val-fraction"},
    {"stray_argument", {"data.txt"}, "unexpected argument 'data.txt'"},
    {"only_dashes", {"--", "x"}, "unexpected argument"},
    {"line_break_in_a_name", {"--data", "a\nb"}, "cannot open \"a?b\""},
    {"value_for_a_switch", {"--json=1"}, "--json: takes no value"},
    {"flag_of_other_stages",
     {"--comm", "flat"},
     "--comm: stage 0 has no use for it; it belongs to stages 1 and 3"},
    {"flag_of_stage_3", {"--transport=nccl"}, "it belongs to stage 3"},
};

INSTANTIATE_TEST_SUITE_P(BadInput, TrainRefuses, testing::ValuesIn(kMistakes),
                         [](const auto& test) { return test.param.name; });

// Several ranks write to one standard error: a message in parts would be mixed with others. Each write to a
// datagram socket is a message of its own.
TEST(BadInput, IsToldInOneWrite) {
  std::array<int, 2> ends;
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_DGRAM, 0, ends.data()), 0);
  const pid_t child = fork();
  if (child == 0) {
    dup2(ends[1], STDERR_FILENO);
    execl(STAGEGPT_BIN_DIR "/stage0_train", "stage0_train", "--steps", "many", nullptr);
    _exit(127);
  }
  close(ends[1]);
  std::array<char, 1000> text;
  const ssize_t size = recv(ends[0], text.data(), text.size(), 0);
  close(ends[0]);
  int status = 0;
  waitpid(child, &status, 0);
  ASSERT_GT(size, 0);
  EXPECT_EQ(std::string_view(text.data(), static_cast<std::size_t>(size)),
            "stage0_train: --steps: expected a whole number from 1 to 1000000000, not 'many'\n");
}

TEST(TrainRefusesCorpus, ShorterThanOneWindow) {
  const ScratchDirectory files;
  expect_refused("stage0_train",
                 {"--data", files.write("short.txt", std::string(100, 'a')), "--tokenizer", "char",
                  "--block-size", "128"},
                 "fewer than one window of 129");
}

TEST(TrainRefusesCorpus, ValidationShorterThanOneWindow) {
  const ScratchDirectory files;
  expect_refused("stage0_train",
                 {"--data", files.write("short.txt", std::string(1000, 'a')), "--tokenizer", "char",
                  "--block-size", "128"},
                 "leaves 100 tokens for validation");
}

TEST(TrainRefusesCorpus, OfOneToken) {
  const ScratchDirectory files;
  expect_refused("stage0_train",
                 {"--data", files.write("short.txt", "a"), "--tokenizer", "char", "--val-fraction", "0"},
                 "leaves 1 token for training");
}

TEST(TrainRefusesCorpus, ThatIsNotUtf8) {
  const ScratchDirectory files;
  expect_refused("stage0_train",
                 {"--data", files.write("bytes.txt", std::string(5000, 'a') + "\xff"), "--tokenizer", "char"},
                 "is not UTF-8: byte 5000");
}

class VerifyRefuses : public testing::Test {
 protected:
  static constexpr const char* kGolden = STAGEGPT_SOURCE_DIR "/tests/golden/";

  void refuse(const std::string& model_path, const std::string& state_path, const std::string& says) const {
    expect_refused("stage0_verify", {"--model", model_path, "--state", state_path}, says);
  }

  ScratchDirectory files;
  std::string model = std::string(kGolden) + "one.bin", state = std::string(kGolden) + "one_debug_state.bin";
  std::string model_bytes = read_bytes(model), state_bytes = read_bytes(state);
};

TEST_F(VerifyRefuses, MissingFlags) {
  expect_refused("stage0_verify", {}, "--model is missing: expected");
  expect_refused("stage0_verify", {"--model", model}, "--state: expected");
}

TEST_F(VerifyRefuses, MissingFiles) {
  refuse("nowhere.bin", state, "--model: cannot open");
  refuse(model, "nowhere.bin", "--state: cannot open");
  refuse("/", state, "--model: \"/config.json\"");
}

TEST_F(VerifyRefuses, TruncatedFiles) {
  for (const std::size_t size :
       {std::size_t{0}, std::size_t{1}, std::size_t{1023}, std::size_t{1024}, model_bytes.size() - 1}) {
    refuse(files.write("model.bin", model_bytes.substr(0, size)), state, "--model");
  }
  refuse(model, files.write("state.bin", state_bytes.substr(0, state_bytes.size() - 1)), "--state");
}

TEST_F(VerifyRefuses, LongerFiles) {
  refuse(files.write("model.bin", model_bytes + '\0'), state, "its header specifies");
  refuse(model, files.write("state.bin", state_bytes + '\0'), "its header specifies");
}

TEST_F(VerifyRefuses, ForeignFiles) {
  refuse(state, state, "expected a model file of llm.c");
  refuse(model, model, "expected a debug state of llm.c");
  refuse(files.write("text.bin", std::string(4096, 'x')), state, "expected a model file of llm.c");
}

TEST_F(VerifyRefuses, HeadersThatMakeNoModel) {
  struct Change {
    std::size_t index;
    std::int32_t value;
    const char* says;
  };
  for (const auto& [index, value, says] : {Change{1, 1, "version 1"},
                                           {1, 5, "its header specifies 16624"},
                                           {2, 0, "the context length is 0"},
                                           {3, -1, "the vocabulary is -1"},
                                           {4, 2'000'000'000, "the number of layers"},
                                           {5, 3, "20 channels are not divisible by 3 heads"},
                                           {6, 40, "its header specifies"},
                                           {7, 37, "the padded vocabulary is 37"}}) {
    std::string changed = model_bytes;
    changed.replace(index * 4, 4, reinterpret_cast<const char*>(&value), 4);
    refuse(files.write("model.bin", changed), state, says);
  }
}

TEST_F(VerifyRefuses, StateOfAnotherVersion) {
  std::string changed = read_bytes(state);
  const std::int32_t version = 1;
  changed.replace(4, 4, reinterpret_cast<const char*>(&version), 4);
  refuse(model, files.write("state.bin", changed), "--state: version 1, expected 2");
}

TEST_F(VerifyRefuses, StateOfAnotherModel) {
  refuse(model, std::string(kGolden) + "tiny_debug_state.bin", "--state: the sequences have 17 tokens");
}

TEST_F(VerifyRefuses, TokensOutsideTheVocabulary) {
  for (const std::int32_t id : {37, -1}) {
    std::string changed = state_bytes;
    changed.replace(1024, 4, reinterpret_cast<const char*>(&id), 4);
    refuse(model, files.write("state.bin", changed), "is outside the vocabulary of 37");
  }
}

TEST(BenchRefuses, SequencesBeyondTheContext) {
  expect_refused("stage0_bench", {"--seq-len", "129"}, "--seq-len: 129 exceeds --block-size 128");
}

TEST(BenchRefuses, FlagsOfOneMeasurementForTheOther) {
  expect_refused("stage0_bench", {"--generate", "--seq-len", "16"},
                 "--seq-len: cannot be combined with --generate");
  expect_refused("stage0_bench", {"--weights", "bf16"},
                 "--weights: expected f32 for a training step, not 'bf16', which is for --generate");
}

TEST(BenchRefuses, UnknownFlags) { expect_refused("stage0_bench", {"--data", "x"}, "unknown flag --data"); }

}  // namespace
}  // namespace stagegpt::test
