// Runs that earlier versions began with flags and values that are gone: tests/checkpoint/earlier_versions.
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "common/checkpoint/checkpoint.h"
#include "common/checkpoint/manifest.h"
#include "tests/support/mpi_program.h"
#include "tests/support/refusal.h"
#include "tests/support/trained_runs.h"

namespace stagegpt::test {
namespace {

namespace fs = std::filesystem;

const fs::path kRuns = STAGEGPT_SOURCE_DIR "/tests/checkpoint/earlier_versions";

// A run, and what is said of it when it goes on.
struct Earlier {
  const char *name, *notes;
};

class EarlierRun : public TrainedRuns, public testing::WithParamInterface<Earlier> {
 protected:
  void take(const std::string& run) const {
    fs::copy(kRuns / run, directory_.path() / run, fs::copy_options::recursive);
  }
  ProgramResult stage1(int ranks, const Arguments& arguments) const {
    return run_mpi(Arguments{"--quiet"} + ranks_of(ranks, "stage1_train") + arguments, directory_.path());
  }
  static std::string removals(const std::string& errors) {
    std::istringstream lines(errors);
    std::string found;
    for (std::string line; std::getline(lines, line);) {
      if (line.find(" removed") != line.npos) found += line + '\n';
    }
    return found;
  }
};

TEST_P(EarlierRun, GoesOnAsItDidThenAndSaysOnceWhatIsGone) {
  const std::string run = GetParam().name;
  take(run);
  const ProgramResult resumed = expect_done(stage1(2, {"--resume", run, "--data", "t.txt"}));
  EXPECT_EQ(removals(resumed.errors), GetParam().notes);
  const auto expected = nlohmann::json::parse(read_bytes(kRuns / run / "expected.json"));
  for (const auto& [field, values] : expected.items()) {
    const std::vector<double> got = metric(run, field.c_str());
    ASSERT_EQ(got.size(), values.size()) << field;
    for (std::size_t i = 0; i < got.size(); ++i)
      EXPECT_NEAR(got[i] / values[i].get<double>(), 1, 1e-5) << field << ' ' << i;
  }
  EXPECT_TRUE(fs::exists(directory_.path() / run / "latest/optimizer.safetensors"));
  const ProgramResult again = stage0("train", {"--resume", run, "--data", "t.txt", "--steps", "5"});
  EXPECT_EQ(removals(again.errors), "");
}

INSTANTIATE_TEST_SUITE_P(
    Of, EarlierRun,
    testing::Values(
        Earlier{"zero2", "note: --comm zero2 was removed; zero1-overlapped takes its place\n"},
        Earlier{"hierarchical",
                "note: --comm-algorithm hierarchical was removed; mpi takes its place\n"
                "note: --ranks-per-node was removed: --comm-algorithm mpi knows which ranks share a node\n"},
        Earlier{"writers", "note: --checkpoint-writers was removed: one rank writes a checkpoint\n"},
        Earlier{
            "async",
            "note: --checkpoint-async was removed: a checkpoint is complete before the next step begins\n"}),
    [](const auto& test) { return std::string(test.param.name); });

using EarlierRuns = EarlierRun;

// The settings of such a run in --config: a default means what is always done now.
TEST_F(EarlierRuns, GiveSettingsWithoutWhatIsGone) {
  take("zero2");
  const fs::path file = directory_.path() / "zero2/run.json";
  const auto print = [&] { return stage1(1, {"--config", "zero2/run.json", "--print-config"}); };
  const ProgramResult refused = print();
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_EQ(refused.errors,
            "stage1_train: --config: \"zero2/run.json\": --comm: zero2 was removed; use zero1-overlapped\n");
  auto settings = nlohmann::json::parse(read_bytes(file));
  EXPECT_EQ(settings["checkpoint_writers"], 1);
  EXPECT_EQ(settings["checkpoint_async"], false);
  EXPECT_EQ(settings["ranks_per_node"], 0);
  settings["comm"] = "zero1-overlapped";
  write_file(file, settings.dump());
  const auto taken = nlohmann::json::parse(expect_done(print()).output);
  EXPECT_EQ(taken["comm"], "zero1-overlapped");
  EXPECT_FALSE(taken.contains("checkpoint_writers"));
}

// A checkpoint of two writers: damage to any of its files is found.
TEST_F(EarlierRuns, WithSeveralFilesOfTensorsAreVerified) {
  take("writers");
  const fs::path checkpoint = directory_.path() / "writers/checkpoints/step_00000002";
  EXPECT_NO_THROW(verify_checkpoint(checkpoint));
  std::vector<FileEntry> files = parse_manifest(read_bytes(checkpoint / "manifest.json"));
  for (const std::string name : {"model-00002-of-00002.safetensors", "optimizer-00001-of-00002.safetensors",
                                 "model.safetensors.index.json"}) {
    const fs::path file = checkpoint / name;
    const std::string whole = read_bytes(file);
    fs::resize_file(file, whole.size() - 1);
    EXPECT_NE(refusal([&] { verify_checkpoint(checkpoint); }).find(name + "\" has "), std::string::npos);
    fs::remove(file);
    EXPECT_NE(refusal([&] { verify_checkpoint(checkpoint); }).find(name + "\" is missing: "),
              std::string::npos);
    write_file(file, whole);
  }
  // A manifest that was written without a file that the index names.
  const std::string left_out = "model-00002-of-00002.safetensors";
  fs::remove(checkpoint / left_out);
  std::erase_if(files, [&](const FileEntry& entry) { return entry.file == left_out; });
  write_manifest(checkpoint, files);
  EXPECT_NE(refusal([&] { verify_checkpoint(checkpoint); }).find("the manifest does not list " + left_out),
            std::string::npos);
}

}  // namespace
}  // namespace stagegpt::test
