// Plans of matrix products: stage2_bench writes them, a training reads and keeps them. On the emulator, which
// has one algorithm for each product.
#include <filesystem>
#include <nlohmann/json.hpp>
#include <regex>

#include "common/base/error.h"
#include "tests/support/trained_runs.h"

namespace stagegpt::test {
namespace {

class Plans : public TrainedRuns {
 protected:
  ProgramResult run(const std::string& job, const Arguments& arguments) const {
    return run_program("stage2_" + job + "_emulated", arguments, directory_.path());
  }
  static void expect_refusal(const ProgramResult& result, const char* message) {
    expect_failure(result, 2, message);
  }
  ProgramResult tune(const std::string& file, const Arguments& more = {}) const {
    return run("bench",
               with_flags({"--n-layer", "1", "--n-embd", "32", "--n-head", "2", "--batch-size", "2",
                           "--seq-len", "8", "--steps", "1", "--warmup", "0", "--gpu-matmul-plans", file},
                          more) +
                   Arguments{"--gpu-matmul-tune"});
  }
  static Arguments one_step() {
    return small("run", with_flags(kFourSteps, {"--gpu-matmul-plans", "plans.json", "--stop-after", "1"}));
  }
  std::string text(const std::filesystem::path& file) const { return read_bytes(directory_.path() / file); }
  static std::string plans(const std::string& device) {
    return R"({"version": 1, "device": ")" + device + R"(", "library": "host BLAS", "plans": {"p": "a"}})";
  }
};

int count(const std::string& text, const std::string& part) {
  int n = 0;
  for (std::size_t i = text.find(part); i != std::string::npos; i = text.find(part, i + 1)) ++n;
  return n;
}

// The plans without those of square products, which bench takes for its bound: how many depends on their
// time.
nlohmann::json of_the_step(const std::string& file) {
  static const std::regex kSquare(R"(.* m (\d+) n \1 k \1,.*)");
  const nlohmann::json all = nlohmann::json::parse(file);
  nlohmann::json kept;
  for (const auto& [product, algorithm] : all["plans"].items())
    if (!std::regex_match(product, kSquare)) kept[product] = algorithm;
  return kept;
}

// A layer's four matrices and the head have a product each in the forward and two in the backward.
TEST_F(Plans, AreThoseOfAStepAndTimedOnce) {
  expect_done(tune("plans.json"));
  const std::string first = text("plans.json");
  const auto json = nlohmann::json::parse(first);
  EXPECT_EQ(json["device"], "emulated GPU");
  EXPECT_GE(of_the_step(first).size(), 3 * (4 + 1));
  // x (2·8,32) · wᵀ with w (3·32,32), and a bias.
  EXPECT_TRUE(
      json["plans"].contains("f32 to f32, m 16 n 96 k 32, ld 96 32 32T, epilogue none bias, "
                             "aligned 256 256 256 256 0"))
      << first;
  expect_done(tune("plans.json"));
  EXPECT_EQ(of_the_step(text("plans.json")), of_the_step(first));
  const ProgramResult more = expect_done(tune("plans.json", {"--batch-size", "3"}));
  const auto both = nlohmann::json::parse(text("plans.json"))["plans"];
  EXPECT_GT(of_the_step(text("plans.json")).size(), of_the_step(first).size());
  for (const auto& [product, algorithm] : json["plans"].items())
    EXPECT_TRUE(both.contains(product)) << product;
  expect_said(more, concat("plans: ", both.size(), " matrix products in plans.json"));
}

// Without the file, a run can go on only with its own copy.
TEST_F(Plans, AreKeptWithARun) {
  directory_.write("plans.json", plans("emulated GPU"));
  expect_done(run("train", one_step()));
  EXPECT_EQ(text("run/gemm_plans.json"), plans("emulated GPU"));
  std::filesystem::remove(directory_.path() / "plans.json");
  for (const char* steps : {"2", "3"}) {
    const ProgramResult result = expect_done(run("train", {"--resume", "run", "--stop-after", steps}));
    EXPECT_EQ(result.errors.find("gpu-matmul-plans"), std::string::npos) << result.errors;
    EXPECT_EQ(text("run/gemm_plans.json"), plans("emulated GPU"));
    EXPECT_EQ(nlohmann::json::parse(text("run/run.json"))["gpu_matmul_plans"], "plans.json");
  }
  const std::string others = plans("emulated GPU") + "\n";
  directory_.write("others.json", others);
  const ProgramResult result =
      expect_done(run("train", words("--resume run --stop-after 4 --gpu-matmul-plans others.json")));
  expect_said(result, R"(note: --gpu-matmul-plans changes from "plans.json" to "others.json")");
  EXPECT_EQ(text("run/gemm_plans.json"), others);
}

// Only the library's products have plans. The run's own are there again when these products are.
TEST_F(Plans, OfARunAreLeftOutWithAnotherProduct) {
  directory_.write("plans.json", plans("emulated GPU"));
  expect_done(run("train", one_step()));
  expect_done(run("train", words("--resume run --stop-after 2 --gpu-matmul tiled")));
  EXPECT_EQ(text("run/gemm_plans.json"), plans("emulated GPU"));
  expect_done(run("train", words("--resume run --stop-after 3")));
  expect_refusal(run("train", words("--resume run --gpu-matmul-plans plans.json")),
                 "--gpu-matmul-plans: needs --gpu-matmul cublaslt, got \"tiled\"");
  std::filesystem::remove(directory_.path() / "run/gemm_plans.json");
  expect_refusal(run("train", words("--resume run --gpu-matmul cublaslt")),
                 "--gpu-matmul-plans: cannot open \"run/gemm_plans.json\"");
}

TEST_F(Plans, OfAnotherDeviceAreKeptButNotUsed) {
  directory_.write("plans.json", plans("NVIDIA H100"));
  for (const Arguments& arguments : {one_step(), Arguments{"--resume", "run", "--stop-after", "2"}}) {
    const ProgramResult result = expect_done(run("train", arguments));
    EXPECT_EQ(count(result.errors, "note: --gpu-matmul-plans: "), 1) << result.errors;
    expect_said(result,
                "is for NVIDIA H100 with host BLAS, not for emulated GPU with host BLAS; it is "
                "not used");
    EXPECT_EQ(text("run/gemm_plans.json"), plans("NVIDIA H100"));
  }
  expect_refusal(tune("plans.json"), "is for NVIDIA H100 with host BLAS, not for emulated GPU");
  EXPECT_EQ(text("plans.json"), plans("NVIDIA H100"));
}

TEST_F(Plans, AreRefused) {
  directory_.write("plans.json", plans("emulated GPU"));
  directory_.write("wrong.json", R"({"version": 1})");
  const auto train = [&](const Arguments& flags) { return run("train", small("run", flags)); };
  expect_refusal(train({"--gpu-matmul-plans", "none.json"}), "--gpu-matmul-plans: cannot open");
  expect_refusal(train({"--gpu-matmul-plans", "wrong.json"}), "--gpu-matmul-plans: wrong.json: ");
  expect_refusal(train({"--gpu-matmul-plans", "plans.json", "--gpu-matmul", "tiled"}),
                 "--gpu-matmul-plans: needs --gpu-matmul cublaslt");
  expect_refusal(run("bench", {"--gpu-matmul-tune"}), "--gpu-matmul-tune: needs --gpu-matmul-plans");
  EXPECT_FALSE(std::filesystem::exists(directory_.path() / "run"));
}

}  // namespace
}  // namespace stagegpt::test
