// flags.txt lists a test for each flag of each program. A new flag without a test makes this test fail.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "common/app/stage.h"
#include "common/base/error.h"
#include "tests/support/program.h"

namespace stagegpt::test {
namespace {

struct Row {
  std::string flag, programs, file, test;
};

std::vector<Row> table() {
  std::ifstream file(STAGEGPT_SOURCE_DIR "/tests/flags/flags.txt");
  std::vector<Row> rows;
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with('#')) continue;
    std::vector<std::string> fields;
    for (std::size_t begin = 0, end = 0; end != std::string::npos; begin = end + 3) {
      end = line.find(" | ", begin);
      fields.push_back(line.substr(begin, end - begin));
    }
    EXPECT_EQ(fields.size(), 4u) << line;
    rows.push_back({fields.at(0), fields.at(1), fields.at(2), fields.at(3)});
  }
  return rows;
}

// What a program prints with --help.
std::string help_of(const std::string& program) {
  // The MPI library does not free all its memory, so leaks are not checked.
  const ProgramResult result =
      run_program(program, {"--help"}, ".", {.environment = {{"ASAN_OPTIONS", "detect_leaks=0"}}});
  EXPECT_EQ(result.exit_code, 0) << program << ": " << result.errors;
  return result.output;
}

// The flags that a program lists with --help.
std::set<std::string> flags_of(const std::string& program) {
  std::set<std::string> flags;
  std::istringstream lines(help_of(program));
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("  --")) flags.insert(line.substr(2, line.find(' ', 2) - 2));
  }
  return flags;
}

// The flags that flags.txt lists for a program. `names` are the names of the program in the table.
std::set<std::string> flags_in_table(const std::vector<std::string>& names) {
  std::set<std::string> flags;
  for (const Row& row : table()) {
    std::istringstream programs(row.programs);
    for (std::string program; programs >> program;) {
      if (std::ranges::find(names, program) != names.end()) flags.insert(row.flag);
    }
  }
  return flags;
}

// A set of flags without those that some programs of a stage lack.
std::set<std::string> without(std::set<std::string> flags, const std::vector<std::string>& others) {
  for (const std::string& other : others) flags.erase(other);
  return flags;
}

TEST(Flags, AllHaveATestOfTheirEffect) {
  for (const std::string job : {"train", "generate", "evaluate", "inspect", "verify", "bench"}) {
    EXPECT_EQ(flags_of("stage0_" + job), flags_in_table({job, "stage0", "stage0_" + job})) << job;
  }
  // Only stage2_bench and stage 3 have them.
  std::vector<std::string> others = {"--gpu-matmul-tune", "--ladder", "--ladder-version", "--share-gpu"};
  for (const std::string stage : {"stage1", "stage2", "stage3"}) {
    const std::string program = stage + "_train" + (stage == "stage1" ? "" : "_emulated");
    const std::set<std::string> of_stage = flags_in_table({"train", stage, stage + "_train"});
    EXPECT_EQ(flags_of(program), stage == "stage2" ? without(of_stage, others) : of_stage) << program;
  }
  for (const char* program : {"prepare_data", "convert_checkpoint", "compare_stages", "doctor"}) {
    EXPECT_EQ(flags_of(program), flags_in_table({program})) << program;
  }
  EXPECT_EQ(flags_of("stage2_bench_emulated"), without(flags_in_table({"bench", "stage2"}), {"--share-gpu"}));
  EXPECT_EQ(flags_of("stage2_generate_emulated"), without(flags_in_table({"generate", "stage2"}), others));
  others.push_back("--gpu-graph");
  EXPECT_EQ(flags_of("stage2_evaluate_emulated"), without(flags_in_table({"evaluate", "stage2"}), others))
      << "it repeats nothing";
}

TEST(Flags, OfEveryProgramHaveTheVersion) {
  std::vector<std::string> programs = {"prepare_data", "convert_checkpoint", "compare_stages", "doctor"};
  for (const char* job : {"train", "generate", "evaluate", "inspect", "verify", "bench"}) {
    for (const char* stage : {"stage0_", "stage1_"}) programs.push_back(concat(stage, job));
  }
  for (const std::string& program : programs) {
    const ProgramResult result =
        run_program(program, {"--version"}, ".", {.environment = {{"ASAN_OPTIONS", "detect_leaks=0"}}});
    EXPECT_EQ(result.exit_code, 0) << program << ": " << result.errors;
    EXPECT_TRUE(result.output.starts_with(concat(program, " (StageGPT) " STAGEGPT_VERSION "\ncommit: ")))
        << result.output;
    EXPECT_EQ(std::ranges::count(result.output, '\n'), 3) << result.output;
    EXPECT_EQ(result.output.find('/'), std::string::npos) << "a path: " << result.output;
  }
}

// The headings of --help, one after the other.
std::string headings_of(const std::string& program) {
  std::string headings;
  std::istringstream lines(help_of(program));
  for (std::string line; std::getline(lines, line);) {
    if (!line.empty() && line.front() != ' ' && line.back() == ':') headings += line;
  }
  return headings;
}

TEST(Flags, AreListedUnderTheirHeadings) {
  for (const char* program :
       {"stage0_train", "stage1_train", "stage2_train_emulated", "stage3_train_emulated"}) {
    EXPECT_EQ(headings_of(program), "Options:This call:Data:Model:Training:Run:Machine:Presets:") << program;
  }
  EXPECT_EQ(headings_of("stage0_generate"), "Options:Model:Text:Sampling:Run:Machine:");
  EXPECT_EQ(headings_of("stage0_evaluate"), "Options:Model:Data:Windows:Run:Machine:");
  EXPECT_EQ(headings_of("stage0_inspect"), "Options:Model:Text:Output:Run:Machine:");
  EXPECT_EQ(headings_of("stage0_verify"), "Options:Reference:Optimizer:Run:Machine:");
  EXPECT_EQ(headings_of("stage2_bench_emulated"), "Options:Model:Measurement:Run:Machine:Presets:");
  EXPECT_EQ(headings_of("prepare_data"), "Options:Input:Output:Machine:");
  EXPECT_EQ(headings_of("convert_checkpoint"), "Options:Models:");
  EXPECT_EQ(headings_of("compare_stages"),
            "Options:Report:Contestants:Experiment:Instead of an experiment:Flags after -- are passed to "
            "every stage that has them:");
  EXPECT_EQ(headings_of("doctor"), "Options:Output:");
}

// The flags of a stage's train and bench programs, without the emulator's --threads.
std::set<std::string> flags_of_stage(int stage) {
  std::set<std::string> flags;
  for (const char* job : {"train", "bench"}) {
    flags.merge(flags_of(concat("stage", stage, '_', job, stage < 2 ? "" : "_emulated")));
  }
  if (stage >= 2) flags.erase("--threads");
  return flags;
}

// Each stage's folder lists the flags that not every stage has. Programs use these lists for their error
// messages.
TEST(Flags, ThatNotEveryStageHasAreListedInTheStagesFolders) {
  std::map<std::string, std::set<int>> stages_of, listed;
  for (int stage = 0; stage < 4; ++stage) {
    for (const std::string& flag : flags_of_stage(stage)) stages_of[flag].insert(stage);
  }
  std::erase_if(stages_of, [](const auto& flag) { return flag.second.size() == 4; });
  for (const StageFlag& flag : stage_flags()) listed[std::string(flag.name)].insert(flag.stage);
  EXPECT_EQ(stages_of, listed);
}

TEST(Flags, AreInTheFilesOfTheirTests) {
  for (const Row& row : table()) {
    const std::string text = read_bytes(STAGEGPT_SOURCE_DIR "/" + row.file);
    EXPECT_NE(text.find("(" + row.test + ")"), std::string::npos) << row.test << " is not in " << row.file;
    EXPECT_NE(text.find(row.flag), std::string::npos) << row.flag << " is not in " << row.file;
  }
}

TEST(Flags, OfPrepareDataPrintTheManifest) {
  const ScratchDirectory directory;
  directory.write("text.txt", "some text, twice: some text");
  const ProgramResult result = run_program(
      "prepare_data", words("--input text.txt --output out --tokenizer char --json"), directory.path());
  auto manifest = nlohmann::json::parse(read_bytes(directory.path() / "out/manifest.json"));
  for (const char* of_the_file : {"format", "version"}) manifest.erase(of_the_file);
  EXPECT_EQ(nlohmann::json::parse(result.output), manifest);
}

}  // namespace
}  // namespace stagegpt::test
