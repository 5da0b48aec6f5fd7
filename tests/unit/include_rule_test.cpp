// The include rule: folders are layers, and a file must not include a header of a higher layer.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/error.h"

namespace stagegpt::test {
namespace {

namespace fs = std::filesystem;
using Prefixes = std::vector<std::string_view>;

struct Include {
  std::string where;   // file:line
  std::string header;  // with its quotes or brackets
};

// The header that a line includes, with its quotes or brackets; empty when it includes none.
std::string included(std::string line) {
  std::erase_if(line, [](char c) { return c == ' ' || c == '\t'; });
  constexpr std::string_view kInclude = "#include";
  if (!line.starts_with(kInclude)) return "";
  line.erase(0, kInclude.size());
  const std::size_t end = line.find_first_of("\">", 1);
  return line.substr(0, end == std::string::npos ? end : end + 1);
}

std::vector<Include> includes_under(const std::string& folder) {
  constexpr std::string_view kSources[] = {".h", ".cpp", ".cuh", ".cu"};
  std::vector<Include> includes;
  for (const fs::directory_entry& entry :
       fs::recursive_directory_iterator(fs::path(STAGEGPT_SOURCE_DIR) / folder)) {
    if (std::ranges::find(kSources, entry.path().extension().string()) == std::end(kSources)) continue;
    std::ifstream in(entry.path());
    int line_number = 0;
    for (std::string line; std::getline(in, line);) {
      ++line_number;
      const std::string header = included(line);
      if (!header.empty()) includes.push_back({concat(entry.path().string(), ':', line_number), header});
    }
  }
  return includes;
}

bool begins_with_any(const std::string& header, const Prefixes& prefixes) {
  return std::ranges::any_of(prefixes, [&](std::string_view prefix) { return header.starts_with(prefix); });
}

// The project's headers are included in quotes, with the path from the root; headers of libraries in angle
// brackets.
void expect_own_headers_from(const std::string& folder, const Prefixes& allowed) {
  const std::vector<Include> includes = includes_under(folder);
  EXPECT_FALSE(includes.empty()) << "nothing read in " << folder;
  for (const Include& include : includes) {
    if (include.header.starts_with('<')) continue;
    EXPECT_TRUE(begins_with_any(include.header.substr(1), allowed)) << include.where << ' ' << include.header;
  }
}

void expect_no_mpi_and_no_cuda(const std::string& folder) {
  const Prefixes libraries = {"mpi.h", "mpi-ext.h", "mpi_", "cuda", "cublas", "nccl", "nvtx", "nvToolsExt"};
  for (const Include& include : includes_under(folder)) {
    EXPECT_FALSE(begins_with_any(include.header.substr(1), libraries))
        << include.where << ' ' << include.header;
  }
}

TEST(IncludeRule, common_knows_no_stage) { expect_own_headers_from("common", {"common/"}); }

TEST(IncludeRule, common_knows_no_mpi_and_no_cuda) { expect_no_mpi_and_no_cuda("common"); }

TEST(IncludeRule, stage_0_knows_no_other_stage) {
  expect_own_headers_from("stage0_serial", {"common/", "stage0_serial/"});
  expect_no_mpi_and_no_cuda("stage0_serial");
}

TEST(IncludeRule, stages_1_and_3_know_whose_backend_they_take) {
  expect_own_headers_from("stage1_mpi", {"common/", "stage1_mpi/", "stage0_serial/cpu_flags.h"});
  expect_own_headers_from("stage3_mpi_cuda", {"common/", "stage1_mpi/", "stage2_cuda/", "stage3_mpi_cuda/",
                                              "stage0_serial/cpu_backend.h"});
}

TEST(IncludeRule, tools_know_no_mpi_and_no_cuda) {
  expect_own_headers_from("tools/page", {"common/", "tools/page/"});
  expect_own_headers_from("tools/bench", {"common/", "tools/bench/"});
  expect_own_headers_from("tools/inspect", {"common/", "tools/inspect/", "tools/page/"});
  expect_own_headers_from("tools/compare", {"common/", "tools/compare/", "tools/page/"});
  expect_own_headers_from("tools/doctor", {"common/", "tools/doctor/", "stage0_serial/blas/"});
  expect_no_mpi_and_no_cuda("tools");
}

TEST(IncludeRule, stage_2_knows_blas_of_another_stage_and_has_cuda_in_one_folder) {
  // The emulator's report is a page.
  expect_own_headers_from("stage2_cuda", {"common/", "stage2_cuda/", "stage0_serial/blas/", "tools/page/"});
  for (const char* folder : {"stage2_cuda/kernels", "stage2_cuda/emulation"})
    expect_no_mpi_and_no_cuda(folder);
}

TEST(IncludeRule, finds_includes_however_they_are_written) {
  EXPECT_EQ(included("#include \"common/base/error.h\""), "\"common/base/error.h\"");
  EXPECT_EQ(included("  #  include <mpi.h>  // for MPI_Init"), "<mpi.h>");
  EXPECT_EQ(included("// #include <mpi.h>"), "");
  EXPECT_EQ(included("int include = 0;"), "");
}

}  // namespace
}  // namespace stagegpt::test
