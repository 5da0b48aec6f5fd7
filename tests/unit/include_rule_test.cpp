// Who may include whom: the folders are layers, and a header of a layer above is not for those below.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <regex>
#include <string>
#include <vector>

#include "common/error.h"

namespace stagegpt::test {
namespace {

namespace fs = std::filesystem;

struct Include {
  std::string where;  // file:line
  std::string header;
  bool quoted;  // "header", not <header>
};

std::vector<Include> includes_of(const fs::path& file) {
  static const std::regex pattern(R"re(^\s*#\s*include\s*([<"])([^>"]+)[>"])re");
  std::vector<Include> includes;
  std::ifstream in(file);
  int line_number = 0;
  for (std::string line; std::getline(in, line);) {
    ++line_number;
    std::smatch match;
    if (!std::regex_search(line, match, pattern)) continue;
    includes.push_back({concat(file.string(), ':', line_number), match[2], match[1] == "\""});
  }
  return includes;
}

std::vector<Include> includes_under(const std::string& folder) {
  std::vector<Include> includes;
  for (const fs::directory_entry& entry :
       fs::recursive_directory_iterator(fs::path(STAGEGPT_SOURCE_DIR) / folder)) {
    static const std::regex sources(R"(\.(h|cpp|cuh|cu)$)");
    if (!std::regex_search(entry.path().string(), sources)) continue;
    const std::vector<Include> more = includes_of(entry.path());
    includes.insert(includes.end(), more.begin(), more.end());
  }
  return includes;
}

bool begins_with_any(const std::string& header, const std::vector<std::string>& prefixes) {
  return std::ranges::any_of(prefixes, [&](const std::string& prefix) { return header.starts_with(prefix); });
}

// Our own headers are included by their path from the root, those of libraries in angle brackets.
void expect_layers(const std::string& folder, const std::vector<std::string>& allowed) {
  const std::vector<Include> includes = includes_under(folder);
  EXPECT_FALSE(includes.empty()) << "nothing read in " << folder;
  for (const Include& include : includes) {
    if (!include.quoted) continue;
    EXPECT_TRUE(begins_with_any(include.header, allowed)) << include.where << ' ' << include.header;
  }
}

void expect_no_library(const std::string& folder, const std::string& headers) {
  const std::regex forbidden(headers);
  for (const Include& include : includes_under(folder)) {
    EXPECT_FALSE(std::regex_search(include.header, forbidden)) << include.where << ' ' << include.header;
  }
}

constexpr const char* kMpi = "^(mpi|mpi-ext|mpi_.*)\\.h$";
constexpr const char* kCuda = "^(cuda|cublas|cudnn|nccl|nvtx|nvToolsExt|device_launch)";

TEST(IncludeRule, common_knows_no_stage) { expect_layers("common", {"common/"}); }

TEST(IncludeRule, common_knows_no_mpi_and_no_cuda) {
  expect_no_library("common", kMpi);
  expect_no_library("common", kCuda);
}

TEST(IncludeRule, stage_0_knows_no_other_stage) {
  expect_layers("stage0_serial", {"common/", "stage0_serial/"});
  expect_no_library("stage0_serial", kMpi);
  expect_no_library("stage0_serial", kCuda);
}

}  // namespace
}  // namespace stagegpt::test
