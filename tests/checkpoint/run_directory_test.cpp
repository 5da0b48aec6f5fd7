// The content of a run directory, exclusive access to it, and detection of damage.
#include "common/checkpoint/run_directory.h"

#include <sys/stat.h>

#include <algorithm>
#include <csignal>
#include <fstream>
#include <random>
#include <set>
#include <thread>

#include "common/base/error.h"
#include "common/base/json.h"
#include "common/checkpoint/checkpoint.h"
#include "common/checkpoint/manifest.h"
#include "tests/checkpoint/small_run.h"

namespace stagegpt::test {
namespace {

namespace fs = std::filesystem;

class RunFiles : public SmallRun {
 protected:
  static Arguments flags(const std::string& run, const Arguments& more = {}) {
    return with(with(model_flags(), {"--run-dir", run}), more);
  }
  std::set<std::string> names(const std::string& path) const {
    std::set<std::string> found;
    for (const auto& entry : fs::directory_iterator(in(path))) found.insert(entry.path().filename());
    return found;
  }
};

TEST_F(RunFiles, AreThese) {
  expect_success(flags("run", {"--steps", "5"}));
  EXPECT_EQ(names("run"), (std::set<std::string>{".lock", "best", "checkpoints", "events.out.tfevents.000001",
                                                 "latest", "metrics.jsonl", "run.json", "tokenizer.json"}));
  EXPECT_EQ(names("run/latest/"),
            (std::set<std::string>{"config.json", "generation_config.json", "manifest.json",
                                   "model.safetensors", "optimizer.safetensors", "tokenizer.json",
                                   "tokenizer_config.json", "trainer_state.json"}));
  EXPECT_EQ(fs::read_symlink(in("run/latest")), "checkpoints/step_00000005");
  EXPECT_EQ(read_bytes(in("run/latest/tokenizer.json")), read_bytes(in("run/tokenizer.json")));
}

TEST_F(RunFiles, AreAsLargeAsIsSaid) {
  const ProgramResult result = train(with_flags(flags("run"), {"--steps", "1", "--n-embd", "192"}));
  ASSERT_EQ(result.exit_code, 0) << result.errors;
  double bytes = 0;
  for (const auto& entry : fs::directory_iterator(in("run/latest/"))) {
    if (entry.path().filename() != "manifest.json") bytes += static_cast<double>(entry.file_size());
  }
  const std::string note = "step_00000001 (";
  const std::size_t at = result.errors.find(note);
  ASSERT_NE(at, std::string::npos) << result.errors;
  EXPECT_NEAR(std::stod(result.errors.substr(at + note.size())), bytes / 1e6, 0.051)
      << result.errors;  // "6.1 MB"
}

TEST_F(RunFiles, HoldTracesOfTheFirstStepsOfACall) {
  expect_success(flags("untraced", {"--steps", "6", "--stop-after", "4"}));
  EXPECT_FALSE(fs::exists(in("untraced/traces")));
  expect_success(flags("run", {"--steps", "6", "--stop-after", "4", "--trace-steps", "2"}));
  const auto traces = [](std::vector<int> steps) {
    std::set<std::string> found;
    for (int step : steps) found.insert("step_0000000" + std::to_string(step) + ".safetensors");
    return found;
  };
  EXPECT_EQ(names("run/traces"), traces({1, 2}));
  EXPECT_EQ(hash_of("run/latest"), hash_of("untraced/latest"));
  directory.write("run/traces/step_00000005.safetensors", "of a step that is to be done again");
  directory.write("run/traces/step_00000002.safetensors.tmp", "unfinished");
  expect_success({"--resume", "run", "--stop-after", "5"});
  EXPECT_EQ(names("run/traces"), traces({1, 2}));
  expect_success({"--resume", "run", "--trace-steps", "1000"});
  EXPECT_EQ(names("run/traces"), traces({1, 2, 6}));
}

TEST_F(RunFiles, OfADryRunAreNone) {
  expect_success(flags("run", {"--dry-run", "--trace-steps", "2"}));
  EXPECT_FALSE(fs::exists(in("run")));
}

// The stopped run has left traces, but no checkpoint.
TEST_F(RunFiles, OfARunThatWasStoppedEarlyAreReplaced) {
  expect_success(flags("run", {"--steps", "2", "--trace-steps", "2"}));
  for (const char* name : {"run/checkpoints", "run/latest", "run/best"}) fs::remove_all(in(name));
  expect_success(flags("run", {"--steps", "1", "--trace-steps", "1"}));
  EXPECT_EQ(names("run/traces"), (std::set<std::string>{"step_00000001.safetensors"}));
}

TEST_F(RunFiles, OfRunsWithoutANameAreNumbered) {
  for (int i = 0; i < 3; ++i) expect_success(with(model_flags(), {"--steps", "1"}));
  EXPECT_EQ(names("runs"), (std::set<std::string>{"nano", "nano-2", "nano-3"}));
}

TEST_F(RunFiles, AreNotOverwritten) {
  expect_success(flags("run", {"--steps", "2"}));
  const std::string hash = hash_of("run/latest");
  expect_refused(flags("run", {"--steps", "4"}),
                 "--run-dir: \"run\" already has a run; continue it with --resume");
  EXPECT_EQ(hash_of("run/latest"), hash);
  fs::create_directory(in("full"));
  directory.write("full/letter.txt", "dear reader");
  expect_refused(flags("full"), "--run-dir: \"full\" is not empty: it holds \"letter.txt\"");
  expect_refused(flags("text.txt"), "--run-dir: \"text.txt\" is not a directory");
  fs::create_directory(in("empty"));
  expect_success(flags("empty", {"--steps", "1"}));
}

TEST_F(RunFiles, AreFoundBeforeTheDataAreRead) {
  expect_success(flags("run", {"--steps", "1"}));
  fs::remove(in("text.txt"));
  expect_refused(flags("run"), "--run-dir: \"run\" already has a run");
}

TEST_F(RunFiles, ThatAStoppedProcessHasLeftAreRemoved) {
  expect_success(flags("run", {"--steps", "1"}));
  const std::vector<std::string> left = {"run.json.tmp", "metrics.jsonl.tmp", "latest.tmp", "best.tmp",
                                         "checkpoints/step_00000002.tmp"};
  for (const std::string& name : left) directory.write("run/" + name, "unfinished");
  expect_success({"--resume", "run"});  // which is finished: no file is written again, and replaces these
  for (const std::string& name : left) EXPECT_FALSE(fs::exists(in("run/" + name))) << name;
}

TEST_F(RunFiles, OfOthersStay) {
  // A directory without the lock file is not a run, even if it contains a run's files. Unknown files in a run
  // are not deleted.
  fs::create_directory(in("mine"));
  directory.write("mine/tokenizer.json", "{}");
  expect_refused(flags("mine"), "--run-dir: \"mine\" is not empty: it holds \"tokenizer.json\"");
  EXPECT_THROW(RunDirectory::create(in("mine")), UserError);
  EXPECT_EQ(names("mine"), std::set<std::string>{"tokenizer.json"});
  expect_success(flags("run", {"--steps", "1"}));
  directory.write("run/notes.tmp", "dear diary");
  directory.write("run/checkpoints/notes.tmp", "dear diary");
  expect_success({"--resume", "run", "--steps", "2"});
  EXPECT_TRUE(fs::exists(in("run/notes.tmp")));
  EXPECT_TRUE(fs::exists(in("run/checkpoints/notes.tmp")));
}

TEST_F(RunFiles, AreCalledAsTheModelIs) {
  expect_success(flags("fox", {"--steps", "1"}));
  expect_success({"--model", "fox", "--data", "text.txt", "--steps", "1", "--max-new-tokens", "0"});
  expect_success({"--model", "fox/latest", "--data", "text.txt", "--steps", "1", "--max-new-tokens", "0"});
  EXPECT_EQ(names("runs"), (std::set<std::string>{"fox", "fox-2"}));
}

TEST_F(RunFiles, AreWholeWhereThereAreNoLinks) {
  // A copy of a run that follows links has a directory in place of the link `latest`.
  expect_success(flags("run", {"--steps", "2"}));
  fs::remove(in("run/latest"));
  fs::create_directory(in("run/latest"));
  const ProgramResult result = expect_success({"--resume", "run", "--steps", "9", "--checkpoint-every", "1"});
  expect_said(result, "warning: cannot rename");
  EXPECT_LE(names("run/checkpoints").size(), 3u);  // old checkpoints are still deleted
}

TEST_F(RunFiles, AreLockedWhileInUse) {
  expect_success(flags("run", {"--steps", "2"}));
  const RunDirectory held = RunDirectory::open(in("run"));
  expect_refused({"--resume", "run", "--steps", "4"}, "--run-dir: another process is training in \"run\"");
}

TEST_F(RunFiles, UnwritableOnesAreReported) {
  if (geteuid() == 0) {
    // Root ignores permissions, but even root cannot write to /proc.
    expect_refused(flags("/proc/run"), "--run-dir: cannot create \"/proc/run\"");
    return;
  }
  fs::create_directory(in("closed"));
  chmod(in("closed").c_str(), 0555);
  expect_refused(flags("closed/run"), "--run-dir: cannot create");
}

TEST_F(RunFiles, CheckpointsAreKeptByRule) {
  const auto kept = [&](const std::string& run, const Arguments& more) {
    expect_success(
        flags(run, with({"--steps", "30", "--checkpoint-every", "3", "--learning-rate", "1e-9"}, more)));
    return names(run + "/checkpoints");
  };
  const auto steps = [](std::vector<int> numbers) {
    std::set<std::string> found;
    for (int number : numbers)
      found.insert("step_000000" + std::string(number < 10 ? "0" : "") + std::to_string(number));
    return found;
  };
  const auto best = [&](const std::string& run) {
    return std::stoi(fs::read_symlink(in(run) / "best").filename().string().substr(5));
  };
  const auto with_best = [&](const std::string& run, std::vector<int> numbers) {
    numbers.push_back(best(run));
    return steps(numbers);
  };
  const auto two = kept("two", {}), four = kept("four", {"--keep-last", "4"}),
             tens = kept("tens", {"--keep-every", "10"});
  EXPECT_EQ(two, with_best("two", {27, 30}));
  EXPECT_EQ(four, with_best("four", {21, 24, 27, 30}));
  EXPECT_EQ(tens, with_best("tens", {27, 30}));
  const auto nines = kept("nines", {"--keep-every", "9"});
  EXPECT_EQ(nines, with_best("nines", {9, 18, 27, 30}));
  expect_refused(flags("one", {"--keep-last", "1"}), "--keep-last: expected a whole number from 2");
}

// A run whose checkpoints the test writes itself, with chosen validation losses.
class MadeRun : public RunFiles {
 protected:
  MadeRun() { expect_success(flags("run", {"--steps", "1"})); }

  void save(RunDirectory& made, std::int64_t step, double validation_loss,
            std::optional<std::int64_t> validation_tokens = std::nullopt) const {
    const fs::path checkpoint = made.begin_checkpoint(step);
    TrainerState state;
    state.step = step;
    state.validation_loss = validation_loss;
    state.validation_tokens = validation_tokens;
    std::vector<FileEntry> entries = {write_hashed(checkpoint / "trainer_state.json", to_json_text(state))};
    for (const char* name : {"config.json", "model.safetensors", "optimizer.safetensors", "tokenizer.json"}) {
      fs::copy(in("run/latest") / name, checkpoint / name);
      entries.push_back(file_entry(checkpoint / name));
    }
    made.commit_checkpoint(step, entries);
    made.prune({});
  }
};

TEST_F(MadeRun, BestHasTheLowestValidationLossAndStays) {
  RunDirectory made = RunDirectory::create(in("made"));
  const double losses[] = {3, 2, 4, 5, 6};
  for (int i = 0; i < 5; ++i) save(made, i + 1, losses[i]);
  EXPECT_EQ(fs::read_symlink(in("made/best")), "checkpoints/step_00000002");
  EXPECT_EQ(names("made/checkpoints"),
            (std::set<std::string>{"step_00000002", "step_00000004", "step_00000005"}));
}

TEST_F(MadeRun, BestComparesLossesOverTheSameTokens) {
  RunDirectory made = RunDirectory::create(in("made"));
  save(made, 1, 1);  // an older version, which did not save the number of tokens
  save(made, 2, 2, 32);
  EXPECT_EQ(fs::read_symlink(in("made/best")), "checkpoints/step_00000002");
  save(made, 3, 5, 64);
  EXPECT_EQ(fs::read_symlink(in("made/best")), "checkpoints/step_00000003");
  save(made, 4, 6, 64);
  EXPECT_EQ(fs::read_symlink(in("made/best")), "checkpoints/step_00000003");
  save(made, 5, 3, 32);
  EXPECT_EQ(fs::read_symlink(in("made/best")), "checkpoints/step_00000005");
}

TEST_F(MadeRun, DamagedCheckpointsDoNotCountAsKept) {
  for (const bool read_back : {false, true}) {
    const std::string run = read_back ? "read_back" : "made";
    RunDirectory made = RunDirectory::create(in(run));
    save(made, 1, 3);
    EXPECT_TRUE(!read_back || made.read_back_newest().get());
    save(made, 2, 2);
    fs::resize_file(in(run + "/checkpoints/step_00000002/config.json"), 3);
    EXPECT_FALSE(read_back && made.read_back_newest().get());
    save(made, 3, 1);
    EXPECT_EQ(names(run + "/checkpoints"),
              (std::set<std::string>{"step_00000001", "step_00000002.damaged", "step_00000003"}));
  }
}

TEST_F(RunFiles, DamagedCheckpointsAreSetAside) {
  expect_success(flags("run", {"--steps", "40", "--checkpoint-every", "20"}));
  std::ofstream(in("run/checkpoints/step_00000040/model.safetensors"), std::ios::app) << 'x';
  expect_said(
      expect_success({"--resume", "run", "--stop-after", "30"}),
      "note: \"run/checkpoints/step_00000040\" is damaged and was renamed to \"step_00000040.damaged\"");
  EXPECT_EQ(names("run/checkpoints"),
            (std::set<std::string>{"step_00000020", "step_00000030", "step_00000040.damaged"}));
  EXPECT_EQ(fs::read_symlink(in("run/best")), "checkpoints/step_00000020");
  expect_success({"--resume", "run"});
  EXPECT_NO_THROW(verify_manifest(in("run/best")));
}

TEST_F(RunFiles, ACheckpointOfAnotherNameIsRefused) {
  expect_success(flags("run", {"--steps", "2"}));
  fs::rename(in("run/checkpoints/step_00000002"), in("run/checkpoints/mine"));
  expect_refused({"--resume", "run/checkpoints/mine"},
                 "--resume: expected a checkpoint under the name that it was saved with, not \"");
}

TEST_F(RunFiles, HaveTheValidationLossOfTheStepAtWhichTheyStop) {
  expect_success(flags("run", {"--steps", "20", "--eval-every", "5", "--stop-after", "5"}));
  EXPECT_EQ(json_in("run/best/trainer_state.json")["validation_loss"],
            metrics("run").back()["validation_loss"]);
}

// ---- Damage
// ------------------------------------------------------------------------------------------------

class Damage : public RunFiles {
 protected:
  Damage() { expect_success(flags("run", {"--steps", "1"})); }

  std::vector<fs::path> files() const {
    std::vector<fs::path> paths;
    for (const auto& entry : fs::directory_iterator(in("run/checkpoints/step_00000001")))
      paths.push_back(entry.path());
    std::ranges::sort(paths);
    return paths;
  }
  void expect_damaged(const std::string& what) const {
    EXPECT_THROW(verify_manifest(in("run/latest")), UserError) << what;
  }
};

TEST_F(Damage, ATruncationIsFoundAtAHundredSizes) {
  for (const fs::path& path : files()) {
    const std::string whole = read_bytes(path);
    std::ofstream file(path, std::ios::binary | std::ios::trunc);
    const std::size_t step = 1 + whole.size() / 100;
    for (std::size_t size = 0; size < whole.size(); size += step) {
      expect_damaged(concat(path, " with ", size, " bytes"));
      file << whole.substr(size, step) << std::flush;
    }
    EXPECT_NO_THROW(verify_manifest(in("run/latest")));
  }
}

TEST_F(Damage, EveryFlippedBitIsFound) {
  std::mt19937 random(1);
  const std::vector<fs::path> paths = files();
  for (int i = 0; i < 1000; ++i) {
    const fs::path& path = paths[static_cast<std::size_t>(i) % paths.size()];
    std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out);
    const auto at = static_cast<std::streamoff>(random() % fs::file_size(path));
    const auto flip = [&, mask = static_cast<char>(1 << random() % 8)] {
      file.seekg(at);
      const char byte = static_cast<char>(file.get() ^ mask);
      file.seekp(at);
      file.put(byte).flush();
    };
    flip();
    expect_damaged(concat(path, " at ", at));
    flip();
  }
  EXPECT_NO_THROW(verify_manifest(in("run/latest")));
}

TEST_F(Damage, MissingAndForeignFiles) {
  for (const fs::path& path : files()) {
    fs::rename(path, in("aside"));
    expect_damaged(path);
    fs::rename(in("aside"), path);
  }
}

TEST_F(Damage, OfTheOnlyCheckpointLeavesNothingToResume) {
  fs::resize_file(in("run/checkpoints/step_00000001/model.safetensors"), 100);
  expect_refused({"--resume", "run"}, "--resume: \"run\" has no undamaged checkpoint\n");
}

TEST_F(Damage, OfWhatTheManifestListsIsToldByName) {
  write_manifest(in("run/latest"), {});
  expect_refused({"--resume", "run/latest"}, "the manifest does not list config.json");
}

// A file and its manifest may both be changed, so that all hashes are right. The content must then be
// checked.
TEST_F(Damage, ThatHashesDoNotShowIsRefused) {
  const fs::path checkpoint = in("run/checkpoints/step_00000001");
  const auto expect_refusal = [&](const std::string& file, const std::string& from, const std::string& to,
                                  const std::string& says) {
    const std::string whole = read_bytes(checkpoint / file);
    std::string changed = whole;
    ASSERT_NE(changed.find(from), changed.npos);
    changed.replace(changed.find(from), from.size(), to);
    std::ofstream(checkpoint / file, std::ios::binary) << changed;
    std::vector<FileEntry> entries;
    for (const fs::path& path : files()) {
      if (path.filename() != "manifest.json") entries.push_back(file_entry(path));
    }
    write_manifest(checkpoint, entries);
    expect_refused({"--resume", "run", "--steps", "3"}, says);
    std::ofstream(checkpoint / file, std::ios::binary) << whole;
  };
  const std::string state = "trainer_state.json", config = "config.json";
  expect_refusal(state, "\"data_position\": 2", "\"data_position\": 9223372036854775807",
                 "expected at most 1152921504606846976");
  expect_refusal(state, "\"step\": 1", "\"step\": 3",
                 "expected the state of the step in its name, got step 3");
  expect_refusal(state, "\"seed\": 1337", "\"seed\": 1338", "--seed: expected 1338 as in ");
  // Wrong sizes are refused before memory is allocated for them.
  expect_refusal(config, "\"vocab_size\": 13", "\"vocab_size\": 16000000",
                 "wte.weight has the shape (13, 16), expected (16000000, 16)");
  expect_refusal("optimizer.safetensors", "exp_avg.wpe", "exp_avg.wpo",
                 "the tensor exp_avg.wpe.weight is missing");
}

TEST_F(Damage, IsToldWithOneLine) {
  fs::resize_file(in("run/latest/model.safetensors"), 100);
  const ProgramResult result = train(flags("other", {"--model", "run/latest", "--steps", "1"}));
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_EQ(std::ranges::count(result.errors, '\n'), 1) << result.errors;
  expect_said(result, "--model: \"run/checkpoints/step_00000001/model.safetensors\" has 100 bytes");
  EXPECT_FALSE(fs::exists(in("other")));
}

TEST_F(Damage, OfATokenizerIsBlamedOnTheFlagThatLedToIt) {
  directory.write("run/tokenizer.json", "{}");
  expect_refused({"--resume", "run", "--steps", "2"},
                 "--resume: \"run/tokenizer.json\": expected tokenizer.json, ");
  fs::remove(in("run/latest/manifest.json"));
  directory.write("run/latest/tokenizer.json", "{}");
  expect_refused(flags("other", {"--model", "run/latest", "--steps", "1"}),
                 "--model: \"run/checkpoints/step_00000001/tokenizer.json\": expected tokenizer.json, ");
}

}  // namespace
}  // namespace stagegpt::test
