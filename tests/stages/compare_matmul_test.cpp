// The packed GEMM beside OpenBLAS: which products are timed, and what the numbers say.
#include "stage0_serial/compare_matmul.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>

#include "tests/support/program.h"

namespace stagegpt::test {
namespace {

TEST(CompareMatmul, TimesTheProductsOfABlock) {
  const ScratchDirectory directory;
  const auto bench = [&](const std::vector<std::string>& more) {
    const ProgramResult result = run_program(
        "stage0_bench", std::vector<std::string>{"--compare-matmul", "8", "--threads", "1"} + more,
        directory.path());
    EXPECT_EQ(result.exit_code, 0) << result.errors;
    return result.output;
  };
  const auto json = nlohmann::json::parse(bench({"--json"}));
  std::set<std::vector<int>> layers;
  std::set<std::string> products;
  for (const auto& p : json["products"]) {
    layers.insert(std::vector<int>{p["rows"], p["outputs"], p["inputs"]});
    products.insert(p["product"]);
    for (const char* rate : {"packed_gflops", "openblas_gflops"}) {
      EXPECT_GT(p[rate], 0);
      EXPECT_LT(p[rate], 1e4) << "of one thread";
    }
  }
  EXPECT_EQ(json["products"].size(), 36U);
  EXPECT_EQ(products, (std::set<std::string>{"forward", "dX", "dW"}));
  std::set<std::vector<int>> expected;
  for (const int N : {64, 256, 1024}) expected.insert({{N, 24, 8}, {N, 8, 8}, {N, 32, 8}, {N, 8, 32}});
  EXPECT_EQ(layers, expected);
  EXPECT_NE(json["machine"].get<std::string>().find("CPU, 1 thread, packed ("), std::string::npos);

  const std::string table = bench({});
  EXPECT_NE(table.find("\nforward      64       24        8 "), std::string::npos) << table;
  EXPECT_NE(table.find("of 36 products"), std::string::npos) << table;
}

TEST(CompareMatmul, SaysWhichIsFaster) {
  // Seconds of packed and of OpenBLAS: 2 and 1, 1 and 4.
  const std::vector<ComparedProduct> products = {{"forward", 1, 1, 1, 1, 2}, {"dX", 2, 3, 4, 48, 12}};
  EXPECT_EQ(
      verdict(products),
      "OpenBLAS is faster at 1 of 2 products, at most by 100 % (forward, 1 rows, 1 outputs, 1 inputs).\n"
      "All together, --cpu-matmul packed, the default, is faster by 67 %.");
  EXPECT_EQ(
      verdict({products[0]}),
      "OpenBLAS is faster at 1 of 1 products, at most by 100 % (forward, 1 rows, 1 outputs, 1 inputs).\n"
      "All together, --cpu-matmul blas is faster by 100 %.");
  EXPECT_EQ(verdict({products[1]}),
            "OpenBLAS is faster at 0 of 1 products.\n"
            "All together, --cpu-matmul packed, the default, is faster by 300 %.");
}

TEST(CompareMatmul, IsNoStepToBeProfiled) {
  const ScratchDirectory directory;
  const ProgramResult result =
      run_program("stage0_bench", {"--compare-matmul", "8", "--profile", "p.json"}, directory.path());
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_EQ(result.errors, "stage0_bench: --profile: cannot be combined with --compare-matmul\n");
}

}  // namespace
}  // namespace stagegpt::test
