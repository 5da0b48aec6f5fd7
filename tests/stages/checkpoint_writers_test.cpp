// Checkpoints that several ranks write, each a part of them.
#include <gtest/gtest.h>

#include <algorithm>

#include "common/checkpoint/checkpoint.h"
#include "common/checkpoint/hugging_face_model.h"
#include "common/checkpoint/manifest.h"
#include "common/checkpoint/run_directory.h"
#include "tests/checkpoint/raw_safetensors.h"
#include "tests/support/logged_calls.h"
#include "tests/support/mpi_program.h"
#include "tests/support/refusal.h"
#include "tests/support/sanitized.h"
#include "tests/support/trained_runs.h"

namespace stagegpt::test {
namespace {

namespace fs = std::filesystem;

class CheckpointWriters : public TrainedRuns {
 protected:
  fs::path in(const std::string& name) const { return directory_.path() / name; }
  static Arguments small(const std::string& run, const Arguments& more = {}) {
    return TrainedRuns::small(
        run, with_flags({"--steps", "4", "--eval-every", "4", "--max-new-tokens", "0"}, more));
  }
  ProgramResult ranks(int n, const Arguments& arguments, const std::string& program = "stage1_train") const {
    return run_mpi(Arguments{"--quiet"} + ranks_of(n, program) + arguments, directory_.path());
  }
  // All tensors of a kind in a checkpoint, from one file or several.
  RawTensors tensors(const std::string& checkpoint, const std::string& name) const {
    RawTensors all;
    for (const auto& entry : fs::directory_iterator(in(checkpoint))) {
      const std::string file = entry.path().filename();
      if (!file.starts_with(name) || !file.ends_with(".safetensors")) continue;
      for (const auto& [tensor, value] : read_safetensors(entry.path())) {
        EXPECT_TRUE(all.emplace(tensor, value).second) << tensor;
      }
    }
    return all;
  }
  void expect_same_tensors(const std::string& a, const std::string& b) const {
    for (const char* name : {"model", "optimizer"}) {
      const RawTensors of_a = tensors(a, name), of_b = tensors(b, name);
      EXPECT_FALSE(of_a.empty());
      EXPECT_TRUE(of_a == of_b) << name;
    }
  }
  static std::vector<std::string> names(const fs::path& checkpoint) {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(checkpoint)) names.push_back(entry.path().filename());
    std::ranges::sort(names);
    return names;
  }
};

TEST_F(CheckpointWriters, WriteTheTensorsOfASingleOne) {
  expect_done(ranks(4, small("one")));
  for (const std::string comm : {"zero1", "zero1-overlapped"}) {
    expect_done(ranks(4, small(comm, {"--comm", comm, "--checkpoint-writers", "3", "--stop-after", "2"})));
    if (comm != "zero1") continue;
    expect_done(ranks(4, {"--resume", comm}));
    expect_same_tensors(comm + "/latest", "one/latest");
  }
  EXPECT_EQ(names(in("zero1/latest")),
            (std::vector<std::string>{
                "config.json", "generation_config.json", "manifest.json", "model-00001-of-00003.safetensors",
                "model-00002-of-00003.safetensors", "model-00003-of-00003.safetensors",
                "model.safetensors.index.json", "optimizer-00001-of-00003.safetensors",
                "optimizer-00002-of-00003.safetensors", "optimizer-00003-of-00003.safetensors",
                "optimizer.safetensors.index.json", "tokenizer.json", "tokenizer_config.json",
                "trainer_state.json"}));
  EXPECT_EQ(names(in("one/latest")),
            (std::vector<std::string>{"config.json", "generation_config.json", "manifest.json",
                                      "model.safetensors", "optimizer.safetensors", "tokenizer.json",
                                      "tokenizer_config.json", "trainer_state.json"}));
}

// The moments are divided among 4, 2 and 3 ranks, or not at all, and so are the files.
TEST_F(CheckpointWriters, ARunGoesOnWithOtherRanksAndOtherWriters) {
  const Arguments same_bits = {"--reproducible", "--batch-size", "8"};
  expect_done(ranks(4, small("whole", same_bits)));
  expect_done(
      ranks(4, small("moved", with_flags(same_bits, {"--checkpoint-writers", "4", "--stop-after", "1"}))));
  expect_done(ranks(2, {"--resume", "moved", "--stop-after", "2"}));  // with two of the four writers
  EXPECT_TRUE(fs::exists(in("moved/latest/model-00002-of-00002.safetensors")));
  stage0("train", {"--resume", "moved", "--stop-after", "3"});
  EXPECT_TRUE(fs::exists(in("moved/latest/model.safetensors")));
  expect_done(ranks(4, {"--resume", "moved"}));
  EXPECT_TRUE(fs::exists(in("moved/latest/model-00004-of-00004.safetensors")));
  expect_same_tensors("moved/latest", "whole/latest");
}

TEST_F(CheckpointWriters, WithDividedMomentsGoOnAtStage3) {
  expect_done(ranks(3, small("serial", {"--comm", "zero1"})));
  expect_done(
      ranks(3, small("moved", {"--comm", "zero1", "--checkpoint-writers", "2", "--stop-after", "2"})));
  expect_done(ranks(2, {"--resume", "moved", "--comm", "zero1-overlapped", "--stop-after", "3"},
                    "stage3_train_emulated"));
  EXPECT_TRUE(fs::exists(in("moved/latest/optimizer-00002-of-00002.safetensors")));
  expect_done(ranks(4, {"--resume", "moved"}));
  expect_same_curves("moved", "serial");
}

// Two tensor ranks, twice: no rank has a whole matrix. First these are two data ranks, and the last writer is
// no data rank 0; then two stages, and no rank has all layers.
TEST_F(CheckpointWriters, CollectThePartsOfAGrid) {
  for (const std::string stages : {"1", "2"}) {
    const Arguments grid = {"--tensor-parallel", "2", "--pipeline-parallel", stages, "--n-layer", stages};
    const std::string one = "one" + stages, moved = "moved" + stages;
    expect_done(ranks(4, small(one, grid)));
    expect_done(ranks(4, small(moved, with_flags(grid, {"--checkpoint-writers", "3", "--stop-after", "2"}))));
    expect_done(ranks(4, {"--resume", moved}));
    EXPECT_TRUE(fs::exists(in(moved + "/latest/model-00003-of-00003.safetensors")));
    expect_same_tensors(moved + "/latest", one + "/latest");
  }
}

TEST_F(CheckpointWriters, AreAtMostTheRanks) {
  const ProgramResult result = ranks(2, small("run", {"--checkpoint-writers", "3"}));
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_EQ(result.errors,
            "stage1_train: --checkpoint-writers: expected at most 2, the number of ranks, not 3\n");
}

TEST_F(CheckpointWriters, LeaveAModelForEveryProgram) {
  expect_done(ranks(2, small("one")));
  expect_done(ranks(2, small("two", {"--checkpoint-writers", "2"})));
  const auto of = [&](const std::string& run) {
    expect_done(
        run_program("convert_checkpoint", {"--input", run, "--output", run + ".bin"}, directory_.path()));
    const Arguments evaluate = {"--model", run, "--data", "t.txt", "--json"};
    const double loss = nlohmann::json::parse(stage0("evaluate", evaluate).output)["loss"];
    return concat(stage0("generate", {"--model", run, "--max-new-tokens", "20"}).output, loss);
  };
  EXPECT_EQ(of("two"), of("one"));
  EXPECT_EQ(read_bytes(in("two.bin")), read_bytes(in("one.bin")));
}

// Damage to any file of a checkpoint.
TEST_F(CheckpointWriters, FilesThatAreDamagedAreNamedAndTheCheckpointBeforeIsUsed) {
  expect_done(
      ranks(2, small("run", {"--checkpoint-writers", "2", "--checkpoint-every", "2", "--stop-after", "3"})));
  const fs::path newest = in("run/checkpoints/step_00000003"), kept = in("kept");
  fs::copy(newest, kept);
  const auto expect_named = [&](const std::string& line) {
    const ProgramResult model =
        run_program("stage0_evaluate", {"--model", newest, "--data", "t.txt"}, directory_.path());
    if (line.find("optimizer") == line.npos) {
      EXPECT_EQ(model.exit_code, 2);
      EXPECT_NE(model.errors.find(line), std::string::npos) << model.errors;
      EXPECT_EQ(std::ranges::count(model.errors, '\n'), 1) << model.errors;
    }
    const ProgramResult resumed =
        run_program("stage0_train", {"--resume", "run", "--stop-after", "3"}, directory_.path());
    EXPECT_EQ(resumed.exit_code, 0) << resumed.errors;
    EXPECT_NE(resumed.errors.find(line), std::string::npos) << resumed.errors;
    EXPECT_NE(resumed.errors.find("resumed from \"step_00000002\""), std::string::npos) << resumed.errors;
    fs::remove_all(newest);
    fs::copy(kept, newest);
  };
  for (const std::string file :
       {"model-00002-of-00002.safetensors", "optimizer-00001-of-00002.safetensors"}) {
    fs::resize_file(newest / file, fs::file_size(newest / file) - 1);
    expect_named(file + "\" has ");
    fs::remove(newest / file);
    expect_named(file + "\" is missing: ");
  }
  std::string index = read_bytes(newest / "model.safetensors.index.json");
  index.replace(index.find("00002-of"), 5, "00007");
  write_file(newest / "model.safetensors.index.json", index);
  expect_named("model.safetensors.index.json\" is damaged: ");
}

// A manifest that was written for such files.
TEST_F(CheckpointWriters, FilesOfAnIndexMustExist) {
  expect_done(ranks(2, small("run", {"--checkpoint-writers", "2"})));
  const fs::path latest = fs::canonical(in("run/latest"));
  std::vector<FileEntry> files = parse_manifest(read_bytes(latest / "manifest.json"));
  fs::remove(latest / "model-00002-of-00002.safetensors");
  std::erase_if(files,
                [](const FileEntry& entry) { return entry.file == "model-00002-of-00002.safetensors"; });
  write_manifest(latest, files);
  EXPECT_NE(refusal([&] {
              verify_checkpoint(latest);
            }).find("the manifest does not list model-00002-of-00002.safetensors"),
            std::string::npos);
  const ProgramResult result = run_program("stage0_generate", {"--model", "run"}, directory_.path());
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_NE(result.errors.find("--model: model.safetensors.index.json: cannot open "), std::string::npos)
      << result.errors;
}

// Faults on one of three ranks, of which two write: the library of support/fault_injection.cpp.
class FaultyWriter : public CheckpointWriters {
 protected:
  void SetUp() override {
    if (kSanitized) GTEST_SKIP() << "nothing can be loaded before the sanitizer";
    CheckpointWriters::SetUp();
    fs::create_directory(in("root"));
    fs::create_directory(in("kept"));
  }
  // Three steps with a checkpoint each. The faulty rank is 0 or 1, and the second writer is rank 1.
  ProgramResult train(int faulty, const std::string& kind, std::size_t at) const {
    fs::remove_all(in("root/run"));
    fs::remove(in("log"));
    Arguments arguments = {"--oversubscribe"};
    for (int rank = 0; rank < 3; ++rank) {
      if (rank > 0) arguments.emplace_back(":");
      arguments = arguments + Arguments{"-np", "1"};
      if (rank == faulty) {
        const std::pair<const char*, std::string> variables[] = {{"LD_PRELOAD", STAGEGPT_FAULT_LIBRARY},
                                                                 {"FAULT_ROOT", in("root")},
                                                                 {"FAULT_KEEP", in("kept")},
                                                                 {"FAULT_LOG", in("log")},
                                                                 {"FAULT_KIND", kind},
                                                                 {"FAULT_AT", std::to_string(at)}};
        for (const auto& [name, value] : variables)
          arguments = arguments + Arguments{"-x", concat(name, "=", value)};
      }
      arguments = arguments + Arguments{STAGEGPT_BIN_DIR "/stage1_train"} +
                  small("root/run", {"--steps", "3", "--checkpoint-every", "1", "--checkpoint-writers", "2"});
    }
    return run_mpi(arguments, directory_.path());
  }
  // The calls of that rank in a run without a fault.
  std::vector<std::string> calls(int rank) const {
    expect_done(train(rank, "eintr", 1'000'000));
    return logged_calls(in("log"));
  }
  // The number, from 1, of the first call that has these texts.
  static std::size_t call_with(const std::vector<std::string>& calls, const std::string& name,
                               const std::string& path) {
    const auto found = std::ranges::find_if(calls, [&](const std::string& call) {
      return call.find(" " + name + " ") != call.npos && call.find(path) != call.npos;
    });
    EXPECT_NE(found, calls.end()) << name << ' ' << path;
    return static_cast<std::size_t>(found - calls.begin()) + 1;
  }
  // The step of the newest checkpoint that is whole; 0 if there is none.
  std::int64_t newest_step() const {
    if (checkpoints_of(in("root/run")).empty()) return 0;
    const fs::path checkpoint = newest_checkpoint(in("root/run"));
    const HuggingFaceModel model(checkpoint, "checkpoint");
    return read_trainer_state(checkpoint).step;
  }
};

TEST_F(FaultyWriter, ThatDiesAtAnyCallLeavesTheNewestCheckpointWhole) {
  const std::vector<std::string> all = calls(1);
  // Its files of the second checkpoint, and each of its directories.
  const std::size_t first = call_with(all, "open", "step_00000002.tmp/model-00002-of-00002"),
                    last = call_with(all, "open", "step_00000003.tmp/model-00002-of-00002") - 1;
  EXPECT_NE(all[last - 1].find(" fsync "), std::string::npos) << all[last - 1];
  EXPECT_TRUE(all[last - 1].ends_with("step_00000002.tmp")) << all[last - 1];
  const char* kinds[] = {"kill_halfway", "power_loss", "kill", "data_loss"};
  for (std::size_t n = first, i = 0; n <= last; n += 4, ++i) {
    EXPECT_NE(train(1, kinds[i % 4], n).exit_code, 0) << all[n - 1];
    EXPECT_EQ(newest_step(), 1) << all[n - 1];
    for (const auto& kept : fs::directory_iterator(in("kept"))) fs::remove_all(kept);
  }
  const ProgramResult result = run_program("stage0_train", {"--resume", "root/run"}, directory_.path());
  EXPECT_EQ(result.exit_code, 0) << result.errors;
  EXPECT_EQ(newest_step(), 3);
  EXPECT_FALSE(fs::exists(in("root/run/checkpoints/step_00000002.tmp")));
}

// From its second checkpoint on, the second writer's disk is full. The first writer's is not.
TEST_F(FaultyWriter, WithAFullDiskIsNamed) {
  const std::vector<std::string> all = calls(1);
  for (const auto& [call, file] :
       {std::pair{"open", "model"}, {"write", "model"}, {"write", "optimizer"}, {"fsync", "optimizer"}}) {
    const std::string name = concat("step_00000002.tmp/", file, "-00002-of-00002.safetensors");
    const ProgramResult result = train(1, "enospc", call_with(all, call, name));
    EXPECT_EQ(result.exit_code, 1) << result.errors;  // the last checkpoint failed too
    EXPECT_NE(result.errors.find("warning: saving step 2: rank 1: cannot write "), std::string::npos)
        << result.errors;
    EXPECT_NE(result.errors.find(name + "\": No space left on device"), std::string::npos) << result.errors;
    EXPECT_NE(result.errors.find("stage1_train: rank 1: cannot write "), std::string::npos) << result.errors;
    EXPECT_EQ(names(in("root/run/checkpoints")), std::vector<std::string>{"step_00000001"});
    EXPECT_EQ(newest_step(), 1);
  }
}

TEST_F(FaultyWriter, ThatFailsOnceIsToldAndTheRunGoesOn) {
  for (const int rank : {0, 1}) {
    const std::vector<std::string> all = calls(rank);
    const std::string name = concat("step_00000001.tmp/model-0000", rank + 1, "-of-00002.safetensors");
    const ProgramResult result = train(rank, "eio", call_with(all, "write", name));
    EXPECT_EQ(result.exit_code, 0) << result.errors;
    EXPECT_NE(result.errors.find(concat("warning: saving step 1: rank ", rank, ": cannot write ")),
              std::string::npos)
        << result.errors;
    EXPECT_EQ(names(in("root/run/checkpoints")),
              (std::vector<std::string>{"step_00000002", "step_00000003"}));
  }
}

}  // namespace
}  // namespace stagegpt::test
