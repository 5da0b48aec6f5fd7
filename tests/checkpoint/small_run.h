// A training run of a few milliseconds, with checkpoints.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>

#include "common/io/content_hash.h"
#include "tests/support/program.h"

namespace stagegpt::test {

using Arguments = std::vector<std::string>;

// Every test has its own directory with a training text.
class SmallRun : public testing::Test {
 protected:
  SmallRun() {
    std::string text;
    for (int i = 0; i < 100; ++i) text += "the cat sat on the mats.\n";
    directory.write("text.txt", text);
  }

  // A flag may be given only once: flags added with with() do not override these.
  static Arguments model_flags() {
    return {"--data",       "text.txt", "--tokenizer", "char", "--n-layer",        "1",
            "--n-head",     "2",        "--n-embd",    "16",   "--block-size",     "16",
            "--batch-size", "2",        "--threads",   "1",    "--max-new-tokens", "0"};
  }
  static Arguments with(Arguments arguments, const Arguments& more) {
    arguments.insert(arguments.end(), more.begin(), more.end());
    return arguments;
  }

  ProgramResult train(const Arguments& arguments, const RunOptions& options = {}) const {
    return run_program("stage0_train", arguments, directory.path(), options);
  }
  ProgramResult expect_success(const Arguments& arguments) const { return expect_done(train(arguments)); }
  void expect_refused(const Arguments& arguments, const std::string& says) const {
    expect_failure(train(arguments), 2, says);
  }

  std::filesystem::path in(const std::string& name) const { return directory.path() / name; }
  nlohmann::json json_in(const std::string& file) const {
    return nlohmann::json::parse(read_bytes(in(file)));
  }
  // The bytes of each file of a run, and when it was written.
  std::map<std::string, std::string> files_of(const std::string& run) const {
    std::map<std::string, std::string> all;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(in(run))) {
      if (!entry.is_regular_file()) continue;
      all[entry.path()] =
          std::to_string(entry.last_write_time().time_since_epoch().count()) + read_bytes(entry.path());
    }
    return all;
  }
  // Hash of a checkpoint: of its manifest, which contains the hashes of all its files.
  std::string hash_of(const std::string& checkpoint) const {
    return hash_of_file(in(checkpoint) / "manifest.json");
  }
  // The lines of metrics.jsonl without the values that depend on time.
  std::vector<nlohmann::json> metrics(const std::string& run) const {
    std::vector<nlohmann::json> lines;
    std::istringstream text(read_bytes(in(run) / "metrics.jsonl"));
    for (std::string line; std::getline(text, line);) {
      lines.push_back(nlohmann::json::parse(line));
      for (const char* key :
           {"seconds", "validation_seconds", "ms", "tokens_per_second", "model_flops_per_second", "mfu"})
        lines.back().erase(key);
    }
    return lines;
  }

  // Expects two runs to have ended in the same bits, after the same steps.
  void expect_same_end(const std::string& run, const std::string& other) const {
    EXPECT_EQ(hash_of(run + "/latest"), hash_of(other + "/latest"));
    EXPECT_EQ(metrics(run), metrics(other));
  }

  ScratchDirectory directory;
};

}  // namespace stagegpt::test
