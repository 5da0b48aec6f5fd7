// What stage 2 counts and measures on the emulator: bytes, sectors, launches, memory; ladders of kernels.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "tests/stages/stage2_emulated.h"

namespace stagegpt::test {
namespace {

// Of ops whose kernels move each operand once, the distinct bytes are those of the formula: LayerNorm of
// N = 2·32 rows of C = 64 reads x and writes out, N·C floats each, w and bias, C floats each, and writes
// mean and rstd, N floats each.
TEST_F(Stage2Emulated, CountsTheBytesOfAStep) {
#ifdef STAGEGPT_PROFILE
  stage2("bench", words("--n-layer 1 --n-embd 64 --n-head 2 --block-size 32 --vocab-size 256 --batch-size 2 "
                        "--emulator-report report"));
  const auto report = nlohmann::json::parse(read_bytes(directory_.path() / "report" / "report.json"));
  const auto op = std::ranges::find_if(
      report["ops"], [](const auto& entry) { return entry["name"] == "layernorm_forward"; });
  ASSERT_NE(op, report["ops"].end());
  constexpr int N = 64, C = 64;
  EXPECT_EQ((*op)["counted_bytes"], 4.0 * (2 * N * C + 2 * C + 2 * N));
  EXPECT_EQ((*op)["budget_bytes"], (*op)["counted_bytes"]);
  EXPECT_TRUE(report["races"].empty()) << report["races"];
#else
  expect_failure(run("bench", {"--emulator-report", "report"}), 2, "--emulator-report: needs the program");
#endif
}

// The layernorms of the ladder read x and write out, N·C floats each, w and bias, C floats each, and write
// mean and rstd, N floats each. Version 1 has a thread for each row: a warp's lanes read 32 sectors where
// four would do.
TEST_F(Stage2Emulated, PrintsTheSumsOfKernels) {
#ifdef STAGEGPT_PROFILE
  const auto sums =
      nlohmann::json::parse(stage2("bench", {"--ladder", "layernorm", "--emulator-report", "-"}).output);
  constexpr int N = 64, C = 192;
  int launches = 0;
  std::int64_t sectors = 0;
  for (const auto& [name, kernel] : sums["kernels"].items()) {
    EXPECT_EQ(kernel["bytes_least"], 4 * (2 * N * C + 2 * C + 2 * N)) << name;
    EXPECT_EQ(kernel["launches"], 1) << name;
    ++launches;
    sectors += kernel["sectors"].get<std::int64_t>();
  }
  EXPECT_GE(launches, 4);
  EXPECT_EQ(sums["all"]["launches"], launches);
  EXPECT_EQ(sums["all"]["sectors"], sectors);
  EXPECT_EQ(sums["races"], 0);
  EXPECT_LT(sums["kernels"]["layernorm_v1_kernel"]["sector_efficiency"], 0.2);
  EXPECT_EQ(sums["kernels"]["layernorm_v2_kernel"]["sector_efficiency"], 1);
  EXPECT_FALSE(std::filesystem::exists(directory_.path() / "-"));
#else
  expect_failure(run("bench", {"--emulator-report", "-"}), 2, "--emulator-report: needs the program");
#endif
}

TEST_F(Stage2Emulated, CountsOneVersionOfALadder) {
  expect_failure(run("bench", {"--ladder-version", "v2"}), 2, "--ladder-version: needs --ladder");
  expect_failure(run("bench", {"--ladder", "layernorm", "--ladder-version", "v9"}), 2,
                 "--ladder-version: no version \"v9\" (there are: v1 thread per row, ");
#ifdef STAGEGPT_PROFILE
  const auto sums = nlohmann::json::parse(
      stage2("bench", words("--ladder layernorm --ladder-version v2 --emulator-report -")).output);
  EXPECT_EQ(sums["kernels"].size(), 1u);
  EXPECT_TRUE(sums["kernels"].contains("layernorm_v2_kernel"));
#endif
}

// By counters alone, the versions of a ladder rank as their authors say. Products: tiles in shared memory,
// then in registers, ask less of global memory. LayerNorm: a warp's lanes read neighbours from v2 on, v3
// needs no barrier, v4 needs a quarter of the requests for x, w, bias and out.
TEST_F(Stage2Emulated, CountersRankTheLadders) {
#ifdef STAGEGPT_PROFILE
  const auto report = [&](const char* ladder) {
    stage2("bench", {"--ladder", ladder, "--emulator-report", ladder});
    const auto kernels =
        nlohmann::json::parse(read_bytes(directory_.path() / ladder / "report.json"))["kernels"];
    nlohmann::json by_name;
    for (const auto& kernel : kernels) by_name[kernel["name"].get<std::string>()] = kernel;
    return by_name;
  };
  const auto global = [](const nlohmann::json& kernel, const char* count) {
    std::int64_t sum = 0;
    for (const auto& access : kernel["accesses"])
      sum += access["memory"] == "global" ? access[count].get<std::int64_t>() : 0;
    return sum;
  };
  const auto asked = [](const nlohmann::json& kernel) {
    std::int64_t sum = 0;
    for (const auto& array : kernel["arrays"]) {
      sum +=
          array["requested"]["read"].get<std::int64_t>() + array["requested"]["written"].get<std::int64_t>();
    }
    return sum;
  };
  const auto barriers = [](const nlohmann::json& kernel) {
    std::int64_t sum = 0;
    for (const auto& call : kernel["calls"])
      sum += call["call"] == "__syncthreads" ? call["calls"].get<std::int64_t>() : 0;
    return sum;
  };
  const auto matmul = report("matmul");
  EXPECT_GT(asked(matmul["matmul_naive_kernel"]), 8 * asked(matmul["matmul_tiled_kernel"]));
  EXPECT_GT(asked(matmul["matmul_tiled_kernel"]), asked(matmul["matmul_vectorised_kernel"]));
  const auto layernorm = report("layernorm");
  const auto &v1 = layernorm["layernorm_v1_kernel"], &v2 = layernorm["layernorm_v2_kernel"],
             &v3 = layernorm["layernorm_forward_kernel<float, 1>"],
             &v4 = layernorm["layernorm_forward_kernel<float, 4>"];
  EXPECT_GT(global(v1, "sectors"), 4 * global(v2, "sectors"));
  EXPECT_EQ(global(v2, "sectors"), global(v3, "sectors"));
  EXPECT_EQ(global(v3, "sectors"), global(v4, "sectors"));
  EXPECT_GT(barriers(v2), 0);
  EXPECT_EQ(barriers(v3) + barriers(v4), 0);
  EXPECT_GT(global(v3, "requests"), 2 * global(v4, "requests"));
#endif
}

// The page of one block needs nothing else, and the launch that it shows is the one that was asked for.
TEST_F(Stage2Emulated, StepsThroughOneBlock) {
#ifdef STAGEGPT_PROFILE
  const auto layernorm = [](const char* report, const char* block) {
    return Arguments{"--ladder", "layernorm", "--emulator-report", report, "--emulator-block", block};
  };
  stage2("bench", layernorm("report", "layernorm_v2_kernel:0:3"));
  const auto block = nlohmann::json::parse(read_bytes(directory_.path() / "report" / "block.json"));
  EXPECT_EQ(block["block_index"], nlohmann::json({3, 0, 0}));
  // Row 3 of C = 192 floats: the first warp reads 128 bytes of argument 4, x, from byte 3 · 192 · 4 on.
  const auto& first = block["events"][0];
  EXPECT_EQ(first["argument"], 4);
  EXPECT_EQ(first["first"], 3 * 192 * 4);
  EXPECT_EQ(first["stride"], 4);
  EXPECT_EQ(first["sectors"], 4);
  // Two sums of 256 numbers in shared memory, of log2(256) + 1 barriers each.
  EXPECT_EQ(
      std::ranges::count_if(block["events"], [](const auto& event) { return event["kind"] == "barrier"; }),
      2 * 9);
  const std::string page = read_bytes(directory_.path() / "report" / "block.html");
  EXPECT_EQ(page.find("src="), std::string::npos);
  EXPECT_EQ(page.find("href="), std::string::npos);
  EXPECT_NE(page.find("default-src 'none'"), std::string::npos);
  const std::string report = read_bytes(directory_.path() / "report" / "index.html");
  EXPECT_NE(report.find("block.html"), std::string::npos);
  EXPECT_NE(report.find("<th scope=rowgroup>"), std::string::npos);  // a file of the source
  EXPECT_EQ(report.find("<th>"), std::string::npos);

  expect_failure(run("bench", layernorm("other", "layernorm_v9_kernel")), 2,
                 "--emulator-block: no kernel \"layernorm_v9_kernel\" was launched");
  EXPECT_TRUE(std::filesystem::exists(directory_.path() / "other" / "report.txt"));
  expect_failure(run("bench", layernorm("other", "layernorm_v2_kernel:0:64")), 2,
                 "has 64 blocks (0 to 63), got block 64");
  expect_failure(run("bench", layernorm("-", "layernorm_v2_kernel")), 2,
                 "--emulator-block: needs --emulator-report DIR");
#endif
  expect_failure(run("bench", {"--emulator-block", "layernorm_v2_kernel"}), 2,
                 "--emulator-block: needs --emulator-report DIR");
}

// Without addr2line no source line is known, and the counts are there.
TEST_F(Stage2Emulated, CountsWithoutSourceLines) {
  if (!std::filesystem::exists(std::string(STAGEGPT_BIN_DIR) + "/stage2_train_profiled")) GTEST_SKIP();
  const Arguments counted = with_flags(kFourSteps, {"--stop-after", "1", "--emulator-report", "report"});
  expect_done(run("train", small("run", counted), {.environment = {{"PATH", directory_.path()}}}));
  const auto report = nlohmann::json::parse(read_bytes(directory_.path() / "report" / "report.json"));
  EXPECT_GT(report["kernels"].size(), 10u);
}

TEST_F(Stage2Emulated, RefusesWhatCannotBeCountedOrProfiled) {
  const auto refused = [&](const char* program, const Arguments& flags, const char* why) {
    const Arguments all = program == std::string("train") ? small("refused", flags) : flags;
    expect_failure(run(program, all), 2, why);
  };
  refused("train", {"--emulator-report", "r", "--profile", "p.json"},
          "--profile: cannot be combined with --emulator-report");
  refused("train", {"--emulator-report", "r", "--dry-run"},
          "--emulator-report: cannot be combined with --dry-run");
  refused("bench", {"--emulator-report", "r", "--profile", "p.json"},
          "--profile: cannot be combined with --emulator-report");
  refused("bench", {"--emulator-report", "r", "--budget"},
          "--emulator-report: cannot be combined with --budget");
  refused("bench", {"--emulator-report", "r", "--generate"},
          "--emulator-report: cannot be combined with --generate");
  refused("bench", {"--ladder", "layernorm", "--profile", "p.json"},
          "--profile: cannot be combined with --ladder");
  EXPECT_FALSE(std::filesystem::exists(directory_.path() / "p.json"));
}

// With materialised attention, most of this model's memory would be the scores of a sequence and their
// gradient, (2,NH,T,T). The other versions of attention do not store them.
TEST_F(Stage2Emulated, OnlyMaterialisedAttentionHoldsScores) {
  constexpr double kHeads = 8, kT = 128;
  const auto peak_bytes = [&](const char* attention) {
    const ProgramResult result =
        stage2("bench", words("--n-layer 1 --n-embd 32 --n-head 8 --block-size 128 --batch-size 1 --steps 1 "
                              "--warmup 0 --json") +
                            Arguments{"--gpu-attention", attention});
    return nlohmann::json::parse(result.output)["peak_memory_bytes"].get<double>();
  };
  const double scores = 2 * kHeads * kT * kT * sizeof(float), flash = peak_bytes("flash");
  EXPECT_GT(peak_bytes("materialised"), flash + scores / 2);
  EXPECT_LT(flash, scores);
}

// A token is one graph, its position and its id are one copy, and its logits another.
TEST_F(Stage2Emulated, ATokenIsOneGraphOfFiveKernelsALayer) {
  const Arguments flags =
      words("--generate --n-layer 12 --n-embd 32 --n-head 2 --steps 1 --json --precision bf16");
  for (const char* graph : {"auto", "off"}) {
    const auto work = nlohmann::json::parse(
        stage2("bench", with_flags(flags, {"--gpu-graph", graph})).output)["device_work"];
    const bool recorded = graph == std::string("auto");
    EXPECT_EQ(work["kernels"], 12 * 5 + 5)
        << "embedding, last layernorm, head, the logits in f32, and the largest one";
    EXPECT_EQ(work["launches"], work["kernels"]);
    EXPECT_EQ(work["graphs"], recorded ? 1 : 0);
    EXPECT_EQ(work["in_graphs"], recorded ? 12 * 5 + 4 : 0) << "all but the last";
    EXPECT_EQ(work["copies"], 2);
    EXPECT_EQ(work["allocations"], 0);
    EXPECT_EQ(work["waits"], 1);
  }
}

// The launches of a step depend on the number of layers, here that of GPT-2 124M, and on the size of the
// vocabulary: two of them sort tokens by each 8 bits of their ids.
TEST_F(Stage2Emulated, AStepHasFewLaunchesNoAllocationAndOneWait) {
  for (const std::string precision : {"f32", "bf16"}) {
    const ProgramResult result = stage2(
        "bench", {"--n-layer", "12", "--n-embd", "32", "--n-head", "2", "--batch-size", "2", "--seq-len", "8",
                  "--steps", "1", "--warmup", "2", "--json", "--precision", precision, "--gpu-graph", "off"});
    const auto work = nlohmann::json::parse(result.output)["device_work"];
    // A layer has 4 products and 4 kernels in the forward, 8 products and 12 kernels in the backward: in
    // each, one of them is for GELU, and 4 of the backward's are for gradients of biases. In bf16 these are
    // no kernels, but epilogues of products.
    const bool epilogues = precision == "bf16";
    EXPECT_EQ(work["products"], 12 * 12 + 3) << precision;
    EXPECT_GE(work["kernels"], 12 * (epilogues ? 9 : 15)) << precision;
    EXPECT_LE(work["launches"], epilogues ? 287 : 360) << precision;
    EXPECT_EQ(work["allocations"], 0) << precision;
    EXPECT_EQ(work["waits"], 1) << precision << ": for the results, at the end";
    EXPECT_EQ(work["graphs"], 0) << precision;
  }
}

// The host launches one graph for forward and backward, and one for the update.
TEST_F(Stage2Emulated, AStepInGraphsHasTwoLaunches) {
  const ProgramResult result = stage2(
      "bench",
      words("--n-layer 1 --n-embd 32 --n-head 2 --batch-size 2 --seq-len 8 --steps 1 --warmup 3 --json"));
  const auto work = nlohmann::json::parse(result.output)["device_work"];
  EXPECT_EQ(work["graphs"], 2);
  EXPECT_EQ(work["in_graphs"], work["launches"]);
  EXPECT_GT(work["launches"], 30);
  EXPECT_EQ(work["allocations"], 0);
  EXPECT_EQ(work["waits"], 1);
}

TEST_F(Stage2Emulated, BenchReports) {
  const ProgramResult result = stage2(
      "bench",
      words("--n-layer 1 --n-embd 32 --batch-size 2 --seq-len 16 --steps 2 --warmup 1 --threads 3 --json"));
  const auto json = nlohmann::json::parse(result.output);
  EXPECT_GT(json["tokens_per_second"], 0);
  EXPECT_EQ(json["threads"], 3);
  EXPECT_FALSE(json["kernels"].empty());
  const std::string table =
      stage2("bench", words("--n-layer 1 --n-embd 32 --seq-len 16 --steps 1 --warmup 0 --precision tf32"))
          .output;
  EXPECT_NE(table.find("emulated GPU on "), std::string::npos) << table;
  EXPECT_NE(table.find("; tf32, "), std::string::npos) << table;
}

TEST_F(Stage2Emulated, LaddersAreRightBeforeTheyAreTimed) {
  const ProgramResult result = stage2("bench", {"--ladder", "layernorm"});
  EXPECT_NE(result.output.find("v1"), std::string::npos) << result.output;
  EXPECT_NE(result.output.find("These are times of the emulator."), std::string::npos) << result.output;
  expect_failure(run("bench", {"--ladder", "layernorm", "--precision", "bf16"}), 2, "layernorm are in f32");
}

std::vector<double> numbers_in(const std::string& text) {
  std::vector<double> numbers;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (std::isdigit(static_cast<unsigned char>(text[i])) == 0) continue;
    std::size_t digits = 0;
    numbers.push_back(std::stod(text.substr(i), &digits));
    i += digits;
  }
  return numbers;
}

// Layernorm (N,C) moves at least 8 bytes per element (4 read, 4 written). A product (M,K) · (K,N) takes 2MKN
// operations. Attention (B,T,NH,HS) takes 4·HS for each of the T(T+1)/2 pairs of a query and a key.
TEST_F(Stage2Emulated, RatesOfLaddersAreThoseOfTheirSizes) {
  const auto work_of = [](const std::string& ladder, const std::vector<double>& size) {
    if (ladder == "layernorm") return 8 * size.at(0) * size.at(1);
    if (ladder == "matmul") return 2 * size.at(0) * size.at(1) * size.at(3);
    return 2 * size.at(0) * size.at(1) * (size.at(1) + 1) * size.at(2) * size.at(3);
  };
  for (const auto& [ladder, precision] :
       {std::pair<std::string, std::string>{"layernorm", "f32"}, {"matmul", "bf16"}, {"attention", "f32"}}) {
    const auto json = nlohmann::json::parse(
        stage2("bench", {"--ladder", ladder, "--precision", precision, "--json"}).output);
    const double work = work_of(ladder, numbers_in(json["ladder"]));
    EXPECT_EQ(json["on_gpu"], false);
    EXPECT_EQ(json["reference"], json["versions"].back()["name"]);
    EXPECT_NE(json["bound_name"], "");
    EXPECT_TRUE(json.contains("busy"));
    for (const auto& version : json["versions"]) {
      EXPECT_NEAR(version["rate"].get<double>() * 1e9 * version["us"].get<double>() / 1e6, work, 1e-9 * work)
          << version;
      EXPECT_NEAR(version["share"].get<double>() * json["bound"].get<double>(), version["rate"], 1e-9)
          << version;
    }
  }
}

}  // namespace
}  // namespace stagegpt::test
