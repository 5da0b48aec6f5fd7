// Errors while saving a run on several ranks.
#include <gtest/gtest.h>

#include <algorithm>

#include "common/checkpoint/checkpoint.h"
#include "common/checkpoint/run_directory.h"
#include "tests/support/logged_calls.h"
#include "tests/support/mpi_program.h"
#include "tests/support/trained_runs.h"

namespace stagegpt::test {
namespace {

namespace fs = std::filesystem;

class FaultySave : public TrainedRuns {
 protected:
  ProgramResult train(int ranks, const std::string& run, const Arguments& more, const char* fault,
                      const char* which) const {
    return run_mpi(ranks_of(ranks, "stage1_train") + small(run, {"--steps", "4"}) + more, directory_.path(),
                   {.environment = {{"LD_PRELOAD", STAGEGPT_FAULTY_RANK}, {fault, which}}});
  }
  bool has_checkpoint(const std::string& run, const char* name) const {
    return std::filesystem::exists(directory_.path() / run / "checkpoints" / name);
  }
};

// A save without memory fails, but the run continues and the next save succeeds.
TEST_F(FaultySave, WithoutMemoryIsTriedAgain) {
  for (const int ranks : {1, 2}) {
    const std::string run = std::to_string(ranks);
    const ProgramResult result = expect_done(
        train(ranks, run, {"--checkpoint-every", "2"}, "STAGEGPT_NO_MEMORY", "00000002.tmp/model"));
    const std::string who = ranks == 1 ? "" : "rank 0: ";
    expect_said(result, "warning: saving step 2: " + who + "out of memory");
    EXPECT_FALSE(has_checkpoint(run, "step_00000002"));
    EXPECT_TRUE(has_checkpoint(run, "step_00000004"));
  }
}

// Rank 2 receives wrong data, so its weights differ. The ranks detect the difference, but not its cause.
TEST_F(FaultySave, OfWeightsThatDifferEndsTheRunAndNamesTheRank) {
  const ProgramResult result =
      train(3, "run", {"--comm", "flat", "--checkpoint-every", "2"}, "STAGEGPT_CORRUPT", "2");
  expect_failure(result, 1, "weights after step 2: rank 2 (");
  EXPECT_FALSE(has_checkpoint("run", "step_00000002"));
}

// A fault in a call of rank 0, which fetches the moments of two other ranks: support/fault_injection.cpp. A
// run of three steps with a checkpoint each.
class FaultyDisk : public FaultySave {
 protected:
  fs::path in(const std::string& name) const { return directory_.path() / name; }
  ProgramResult train(const std::string& kind, std::size_t at) const {
    fs::create_directories(in("root"));
    fs::remove_all(in("root/run"));
    fs::remove(in("log"));
    Arguments arguments = {"--oversubscribe", "-np", "1"};
    const std::pair<const char*, std::string> variables[] = {{"LD_PRELOAD", STAGEGPT_FAULT_LIBRARY},
                                                             {"FAULT_ROOT", in("root")},
                                                             {"FAULT_LOG", in("log")},
                                                             {"FAULT_KIND", kind},
                                                             {"FAULT_AT", std::to_string(at)}};
    for (const auto& [name, value] : variables)
      arguments = arguments + Arguments{"-x", concat(name, "=", value)};
    const Arguments program =
        Arguments{STAGEGPT_BIN_DIR "/stage1_train"} +
        small("root/run",
              words("--steps 3 --checkpoint-every 1 --eval-every 4 --max-new-tokens 0 --comm zero1"));
    return run_mpi(arguments + program + Arguments{":", "-np", "2"} + program, directory_.path());
  }
  // The number, from 1, of the first call that has these texts, in a run without a fault.
  std::size_t call_with(const std::string& name, const std::string& path) const {
    expect_done(train("eintr", 1'000'000));
    const std::vector<std::string> calls = logged_calls(in("log"));
    const auto found = std::ranges::find_if(calls, [&](const std::string& call) {
      return call.find(concat(" ", name, " ")) != call.npos && call.find(path) != call.npos;
    });
    EXPECT_NE(found, calls.end()) << name << ' ' << path;
    return static_cast<std::size_t>(found - calls.begin()) + 1;
  }
  std::vector<std::string> checkpoints() const {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(in("root/run/checkpoints")))
      names.push_back(entry.path().filename());
    std::ranges::sort(names);
    return names;
  }
};

TEST_F(FaultyDisk, ThatIsFullIsToldOnAllRanks) {
  for (const auto& [call, file] : {std::pair{"open", "model"}, {"write", "model"}, {"fsync", "optimizer"}}) {
    const std::string name = concat("step_00000002.tmp/", file, ".safetensors");
    const ProgramResult result = train("enospc", call_with(call, name));
    EXPECT_EQ(result.exit_code, 1) << result.errors;  // the last checkpoint failed too
    expect_said(result, "warning: saving step 2: rank 0: cannot write ");
    expect_said(result, name + "\": No space left on device");
    expect_said(result, "stage1_train: ");
    EXPECT_EQ(checkpoints(), std::vector<std::string>{"step_00000001"});
    EXPECT_NO_THROW(verify_checkpoint(newest_checkpoint(in("root/run"))));
  }
}

TEST_F(FaultyDisk, ThatFailsOnceIsToldAndTheRunGoesOn) {
  const ProgramResult result = train("eio", call_with("write", "step_00000001.tmp/optimizer.safetensors"));
  expect_said(expect_done(result), "warning: saving step 1: rank 0: cannot write ");
  EXPECT_EQ(checkpoints(), (std::vector<std::string>{"step_00000002", "step_00000003"}));
}

}  // namespace
}  // namespace stagegpt::test
