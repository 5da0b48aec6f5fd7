// If a save is interrupted at any point, by the end of the process or by power loss, the newest checkpoint
// remains valid. Faults are injected by a preloaded library: support/fault_injection.cpp.
#include <algorithm>
#include <array>
#include <fstream>

#include "common/base/json.h"
#include "common/checkpoint/checkpoint.h"
#include "common/checkpoint/hugging_face_model.h"
#include "common/checkpoint/manifest.h"
#include "common/checkpoint/run_directory.h"
#include "tests/checkpoint/small_run.h"
#include "tests/support/golden.h"
#include "tests/support/logged_calls.h"
#include "tests/support/patterns.h"
#include "tests/support/sanitized.h"
#include "tests/support/thorough.h"

namespace stagegpt::test {
namespace {

// A run saves three checkpoints and keeps two: saving the third deletes the first.
class SaveFaults : public SmallRun, public testing::WithParamInterface<const char*> {
 protected:
  SaveFaults() {
    for (const char* name : {"root", "kept"}) std::filesystem::create_directory(in(name));
  }

  static Arguments flags(const std::string& run) {
    return with(model_flags(),
                {"--steps", "3", "--eval-every", "3", "--checkpoint-every", "1", "--run-dir", "root/" + run});
  }
  RunOptions fault(const std::string& kind, int at) const {
    return {.environment = {{"LD_PRELOAD", STAGEGPT_FAULT_LIBRARY},
                            // Allows another preloaded library before the sanitizer's.
                            {"ASAN_OPTIONS", "verify_asan_link_order=0:detect_leaks=0"},
                            {"FAULT_ROOT", in("root").string()},
                            {"FAULT_KEEP", in("kept").string()},
                            {"FAULT_LOG", in("log").string()},
                            {"FAULT_KIND", kind},
                            {"FAULT_AT", std::to_string(at)}}};
  }
  ProgramResult train_with_fault(const std::string& run, const std::string& kind, int at) const {
    return train(flags(run), fault(kind, at));
  }
  // The system calls of a run without a fault.
  std::vector<std::string> calls() const {
    EXPECT_EQ(train_with_fault("run", "eintr", 1'000'000).exit_code, 0);
    std::filesystem::remove_all(in("root/run"));
    return logged_calls(in("log"));
  }
  // The step of the newest valid checkpoint, all of which is read; 0 if there is none.
  static std::int64_t newest_step(const std::filesystem::path& run) {
    if (checkpoints_of(run).empty()) return 0;
    const std::filesystem::path checkpoint = newest_checkpoint(run);
    const ModelFile model = read_hugging_face(checkpoint, "checkpoint");
    return read_trainer_state(checkpoint).step;
  }
};

// With the sanitizer, a program takes ten times as long to start, and faults are injected more rarely.
constexpr std::size_t kRarer = kSanitized ? 5 : 1;

class Interrupted : public SaveFaults {};

// Faults are injected at every kEvery-th call, which has no factor in common with the four calls that write a
// file. Each kind begins at another call, so that in CI each call has a fault.
constexpr std::size_t kEvery = kRarer * (kThorough ? 3 : 9);
constexpr std::array kKinds = {"kill", "kill_halfway", "power_loss", "data_loss"};

TEST_P(Interrupted, AtAnyCallLeavesTheNewestCheckpointWhole) {
  const std::vector<std::string> all = calls();
  const std::vector<std::int64_t> durable = durable_steps(all);
  ASSERT_EQ(durable.back(), 3);
  const std::filesystem::path run = in("root/run");
  const std::string kind = GetParam();
  const auto first = static_cast<std::size_t>(std::ranges::find(kKinds, kind) - kKinds.begin()) + 1;
  for (std::size_t n = first; n <= all.size(); n += kEvery) {
    ASSERT_EQ(train_with_fault("run", kind, static_cast<int>(n)).exit_code, -1) << all[n - 1];
    EXPECT_GE(newest_step(run), durable[n - 1]) << all[n - 1];
    // The target of a link is valid at any time. From the second checkpoint on, `latest` exists.
    EXPECT_TRUE(durable[n - 1] < 2 || std::filesystem::is_symlink(run / "latest")) << all[n - 1];
    for (const char* link : {"latest", "best"}) {
      if (!std::filesystem::is_symlink(run / link)) continue;
      EXPECT_NO_THROW(verify_manifest(run / link)) << all[n - 1];
    }
    std::filesystem::remove_all(run);
    for (const auto& kept : std::filesystem::directory_iterator(in("kept")))
      std::filesystem::remove_all(kept);
  }
}

INSTANTIATE_TEST_SUITE_P(ByThe, Interrupted, testing::ValuesIn(kKinds),
                         [](const auto& test) { return std::string(test.param); });

// A list of calls, one line each, in which equal neighbours are one: how many writes a file takes depends on
// its size. The names of removed files are sorted, since a directory has no order.
std::string in_short(const std::vector<std::string>& calls, const std::string& root) {
  std::vector<std::string> lines;
  std::size_t removed = 0;  // lines at the end that remove a file
  for (const std::string& call : calls) {
    std::string line = call.substr(call.find(' ') + 1);
    for (const auto& [path, by] : {std::pair{root + "/run/", ""}, {root + "/", ""}, {root, "root"}})
      line = replace_matches(line, path, by);
    line = replace_matches(line, "tfevents[^ ]*", "tfevents…");
    if (!lines.empty() && lines.back() == line) continue;
    lines.push_back(line);
    removed = line.starts_with("unlink ") ? removed + 1 : 0;
    std::sort(lines.end() - static_cast<std::ptrdiff_t>(removed), lines.end());
  }
  std::string text;
  for (const std::string& line : lines) text += line + '\n';
  return text;
}

// What a run does to its files, in order: what it creates, writes, syncs, renames and removes. Among the
// rest, metrics are on the disk before the checkpoint of their step has its name.
TEST_F(SaveFaults, CallsOfARunAreThese) {
  expect_golden(in_short(calls(), in("root").string()), "calls_of_a_run.txt");
}

TEST_F(SaveFaults, ARunGoesOnFromWhereverItWasKilled) {
  const std::vector<std::string> all = calls();
  expect_success(with(
      model_flags(), {"--steps", "3", "--eval-every", "3", "--checkpoint-every", "1", "--run-dir", "whole"}));
  for (std::size_t n = 1; n <= all.size(); n += kRarer * 17) {  // coprime to the number of calls of a save
    const std::string run = "run" + std::to_string(n);
    ASSERT_EQ(train_with_fault(run, "kill_halfway", static_cast<int>(n)).exit_code, -1);
    const bool resumable = newest_step(in("root/" + run)) > 0;  // if not, the same command starts a new run
    expect_success(resumable ? Arguments{"--resume", "root/" + run} : flags(run));
    EXPECT_EQ(hash_of("root/" + run + "/latest"), hash_of("whole/latest")) << all[n - 1];
    EXPECT_EQ(metrics("root/" + run), metrics("whole")) << all[n - 1];
  }
}

TEST_F(SaveFaults, ShortAndInterruptedWritesChangeNothing) {
  const std::vector<std::string> all = calls();
  expect_success(with(
      model_flags(), {"--steps", "3", "--eval-every", "3", "--checkpoint-every", "1", "--run-dir", "whole"}));
  const std::string hash = hash_of("whole/latest");
  for (const char* kind : {"short_write", "eintr"}) {
    for (std::size_t n = 1; n <= all.size(); ++n) {
      if (all[n - 1].find(" write ") == std::string::npos || n % (kRarer * 3) != 0) continue;
      const ProgramResult result = train_with_fault("run", kind, static_cast<int>(n));
      ASSERT_EQ(result.exit_code, 0) << kind << ' ' << all[n - 1] << result.errors;
      EXPECT_EQ(hash_of("root/run/latest"), hash);
      EXPECT_EQ(metrics("root/run"), metrics("whole"));
      std::filesystem::remove_all(in("root/run"));
    }
  }
}

TEST_F(SaveFaults, OfTensorBoardsEventsStopNothing) {
  const std::vector<std::string> all = calls();
  int struck = 0;
  for (std::size_t n = 1; n <= all.size(); ++n) {
    if (all[n - 1].find("tfevents") == std::string::npos || all[n - 1].find(" close ") != std::string::npos)
      continue;
    const ProgramResult result = train_with_fault("run", "eio", static_cast<int>(n));
    EXPECT_EQ(result.exit_code, 0) << all[n - 1] << result.errors;
    expect_said(result, "TensorBoard will not show later steps");
    EXPECT_EQ(newest_step(in("root/run")), 3);
    std::filesystem::remove_all(in("root/run"));
    ++struck;
  }
  EXPECT_GE(struck, 1 + 3);  // one to create the file, and one for each step
}

// Power is lost right after a program has ended successfully.
TEST_F(SaveFaults, OfPreparedDataAndConvertedModelsLoseNothing) {
  constexpr int kNever = 1'000'000;
  const auto run_before_power_loss = [&](const std::string& program, const Arguments& arguments) {
    expect_done(run_program(program, arguments, directory.path(), fault("power_loss", kNever)));
  };
  const std::string golden = STAGEGPT_SOURCE_DIR "/tests/golden/tiny.bin";
  run_before_power_loss("prepare_data", {"--input", "text.txt", "--output", "root/data"});
  run_before_power_loss("convert_checkpoint", {"--input", golden, "--output", "root/model"});
  run_before_power_loss("convert_checkpoint", {"--input", golden, "--output", "root/model.bin"});
  for (const char* name : {"root/data/manifest.json", "root/data/train_000000.bin",
                           "root/model/model.safetensors", "root/model.bin"}) {
    EXPECT_TRUE(std::filesystem::exists(in(name))) << name;
  }
  EXPECT_EQ(read_bytes(in("root/model.bin")), read_bytes(golden));
}

// One failed save is reported, and the run continues to the next save.
TEST_F(SaveFaults, ThatStrikeOnceAreToldAndTheRunGoesOn) {
  const std::vector<std::string> all = calls();
  const auto struck = std::ranges::find_if(all, [](const std::string& call) {
    return call.find(" write ") != call.npos && call.find("step_00000001.tmp") != call.npos;
  });
  ASSERT_NE(struck, all.end());
  const ProgramResult result =
      expect_done(train_with_fault("run", "eio", static_cast<int>(struck - all.begin()) + 1));
  expect_said(result, "warning: saving step 1: ");
  EXPECT_EQ(newest_step(in("root/run")), 3);
}

// A full or broken disk is reported, and earlier checkpoints remain valid.
TEST_F(SaveFaults, FullAndBrokenDisksAreReported) {
  const std::vector<std::string> all = calls();
  const std::vector<std::int64_t> durable = durable_steps(all);
  for (const char* kind : {"enospc", "eio"}) {
    for (std::size_t n = 1; n <= all.size(); n += kRarer * 5) {
      const std::string& call = all[n - 1];
      const ProgramResult result = train_with_fault("run", kind, static_cast<int>(n));
      EXPECT_GE(newest_step(in("root/run")), durable[n - 1]) << call << result.errors;
      const bool is_close = call.find(" close ") != std::string::npos;  // all data has been synced before
      if (std::string(kind) == "enospc" && !is_close && durable[n - 1] < 3) {
        EXPECT_NE(result.exit_code, 0) << call << result.errors;
        EXPECT_NE(result.errors.find("No space left on device"), std::string::npos) << call << result.errors;
      }
      EXPECT_GE(result.exit_code, 0) << call << result.errors;  // no crash
      for (const auto& entry : std::filesystem::recursive_directory_iterator(in("root"))) {
        const std::filesystem::path& path = entry.path();
        const bool is_link = entry.is_symlink(), was_whole = path.stem().extension() == ".old";
        if (!entry.is_directory() || is_link || was_whole) continue;
        EXPECT_NE(path.extension(), ".tmp") << call << path;  // incomplete files must not occupy the disk
      }
      std::filesystem::remove_all(in("root/run"));
    }
  }
}

}  // namespace
}  // namespace stagegpt::test
