// Runs prepare_data in a temporary directory, and trains on its output.
#pragma once

#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "common/base/error.h"
#include "common/data/token_sequence.h"
#include "common/data/tokenizers/load_tokenizer.h"
#include "tests/data/shards.h"
#include "tests/support/program.h"

namespace stagegpt::test {

namespace fs = std::filesystem;
using Ids = std::vector<std::int32_t>;
using Arguments = std::vector<std::string>;

// Similar sentences with different words and numbers.
inline std::string story(int sentences) {
  std::string text;
  for (int i = 0; i < sentences; ++i) {
    text += "The " + std::string(i % 3 ? "cat" : "otter") + " saw " + std::to_string(i * i % 97) +
            " thés, 中文 it's.\n";
  }
  return text;
}

class PrepareData : public testing::Test {
 protected:
  ProgramResult run(const Arguments& arguments) const {
    return run_program("prepare_data", arguments, directory.path());
  }
  ProgramResult prepare(const std::string& output, const Arguments& more) const {
    return expect_done(run(Arguments{"--output", output} + more));
  }
  // Runs a shell's command in the directory, with its output in out.log.
  int shell(const std::string& command) const {
    return std::system(
        concat("cd '", directory.path().string(), "' && { ", command, "; } >out.log 2>&1").c_str());
  }
  Ids tokens(const std::string& output, const std::string& part) const {
    TokenSequence sequence;
    for (int i = 0;; ++i) {
      char name[32];
      std::snprintf(name, sizeof name, "_%06d.bin", i);
      const fs::path path = directory.path() / output / (part + name);
      if (!fs::exists(path)) return sequence.read(0, sequence.size());
      sequence.append(verified_shard(path));
    }
  }
  std::unique_ptr<Tokenizer> tokenizer(const std::string& output) const {
    return load_tokenizer(directory.path() / output, "--tokenizer-path");
  }
  void expect_refused(const Arguments& arguments, const std::string& says) const {
    const ProgramResult result = run(arguments);
    expect_failure(result, 2, says);
    EXPECT_FALSE(fs::exists(directory.path() / "out"));
    EXPECT_FALSE(fs::exists(directory.path() / "out.partial"));
  }
  // Runs stage0_train for 8 steps. Returns its JSON output and its standard error.
  std::pair<nlohmann::json, std::string> train(const Arguments& data) const {
    const Arguments small = words(
        "--n-layer 1 --n-head 1 --n-embd 16 --block-size 16 --batch-size 4 --steps 8 --max-new-tokens 20 "
        "--json");
    const ProgramResult result = expect_done(run_program("stage0_train", small + data, directory.path()));
    if (result.exit_code != 0) return {};
    nlohmann::json json = nlohmann::json::parse(result.output);
    for (const char* differs :
         {"seconds", "training_seconds", "validation_seconds", "tokens_per_second", "run_dir"})
      json.erase(differs);
    return {json, result.errors};
  }

  ScratchDirectory directory;
};

}  // namespace stagegpt::test
