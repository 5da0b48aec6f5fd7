// Which stages are found, how they are started, and the reasons why others are left out.
#include "tools/compare/stage_programs.h"

#include <unistd.h>

#include "tests/compare/fake_stages.h"

namespace stagegpt::compare::test {
namespace {

using Words = std::vector<std::string>;
using Environment = std::vector<std::pair<std::string, std::string>>;
using stagegpt::test::words;

class StageProgramsTest : public FakeStages {
 protected:
  // The stages found and those left out, as "0 CPU, 2 emulator | who: why; who: why".
  std::string found(const StageChoice& choice) const {
    const Launcher launcher(std::nullopt);
    const FoundStages found = find_stages(choice, launcher);
    std::string text;
    for (const StageProgram& stage : found.stages) {
      text += concat(text.empty() ? "" : ", ", stage.stage, " ", name_of(stage.hardware), " ",
                     stage.path.filename().string());
    }
    for (const LeftOut& out : found.left_out) text += concat(" | ", out.who, ": ", out.why);
    return without_folder(text);
  }
  std::string refusal(const StageChoice& choice) const {
    return without_folder(message<UserError>([&] { found(choice); }));
  }
  StageChoice all(bool emulated = false) const {
    return {.programs = folder(), .against = {}, .stages = {}, .emulated = emulated};
  }
  StageChoice only(std::vector<std::int64_t> stages, bool emulated = false) const {
    return {.programs = folder(), .against = {}, .stages = std::move(stages), .emulated = emulated};
  }
};

using LauncherTest = StageProgramsTest;

constexpr const char* kNoMpirun =
    "mpirun is not found; install Open MPI with ./scripts/setup.sh, or name another launcher with --mpirun";
constexpr const char* kBuildOrName = "; build it, or name its directory with --programs";

TEST_F(LauncherTest, OfOpenMpiLetsRanksShareCores) {
  const Words shares = words("mpirun --oversubscribe --bind-to none -np 3");
  for (const std::string version : {"mpirun (Open MPI) 9.9", "mpirun (OpenRTE) 2"}) {
    mpirun(version + "\\nmore of it");
    const Launcher launcher(std::nullopt);
    EXPECT_EQ(launcher.words(3), shares);
    EXPECT_EQ(launcher.version(), version);
    EXPECT_EQ(launcher.why_not(), "");
    EXPECT_TRUE(launcher.starts_here());
  }
  mpirun("HYDRA 4");
  EXPECT_EQ(Launcher(std::nullopt).words(2), (Words{"mpirun", "-np", "2"}));
}

TEST_F(LauncherTest, OfAUserGetsHisWords) {
  mpirun();
  const Launcher launcher(folder().string() + "/mpirun  --fast");
  EXPECT_EQ(launcher.words(2), (Words{folder() / "mpirun", "--fast", "-np", "2"}));
  EXPECT_EQ(launcher.version(), "mpirun (Open MPI) 9.9");
  EXPECT_EQ(launcher.why_not(), "");
  EXPECT_FALSE(launcher.starts_here());
}

TEST_F(LauncherTest, IsNotThere) {
  setenv("PATH", "/nowhere", 1);
  const Launcher launcher(std::nullopt);
  EXPECT_EQ(launcher.why_not(), kNoMpirun);
  EXPECT_EQ(launcher.version(), "");
  EXPECT_FALSE(launcher.starts_here());
  EXPECT_EQ(message<UserError>([] { Launcher("nobody --fast"); }), "--mpirun: nobody is not found");
  EXPECT_EQ(message<UserError>([] { Launcher(" "); }), "--mpirun: expected a command, got \"\"");
}

TEST_F(LauncherTest, TellsOpenMpiThatRootMeansIt) {
  mpirun();
  const Environment root = {{"OMPI_ALLOW_RUN_AS_ROOT", "1"}, {"OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"}};
  EXPECT_EQ(Launcher(std::nullopt).environment(), geteuid() == 0 ? root : Environment());
}

TEST_F(StageProgramsTest, AreFoundWithTheirFlags) {
  mpirun();
  for (const char* name : {"stage0_train", "stage1_train", "stage2_train_emulated", "stage3_train"})
    stage(name);
  stage("stage0_train", {.help = "echo '  --data FILE'; echo '  --steps N'"});
  const FoundStages found = find_stages(all(), Launcher(std::nullopt));
  ASSERT_EQ(found.stages.size(), 4u);
  EXPECT_EQ(found.stages[0].flags, (std::set<std::string>{"--data", "--steps"}));
  EXPECT_EQ(found.stages[0].path, folder() / "stage0_train");
  const std::string launched = "mpirun --oversubscribe --bind-to none -np 1: ";
  EXPECT_EQ(calls(), "stage0_train --help\n" + launched + "stage1_train --help\n" +
                         "stage2_train_emulated --help\n" + launched + "stage3_train --help\n" + launched +
                         "stage3_train --dry-run --tokenizer char\n");
  EXPECT_EQ(this->found(all()),
            "0 CPU stage0_train, 1 CPU stage1_train, 2 emulator stage2_train_emulated, 3 GPU stage3_train"
            " | Stage 2 on a GPU: stage2_train is not in FOLDER; the emulator is used instead; for a GPU, "
            "build it, "
            "or name its directory with --programs");
}

TEST_F(StageProgramsTest, OfAnotherBuildStandBeforeThoseOfThisOne) {
  mpirun();
  fs::create_directory(folder() / "other");
  for (const char* name : {"stage0_train", "other/stage0_train", "stage1_train"}) stage(name);
  StageChoice choice = only({0});
  choice.against = folder() / "other";
  const FoundStages two = find_stages(choice, Launcher(std::nullopt));
  ASSERT_EQ(two.stages.size(), 2u);
  EXPECT_TRUE(two.stages[0].other_build);
  EXPECT_EQ(two.stages[0].path, folder() / "other" / "stage0_train");
  EXPECT_FALSE(two.stages[1].other_build);
  EXPECT_EQ(two.stages[1].path, folder() / "stage0_train");
  choice.stages = {{0, 1}};
  EXPECT_EQ(refusal(choice), concat("--stages: stage 1 of --against cannot run: stage1_train is not in ",
                                    "FOLDER/other", kBuildOrName));
  choice.stages.reset();
  choice.emulated = true;
  EXPECT_EQ(found(choice).find("0 CPU stage0_train, 0 CPU stage0_train, 1 CPU stage1_train | "
                               "Stage 1, other build: stage1_train is not in FOLDER/other"),
            0)
      << found(choice);
}

TEST_F(StageProgramsTest, OnTheEmulatorAreAskedForOrTakeThePlaceOfAGpu) {
  const FakeProgram no_gpu = {.dry_run = "echo 'stage2_train: no GPU: none' >&2; exit 1"};
  stage("stage2_train", no_gpu);
  EXPECT_EQ(refusal(only({2})),
            concat("--stages: stage 2 cannot run: no GPU: none, and stage2_train_emulated is not in FOLDER",
                   kBuildOrName));
  EXPECT_EQ(refusal(only({2}, true)),
            concat("--stages: stage 2 cannot run: stage2_train_emulated is not in FOLDER", kBuildOrName));
  stage("stage2_train_emulated");
  EXPECT_EQ(
      found(only({2})),
      "2 emulator stage2_train_emulated | Stage 2 on a GPU: no GPU: none; the emulator is used instead");
  stage("stage2_train");
  EXPECT_EQ(found(only({2})), "2 GPU stage2_train");
  calls();
  EXPECT_EQ(found(only({2}, true)), "2 emulator stage2_train_emulated");
  EXPECT_EQ(calls(), "stage2_train_emulated --help\n");
}

// The advice of the program, to use the emulated program, is not repeated: that is what happens.
TEST_F(StageProgramsTest, OnAGpuThatIsNotThereSayWhatToInstall) {
  const std::string says =
      "no driver of version 1; 2 was found; install it, or use stage2_train_emulated, which runs on the CPU";
  stage("stage2_train", {.dry_run = "echo 'stage2_train: " + says + "' >&2; exit 2"});
  EXPECT_EQ(refusal(only({2})),
            concat("--stages: stage 2 cannot run: no driver of version 1; 2 was found, and "
                   "stage2_train_emulated is not in FOLDER",
                   kBuildOrName));
  stage("stage2_train_emulated");
  EXPECT_EQ(found(only({2})),
            "2 emulator stage2_train_emulated | Stage 2 on a GPU: no driver of version 1; 2 was found; the "
            "emulator is used instead; for a GPU, install it");
}

TEST_F(StageProgramsTest, ThatCannotRunAreLeftOutUnlessTheyAreAskedFor) {
  mpirun();
  stage("stage0_train", {.help = "echo 'stage0_train: a library is missing' >&2; exit 1"});
  const auto neither = [](int stage) {
    return concat(" | Stage ", stage, ": stage", stage, "_train is not in FOLDER, and stage", stage,
                  "_train_emulated is not in FOLDER", kBuildOrName);
  };
  EXPECT_EQ(found(all()), concat(" | Stage 0: stage0_train does not start: a library is missing; "
                                 "./scripts/doctor.sh tells what this machine lacks"
                                 " | Stage 1: stage1_train is not in FOLDER",
                                 kBuildOrName, neither(2), neither(3)));
  stage("stage0_train");
  EXPECT_EQ(found(only({0})), "0 CPU stage0_train");
  EXPECT_EQ(refusal(only({0, 1})),
            concat("--stages: stage 1 cannot run: stage1_train is not in FOLDER", kBuildOrName));
}

TEST_F(StageProgramsTest, OfABuildThatIsNotCompleteAreBuilt) {
  mpirun();
  directory_.write("CMakeCache.txt", "");
  const std::string build = "; build it: cmake --build FOLDER --target ";
  StageChoice choice = {.programs = folder() / "bin", .against = {}, .stages = {}, .emulated = false};
  EXPECT_EQ(found(choice),
            concat(" | Stage 0: stage0_train is not built", build, "stage0_train",
                   " | Stage 1: stage1_train is not built", build, "stage1_train",
                   " | Stage 2: stage2_train is not built, and stage2_train_emulated is not built", build,
                   "stage2_train_emulated",
                   " | Stage 3: stage3_train is not built, and stage3_train_emulated is not built", build,
                   "stage3_train_emulated"));
  fs::create_directory(folder() / "bin");
  choice.stages = {2};
  stage("stage2_train_emulated");
  fs::rename(folder() / "stage2_train_emulated", folder() / "bin/stage2_train_emulated");
  EXPECT_EQ(
      found(choice),
      "2 emulator stage2_train_emulated | Stage 2 on a GPU: stage2_train is not built; the emulator is used "
      "instead; for a GPU, install the CUDA toolkit, 12 or newer, then configure and build again");
}

// The launcher is the first thing that stages 1 and 3 need.
TEST_F(StageProgramsTest, OfRanksNeedALauncher) {
  stage("stage0_train");
  stage("stage1_train");
  setenv("PATH", "/nowhere", 1);
  EXPECT_EQ(refusal(only({1})), concat("--stages: stage 1 cannot run: ", kNoMpirun));
  EXPECT_EQ(refusal(only({3})), concat("--stages: stage 3 cannot run: ", kNoMpirun));
}

}  // namespace
}  // namespace stagegpt::compare::test
