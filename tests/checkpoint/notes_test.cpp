// Notes that programs print on standard error. Each test causes one note.
#include <fstream>

#include "tests/checkpoint/small_run.h"

namespace stagegpt::test {
namespace {

namespace fs = std::filesystem;

class Notes : public SmallRun {
 protected:
  static void expect_note(const ProgramResult& result, const std::string& text) {
    EXPECT_EQ(result.exit_code, 0) << result.errors;
    EXPECT_NE(result.errors.find("note: " + text), std::string::npos) << result.errors;
  }
};

TEST_F(Notes, TellWhatARunHasLost) {
  expect_success(with(model_flags(),
                      {"--steps", "6", "--stop-after", "4", "--checkpoint-every", "2", "--run-dir", "run"}));
  const std::string metrics = read_bytes(in("run/metrics.jsonl"));
  directory.write("run/metrics.jsonl", metrics.substr(metrics.find('\n') + 1));
  std::ofstream(in("run/latest/model.safetensors"), std::ios::app) << 'x';
  const ProgramResult result = train({"--resume", "run"});
  expect_note(result,
              "\"run/checkpoints/step_00000004\" is damaged and was renamed to \"step_00000004.damaged\"");
  expect_note(result, "\"run/metrics.jsonl\" lacks 1 of the steps up to 2");
  EXPECT_TRUE(fs::exists(in("run/checkpoints/step_00000004.damaged")));
  EXPECT_EQ(this->metrics("run").size(), 5u);
}

TEST_F(Notes, TellThatADirectoryHasNoTokenizer) {
  expect_note(run_program("convert_checkpoint",
                          {"--input", STAGEGPT_SOURCE_DIR "/tests/golden/one.bin", "--output", "directory"},
                          directory.path()),
              "the directory gets no tokenizer; --tokenizer-path adds one");
  EXPECT_FALSE(fs::exists(in("directory/tokenizer.json")));
}

}  // namespace
}  // namespace stagegpt::test
