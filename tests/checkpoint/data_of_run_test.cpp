// A run and its training data: checkpoints identify the data, and a temporary read error does not make a run
// unusable.
#include <fstream>

#include "common/base/json.h"
#include "common/checkpoint/manifest.h"
#include "common/data/corpus.h"
#include "common/data/token_shard.h"
#include "common/io/content_hash.h"
#include "tests/checkpoint/small_run.h"

namespace stagegpt::test {
namespace {

namespace fs = std::filesystem;

// A run of three steps on prepared shards.
class DataOfRun : public SmallRun {
 protected:
  DataOfRun() {
    expect_done(run_program(
        "prepare_data",
        {"--input", "text.txt", "--tokenizer", "char", "--output", "shards", "--shard-tokens", "1000"},
        directory.path()));
  }

  static Arguments flags(const std::string& data, const std::string& run) {
    return {"--data",       data, "--n-layer",          "1", "--n-head",  "2", "--n-embd",         "16",
            "--block-size", "16", "--batch-size",       "2", "--threads", "1", "--max-new-tokens", "0",
            "--steps",      "6",  "--checkpoint-every", "1", "--run-dir", run};
  }
  void train_three_steps(const std::string& data) const {
    expect_success(with(flags(data, "run"), {"--stop-after", "3"}));
  }
  nlohmann::json state() const { return json_in("run/latest/trainer_state.json"); }
  // Changes the checkpoint to version 1 of the format, as older programs wrote it.
  void write_version_1(const std::string& hash_of_ids) const {
    Json json = Json::parse(read_bytes(in("run/latest/trainer_state.json")));
    json["version"] = 1;
    json["train_data"].erase("of");
    json["train_data"]["xxh3_128"] = hash_of_ids;
    const fs::path checkpoint = fs::canonical(in("run/latest"));
    std::ofstream(checkpoint / "trainer_state.json") << json.dump(2) << '\n';
    std::vector<FileEntry> entries;
    for (const auto& file : fs::directory_iterator(checkpoint)) {
      if (file.path().filename() != "manifest.json") entries.push_back(file_entry(file.path()));
    }
    std::ranges::sort(entries, {}, &FileEntry::file);
    write_manifest(checkpoint, entries);
  }
  std::string hash_of_ids(const std::string& data) const {
    CorpusConfig config;
    config.data = in(data).string();
    SingleProcess alone;
    return hash_of_tokens(load_shared_corpus(alone, config, 16, 1).train);
  }
};

TEST_F(DataOfRun, AreKnownByTheHashesOfTheirShards) {
  train_three_steps("shards");
  EXPECT_EQ(state()["version"], 2);
  EXPECT_EQ(state()["train_data"]["of"], "shards");
  EXPECT_NE(state()["train_data"]["xxh3_128"], hash_of_ids("shards"));
  expect_success({"--resume", "run"});
}

TEST_F(DataOfRun, OfACheckpointOfVersion1AreKnownByTheirIds) {
  train_three_steps("shards");
  write_version_1(hash_of_ids("shards"));
  expect_success({"--resume", "run", "--stop-after", "4"});
  EXPECT_EQ(state()["train_data"]["of"], "shards");
  write_version_1(std::string(32, '0'));
  expect_refused({"--resume", "run"}, "--data: these are not the 2250 tokens that");
}

// Without a manifest (as for llm.c's shards), the program compares the tokens themselves.
TEST_F(DataOfRun, MustBeThoseOfTheRun) {
  fs::remove(in("shards/manifest.json"));
  train_three_steps("shards");
  std::string bytes = read_bytes(in("shards/train_000001.bin"));
  std::swap(bytes[1500], bytes[1502]);
  directory.write("shards/train_000001.bin", bytes);
  expect_refused({"--resume", "run"}, "--data: these are not the 2250 tokens that");
}

// The losses of two texts cannot be compared.
TEST_F(DataOfRun, MayHaveOtherValidationTokens) {
  fs::remove(in("shards/manifest.json"));
  expect_success(with(flags("shards", "run"), {"--stop-after", "3", "--eval-every", "1"}));
  EXPECT_EQ(state()["best_validation"]["step"], 3);
  const std::string same = train({"--resume", "run", "--stop-after", "4"}).errors;
  EXPECT_EQ(same.find("note: these are other validation tokens"), std::string::npos) << same;
  // A constant text is soon predicted: its losses are lower.
  std::string bytes = read_bytes(in("shards/val_000000.bin"));
  for (std::size_t i = 1024; i + 1 < bytes.size(); i += 2) bytes[i] = 1;
  directory.write("shards/val_000000.bin", bytes);
  const ProgramResult other = expect_success({"--resume", "run", "--stop-after", "5"});
  expect_said(other,
              "note: these are other validation tokens than before; losses from here on cannot be "
              "compared with earlier ones, and the best validation begins anew\n");
  EXPECT_EQ(state()["best_validation"]["step"], 5);
}

// For example, a file system may not be mounted now. The exit code is 1, because the same command may succeed
// later.
TEST_F(DataOfRun, ThatAreGoneAreAFailureOfTheMachine) {
  train_three_steps("shards");
  fs::rename(in("shards"), in("away"));
  expect_failure(train({"--resume", "run"}), 1, "which the run was trained on, does not exist now");
  expect_refused({"--resume", "run", "--data", "elsewhere"}, "--data: cannot open \"elsewhere\"");
  expect_success({"--resume", "run", "--data", "away"});
}

TEST_F(DataOfRun, AShardThatCannotBeReadOnceStopsNoRun) {
  expect_success(flags("shards", "whole"));
  const Arguments command =
      Arguments{"--failures", "2", (fs::path(STAGEGPT_BIN_DIR) / "stage0_train").string()} +
      flags("shards", "run");
  const ProgramResult result = expect_done(run_program(
      (fs::path(STAGEGPT_SOURCE_DIR) / "scripts/run_resilient.sh").string(), command, directory.path(),
      {.environment = {{"LD_PRELOAD", STAGEGPT_READ_FAULT_LIBRARY},
                       {"ASAN_OPTIONS", "verify_asan_link_order=0:detect_leaks=0"},
                       {"STAGEGPT_RESTART_SECONDS", "0"},
                       {"READ_FAULT_FILE", fs::canonical(in("shards/train_000001.bin")).string()},
                       {"READ_FAULT_AT", "6"},  // after the reads of header, whole file, beginning and end
                       {"READ_FAULT_MARK", in("mark").string()}}}));
  expect_said(result, "train_000001.bin\": Input/output error");
  expect_said(result, "ended with exit code 1; restarting from run/checkpoints/step_0000000");
  EXPECT_EQ(hash_of("run/latest"), hash_of("whole/latest"));
}

}  // namespace
}  // namespace stagegpt::test
