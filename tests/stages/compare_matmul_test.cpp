// The packed GEMM beside OpenBLAS: which products are timed, and what the numbers say.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "common/base/error.h"
#include "tests/support/program.h"

namespace stagegpt::test {
namespace {

std::string compare_matmul(const std::vector<std::string>& more) {
  const ScratchDirectory directory;
  return expect_done(run_program("compare_matmul",
                                 std::vector<std::string>{"--channels", "8", "--threads", "1"} + more,
                                 directory.path()))
      .output;
}

TEST(CompareMatmul, TimesTheProductsOfABlock) {
  const auto json = nlohmann::json::parse(compare_matmul({"--json"}));
  std::set<std::vector<int>> layers;
  std::set<std::string> products;
  int openblas_wins = 0;
  double packed = 0, openblas = 0, most = 0;  // time of all products, in nanoseconds; the largest advantage
  for (const auto& p : json["products"]) {
    layers.insert(std::vector<int>{p["rows"], p["outputs"], p["inputs"]});
    products.insert(p["product"]);
    const double of_packed = p["packed_gflops"], of_openblas = p["openblas_gflops"];
    for (const double rate : {of_packed, of_openblas}) {
      EXPECT_GT(rate, 0);
      EXPECT_LT(rate, 1e4) << "of one thread";
    }
    const double flops = 2.0 * p["rows"].get<int>() * p["outputs"].get<int>() * p["inputs"].get<int>();
    packed += flops / of_packed;
    openblas += flops / of_openblas;
    openblas_wins += of_openblas > of_packed;
    most = std::max(most, of_openblas / of_packed);
  }
  EXPECT_EQ(json["products"].size(), 36U);
  EXPECT_EQ(products, (std::set<std::string>{"forward", "dX", "dW"}));
  std::set<std::vector<int>> expected;
  for (const int N : {64, 256, 1024}) expected.insert({{N, 24, 8}, {N, 8, 8}, {N, 32, 8}, {N, 8, 32}});
  EXPECT_EQ(layers, expected);
  EXPECT_NE(json["machine"].get<std::string>().find("CPU, 1 thread, packed ("), std::string::npos);

  const std::string verdict = json["verdict"];
  const auto percent = [](double ratio) { return concat(std::lround(100 * (ratio - 1)), " %"); };
  EXPECT_EQ(verdict.find(concat("OpenBLAS is faster at ", openblas_wins, " of 36 products")), 0U) << verdict;
  const std::string by = concat(", at most by ", percent(most));
  EXPECT_EQ(verdict.find(by) != std::string::npos, openblas_wins > 0) << verdict;
  const std::string faster =
      packed <= openblas
          ? concat("--cpu-matmul packed, the default, is faster by ", percent(openblas / packed))
          : concat("--cpu-matmul blas is faster by ", percent(packed / openblas));
  EXPECT_NE(verdict.find("\nAll together, " + faster), std::string::npos) << verdict;
}

TEST(CompareMatmul, ExplainsItsFlags) {
  const std::string help = compare_matmul({"--help"});
  for (const char* flag : {"--channels", "--threads", "--json"})
    EXPECT_NE(help.find(flag), std::string::npos) << help;
}

TEST(CompareMatmul, PrintsATable) {
  const std::string table = compare_matmul({});
  EXPECT_NE(table.find("\nforward      64       24        8 "), std::string::npos) << table;
  EXPECT_NE(table.find("of 36 products"), std::string::npos) << table;
}

}  // namespace
}  // namespace stagegpt::test
