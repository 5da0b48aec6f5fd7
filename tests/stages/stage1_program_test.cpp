// Stage 1's programs, compared with stage 0's.
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <sstream>

#include "common/logging/step_trace.h"
#include "tests/support/mpi_program.h"
#include "tests/support/patterns.h"
#include "tests/support/trained_runs.h"

namespace stagegpt::test {
namespace {

class Stage1 : public TrainedRuns {
 protected:
  ProgramResult stage1(int ranks, const std::string& job, const Arguments& arguments) const {
    return expect_done(run_mpi(ranks_of(ranks, "stage1_" + job) + arguments, directory_.path()));
  }
  // The line with which a program refuses its arguments.
  std::string refusal(int ranks, const std::string& program, const Arguments& arguments) const {
    const ProgramResult result =
        run_mpi(Arguments{"--quiet"} + ranks_of(ranks, program) + arguments, directory_.path());
    EXPECT_EQ(result.exit_code, 2);
    return result.errors.substr(result.errors.rfind(program + ": ") + program.size() + 2);
  }
};

TEST_F(Stage1, ReproducibleRunsEndInTheSameBits) {
  // Large enough for the matrix library to divide a product among threads.
  const Arguments wide = words("--n-embd 128 --n-layer 2 --block-size 64 --stop-after 4 --reproducible");
  stage0("train", with_flags(small("serial", wide), {"--threads", "3"}));
  for (const int ranks : {2, 8}) {  // each rank has several of the eight sub-batches, and one
    const std::string run = "ranks" + std::to_string(ranks);
    stage1(ranks, "train", small(run, wide));
    EXPECT_EQ(hash_after(4, run), hash_after(4, "serial")) << ranks << " ranks";
    EXPECT_EQ(metric(run, "loss"), metric("serial", "loss"));
    EXPECT_EQ(metric(run, "validation_loss"), metric("serial", "validation_loss"));
  }
}

TEST_F(Stage1, SubBatchesAllowMoreRanks) {
  const auto in = [](const char* sub_batches) {
    return Arguments{"--stop-after",  "2",        "--batch-size", "16", "--reproducible",
                     "--sub-batches", sub_batches};
  };
  stage0("train", small("serial", in("16")));
  stage0("train", small("fewer", in("2")));
  stage1(16, "train", small("sixteen", in("16")));
  EXPECT_EQ(hash_after(2, "sixteen"), hash_after(2, "serial"));
  EXPECT_NE(hash_after(2, "fewer"), hash_after(2, "serial"));
}

TEST_F(Stage1, AReproducibleRunGoesOnAtOtherNumbersOfRanks) {
  stage1(2, "train", small("uninterrupted", {"--reproducible"}));
  stage1(2, "train", small("moved", {"--reproducible", "--stop-after", "10"}));
  stage0("train", {"--resume", "moved", "--stop-after", "20"});
  stage1(4, "train", {"--resume", "moved", "--stop-after", "30"});
  EXPECT_EQ(hash_after(30, "moved"), hash_after(30, "uninterrupted"));
}

TEST_F(Stage1, ARunWithDividedMomentsGoesOnAtOtherNumbersOfRanks) {
  stage0("train", small("serial"));
  stage1(3, "train", small("moved", {"--comm", "zero1", "--stop-after", "10"}));
  stage1(2, "train", words("--resume moved --comm zero1-overlapped --stop-after 20"));
  stage1(4, "train", words("--resume moved --comm zero1 --stop-after 25"));
  stage0("train", {"--resume", "moved", "--stop-after", "30"});
  expect_same_curves("moved", "serial");
}

TEST_F(Stage1, EverySyncTrainsAsStage0) {
  const Arguments flags = {"--grad-accumulation", "2", "--steps", "10"};
  stage0("train", small("serial", flags));
  for (const char* comm : {"per-tensor", "flat", "bucketed", "overlapped", "zero1", "zero1-overlapped"}) {
    stage1(2, "train", small(comm, with_flags(flags, {"--comm", comm})));
    expect_same_curves(comm, "serial");
  }
}

// zero1 sends the weights in bf16.
TEST_F(Stage1, TrainsInBf16AsStage0) {
  const Arguments bf16 = {"--precision", "bf16", "--stop-after", "8"};
  stage0("train", small("serial", bf16));
  for (const char* comm : {"overlapped", "zero1"}) {
    stage1(2, "train", small(comm, with_flags(bf16, {"--comm", comm})));
    EXPECT_LE(largest_loss_difference(comm, "serial"), 0x1p-9) << comm;
  }
  stage1(2, "train", small("tensor", with_flags(bf16, {"--tensor-parallel", "2"})));
  EXPECT_LE(largest_loss_difference("tensor", "serial"), 0x1p-8);
  const Arguments reproducible = with_flags(bf16, {"--reproducible", "--stop-after", "4"});
  stage0("train", small("one", reproducible));
  stage1(2, "train", small("two", reproducible));
  EXPECT_EQ(hash_after(4, "two"), hash_after(4, "one"));
}

TEST_F(Stage1, ARunOfTensorRanksGoesOnAtOtherGridsAsStage0) {
  const Arguments two = {"--tensor-parallel", "2"};
  stage0("train", small("serial"));
  const ProgramResult begun = stage1(2, "train", small("moved", with_flags(two, {"--stop-after", "10"})));
  // The sample after the last step, by one rank with these weights.
  EXPECT_EQ(begun.output, stage0("train", {"--resume", "moved", "--stop-after", "10"}).output);
  stage1(4, "train", words("--resume moved --tensor-parallel 2 --stop-after 20"));
  stage1(2, "train", words("--resume moved --tensor-parallel 1 --stop-after 25"));
  stage0("train", {"--resume", "moved", "--stop-after", "30"});
  expect_same_curves("moved", "serial");
  EXPECT_EQ(metric("moved", "validation_loss").size(), metric("serial", "validation_loss").size());
}

TEST_F(Stage1, ARunOfStagesGoesOnAtOtherGridsAsStage0) {
  const Arguments layers = words("--n-layer 2 --batch-size 12 --grad-accumulation 2");
  stage0("train", small("serial", layers));
  const ProgramResult begun = stage1(
      2, "train", small("moved", with_flags(layers, {"--pipeline-parallel", "2", "--stop-after", "10"})));
  EXPECT_EQ(begun.errors.find("warning"), std::string::npos) << begun.errors;
  EXPECT_EQ(begun.output, stage0("train", {"--resume", "moved", "--stop-after", "10"}).output);
  stage1(4, "train", words("--resume moved --tensor-parallel 2 --stop-after 20"));  // in two stages
  const ProgramResult few = stage1(
      4, "train",
      words("--resume moved --tensor-parallel 1 --stop-after 25 --batch-size 24 --grad-accumulation 1"));
  expect_said(few,
              "warning: with 1 micro-step, 2 stages wait 50 % of the time; more --grad-accumulation "
              "lessens it\n");
  stage0("train", {"--resume", "moved", "--stop-after", "30"});
  expect_same_curves("moved", "serial");
  EXPECT_EQ(metric("moved", "validation_loss").size(), metric("serial", "validation_loss").size());
}

TEST_F(Stage1, RefusesBeforeARunWhatTensorRanksCannotDo) {
  const auto refusal = [&](int ranks, const Arguments& flags) {
    const std::string line = Stage1::refusal(ranks, "stage1_train", small("run", flags));
    EXPECT_FALSE(std::filesystem::exists(directory_.path() / "run"));
    return line;
  };
  const Arguments two = {"--tensor-parallel", "2"};
  EXPECT_EQ(refusal(3, two), "--tensor-parallel: 3 ranks cannot be divided into groups of 2\n");
  EXPECT_EQ(refusal(3, {"--tensor-parallel", "3"}),
            "--tensor-parallel: 2 heads cannot be divided among 3 ranks\n");
  EXPECT_EQ(refusal(2, with_flags(two, {"--freeze", "wte*"})),
            "--tensor-parallel: cannot be combined with --freeze\n");
  const Arguments stages = {"--pipeline-parallel", "2"};
  EXPECT_EQ(refusal(3, stages), "--pipeline-parallel: 3 ranks cannot be divided into 2 stages\n");
  EXPECT_EQ(refusal(2, with_flags(two, stages)),
            "--pipeline-parallel: 2 ranks cannot be divided into 2 stages of 2 tensor ranks\n");
  EXPECT_EQ(refusal(2, stages), "--pipeline-parallel: 1 layer cannot be divided among 2 stages\n");
  EXPECT_EQ(refusal(2, with_flags(stages, {"--reproducible", "--batch-size", "8"})),
            "--pipeline-parallel: cannot be combined with --reproducible\n");
}

TEST_F(Stage1, TakesTheSamplesOfAMixtureAsStage0) {
  directory_.write("other.txt", "a text that has fewer of the letters; " + std::string(2000, 'o'));
  const Arguments mixture = {"--data", "t.txt=0.6,other.txt=0.4", "--tokenizer", "bpe"};
  stage0("train", small("serial", mixture));
  stage1(2, "train", small("moved", with_flags(mixture, {"--stop-after", "3"})));
  stage1(3, "train", {"--resume", "moved"});
  expect_same_curves("moved", "serial");
}

TEST_F(Stage1, TrainsSomeParametersAsStage0) {
  const Arguments freeze = {"--freeze", "wte*,*.mlp.*", "--grad-clip", "0.1"};
  stage0("train", small("serial", freeze));
  for (const char* comm : {"overlapped", "zero1", "zero1-overlapped"}) {
    stage1(3, "train", small(comm, with_flags(freeze, {"--comm", comm})));
    expect_same_curves(comm, "serial");
  }
  const Arguments reproducible = with_flags(freeze, {"--reproducible", "--stop-after", "4"});
  stage0("train", small("one", reproducible));
  stage1(4, "train", small("four", reproducible));
  EXPECT_EQ(hash_after(4, "four"), hash_after(4, "one"));
}

TEST_F(Stage1, ComputesEveryTensorAsStage0) {
  const Arguments traced = words("--trace-steps 3 --stop-after 3 --grad-accumulation 2");
  stage0("train", small("serial", traced));
  for (const char* comm : {"overlapped", "zero1"}) {
    stage1(2, "train", small(comm, with_flags(traced, {"--comm", comm})));
    expect_same_traces(comm, "serial", 3);
  }
}

// 3 sequences of 15 tokens: two tensor ranks have 23 and 22 rows. With at least 256 tokens of 8 channels, wte
// is more than half of the last stage, so that one of its data ranks updates nothing.
TEST_F(Stage1, ComputesAndMeasuresEveryTensorOfAGridAsStage0) {
  const Arguments observed = words(
      "--trace-steps 3 --stop-after 3 --watch-layers 1 --n-layer 2 --batch-size 6 --grad-accumulation 2 "
      "--block-size 15 --n-embd 8 --eval-every 3 --tokenizer bpe");
  stage0("train", small("serial", observed));
  struct Case {
    int ranks;
    const char *tensor, *stages, *comm, *recompute;
  };
  const std::vector<Case> cases = {{8, "2", "2", "zero1", "none"},
                                   {2, "2", "1", "zero1-overlapped", "none"},
                                   {2, "1", "2", "flat", "block"},
                                   {4, "1", "2", "zero1", "none"}};
  for (const auto& [ranks, tensor, stages, comm, recompute] : cases) {
    const std::string run = concat("grid-", ranks, '-', tensor, '-', stages);
    stage1(ranks, "train",
           small(run, with_flags(observed, {"--tensor-parallel", tensor, "--pipeline-parallel", stages,
                                            "--comm", comm, "--recompute", recompute})));
    expect_same_traces(run, "serial", 3);
    expect_same_layers(run, "serial", 1e-3);
    expect_same_curves(run, "serial");
  }
}

TEST_F(Stage1, ReproducibleTracesAreTheSameFiles) {
  const Arguments traced = words("--trace-steps 2 --stop-after 2 --reproducible");
  const auto trace = [&](const std::string& run) {
    return read_bytes(directory_.path() / run / "traces" / trace_name(2));
  };
  stage0("train", small("serial", traced));
  for (const int ranks : {2, 4}) {
    const std::string run = "ranks" + std::to_string(ranks);
    stage1(ranks, "train", small(run, traced));
    EXPECT_TRUE(trace(run) == trace("serial")) << ranks << " ranks";
  }
}

TEST_F(Stage1, TracesChangeNoBit) {
  for (const Arguments& way : {Arguments{"--comm", "zero1"}, Arguments{"--reproducible"}}) {
    const std::string name = way.front().substr(2);
    stage1(2, "train", small(name, with_flags(way, {"--stop-after", "5"})));
    stage1(2, "train", small(name + "-traced", with_flags(way, {"--stop-after", "5", "--trace-steps", "4"})));
    EXPECT_EQ(hash_after(5, name + "-traced"), hash_after(5, name));
    EXPECT_EQ(metric(name + "-traced", "loss"), metric(name, "loss"));
  }
}

TEST_F(Stage1, WritesAsStage0) {
  stage0("train", small("run"));
  const Arguments text = words("--model run --prompt the --max-new-tokens 40 --temperature 0.9");
  for (const Arguments& texts : {Arguments{}, words("--num-samples 3 --stop a")}) {
    const std::string expected = stage0("generate", text + texts).output;
    for (const int ranks : {1, 2, 3}) EXPECT_EQ(stage1(ranks, "generate", text + texts).output, expected);
  }
}

TEST_F(Stage1, EvaluatesAsStage0) {
  stage0("train", small("run"));
  for (const char* stride : {"3", "16"}) {
    const Arguments text =
        words("--model run --data t.txt --seq-len 16 --batch-size 4 --val-fraction 0.2 --json") +
        Arguments{"--stride", stride};
    const std::string expected = stage0("evaluate", text).output;
    for (const int ranks : {2, 3}) EXPECT_EQ(stage1(ranks, "evaluate", text).output, expected);
  }
}

TEST_F(Stage1, EvaluatesATaskAsStage0) {
  stage0("train", small("run"));
  std::string lines;
  for (const char* ending : {"cat", "mat", "e cat sat", "t", "tt"})
    lines +=
        concat("{\"context\": \"the\", \"endings\": [\"", ending, "\", \"at\", \"hat\"], \"label\": 0}\n");
  directory_.write("task", lines);
  const Arguments task = words("--model run --task task --batch-size 2 --json");
  const std::string expected = stage0("evaluate", task).output;
  for (const int ranks : {2, 3}) EXPECT_EQ(stage1(ranks, "evaluate", task).output, expected);
}

// Rank 0 alone reads the prompts.
TEST_F(Stage1, AnswersPromptsAsStage0) {
  stage0("train", small("run"));
  const RunOptions prompts = {.input_from = directory_.write("prompts", "the\nthe cat\n")};
  const Arguments text = words("--model run --threads 1 --interactive --max-new-tokens 20");
  const std::string expected =
      expect_done(run_program("stage0_generate", text, directory_.path(), prompts)).output;
  EXPECT_GE(std::ranges::count(expected, '\n'), 2) << expected;
  const ProgramResult result = run_mpi(ranks_of(2, "stage1_generate") + text, directory_.path(), prompts);
  EXPECT_EQ(expect_done(result).output, expected);
}

TEST_F(Stage1, TakesAPromptThatIsNoUtf8) {
  stage0("train", small("run", words("--tokenizer bpe --vocab-size 257 --steps 1")));
  const Arguments text = {"--model", "run", "--prompt", "the \xff", "--max-new-tokens", "9"};
  EXPECT_EQ(stage1(2, "generate", text).output, stage0("generate", text).output);
}

// Three tensor ranks in each of two stages: logits, loss and gradients are PyTorch's, and steps follow the
// gradients.
TEST_F(Stage1, VerifiesAGrid) {
  const auto verify = [&](int ranks, const Arguments& grid) {
    const std::string tiny = STAGEGPT_SOURCE_DIR "/tests/golden/tiny";
    const Arguments arguments = Arguments{"--model", tiny + ".bin", "--state", tiny + "_debug_state.bin"} +
                                words("--steps 4 --learning-rate 0.01 --grad-clip 0.5 --threads 1 --json");
    return nlohmann::json::parse(stage1(ranks, "verify", arguments + grid).output);
  };
  const auto one = verify(1, {}), grid = verify(6, {"--tensor-parallel", "3", "--pipeline-parallel", "2"});
  EXPECT_TRUE(grid["passed"].get<bool>());
  ASSERT_EQ(grid["tensors"].size(), one["tensors"].size());
  double most = 0;
  for (std::size_t i = 0; i < grid["tensors"].size(); ++i) {
    EXPECT_EQ(grid["tensors"][i]["name"], one["tensors"][i]["name"]);
    most = std::max(most, grid["tensors"][i]["error"].get<double>());
  }
  EXPECT_GT(most, 0);
  EXPECT_LT(most, 1e-5);
  const std::vector<double> expected = one["losses"], losses = grid["losses"];
  ASSERT_EQ(losses.size(), 4u);
  for (std::size_t i = 0; i < 4; ++i) EXPECT_NEAR(losses[i], expected[i], 1e-5 * expected[i]) << i;
}

// The debug state contains wrong gradients.
TEST_F(Stage1, NamesARankThatIsOutOfTolerance) {
  const Arguments arguments = {"--model", STAGEGPT_SOURCE_DIR "/tests/golden/tiny.bin", "--state", "other"};
  std::string state = read_bytes(STAGEGPT_SOURCE_DIR "/tests/golden/tiny_debug_state.bin");
  for (std::size_t byte = state.size() - 4000; byte < state.size(); ++byte) state[byte] = 0;  // gradients
  directory_.write("other", state);
  expect_failure(run_mpi(ranks_of(2, "stage1_verify") + arguments, directory_.path()), 1,
                 "rank 0 is out of tolerance\n");
}

TEST_F(Stage1, MetricsTellOfRanks) {
  stage1(2, "train", small("run", {"--comm", "flat"}));
  std::istringstream lines(read_bytes(directory_.path() / "run" / "metrics.jsonl"));
  char host[256] = {};
  ASSERT_EQ(gethostname(host, sizeof host - 1), 0);
  int count = 0;
  for (std::string line; std::getline(lines, line); ++count) {
    const auto json = nlohmann::json::parse(line);
    const auto& ranks = json["ranks"];
    EXPECT_EQ(ranks["size"], 2);
    EXPECT_GT(ranks["quickest_ms"], 0);
    EXPECT_GE(ranks["slowest_ms"], ranks["quickest_ms"]);
    const int slowest = ranks["slowest_rank"];
    EXPECT_TRUE(slowest == 0 || slowest == 1) << slowest;
    EXPECT_EQ(ranks["slowest_host"], host);
    // Rank 0 writes the line, with its own times.
    double own = 0;
    for (const char* phase : {"data", "forward", "backward", "optimizer"})
      own += json["ms"][phase].get<double>();
    EXPECT_NEAR(ranks[slowest == 0 ? "slowest_ms" : "quickest_ms"], own, 1e-6);
    EXPECT_GT(ranks["reduction_ms"], 0);
    EXPECT_LE(ranks["reduction_ms"], json["ms"]["communication"]);  // flat computes nothing meanwhile
    EXPECT_GE(json["bytes_reduced"].get<double>(), 4 * 3776);       // the parameters, and padding
  }
  EXPECT_EQ(count, 30);
}

// Two tensor ranks in each of two stages: one step with the samples of one rank, and its figures.
TEST_F(Stage1, BenchOfAGridTakesTheStepOfOneRank) {
  const auto bench = [&](int ranks, const Arguments& grid) {
    const Arguments model = words(
        "--n-layer 2 --n-head 2 --n-embd 32 --block-size 16 --vocab-size 101 --batch-size 2 "
        "--grad-accumulation 2 --steps 1 --warmup 0 --threads 1 --comm flat --json");
    return nlohmann::json::parse(stage1(ranks, "bench", model + grid).output);
  };
  const auto one = bench(1, {}), grid = bench(4, {"--tensor-parallel", "2", "--pipeline-parallel", "2"});
  EXPECT_EQ(grid["ranks"], 4);
  EXPECT_EQ(grid["tensor_parallel"], 2);
  EXPECT_EQ(grid["pipeline_parallel"], 2);
  EXPECT_GT(grid["phases_ms"]["communication"], 0);
  EXPECT_EQ(grid["parameters"], one["parameters"]);
  for (const char* field : {"loss", "grad_norm"}) {
    const double expected = one["first_step"][field], got = grid["first_step"][field];
    EXPECT_NEAR(got, expected, 1e-5 * expected) << field;
  }
  // The work of a step is that of the whole model, which four ranks share.
  const auto flops = [](const nlohmann::json& json) {
    return json["gflops"].get<double>() * json["ms_per_step"]["median"].get<double>();
  };
  EXPECT_NEAR(flops(grid), flops(one), 1e-9 * flops(one));
  EXPECT_GT(grid["efficiency"], 0);
  const std::vector<double> peaks = grid["rank_peak_memory_bytes"];
  ASSERT_EQ(peaks.size(), 4u);
  EXPECT_EQ(grid["peak_memory_bytes"], std::ranges::max(peaks));
  EXPECT_LT(grid["peak_memory_bytes"], one["peak_memory_bytes"]);
  // A rank of the first stage reduces its parameters among data ranks (here one): its half of the tokens
  // (padded to 128), of a block's matrices and of two biases; and what tensor ranks share, which is reduced
  // among them too: positions, layernorms and two biases. Each parameter is padded to 64 elements.
  constexpr std::int64_t C = 32, T = 16, kShared = T * C + 6 * 64,
                         kDivided = 128 * C + 12 * C * C / 2 + 2 * 64;
  EXPECT_EQ(grid["bytes_reduced"], 4 * (kDivided + 2 * kShared));
}

TEST_F(Stage1, BenchRefusesWhatAGridCannotDo) {
  const auto refusal = [&](int ranks, const Arguments& flags) {
    return Stage1::refusal(ranks, "stage1_bench", Arguments{"--n-head", "2"} + flags);
  };
  EXPECT_EQ(refusal(3, {"--tensor-parallel", "3", "--batch-size", "1"}),
            "--tensor-parallel: 2 heads cannot be divided among 3 ranks\n");
  EXPECT_EQ(refusal(2, {"--tensor-parallel", "2", "--generate"}),
            "--tensor-parallel: cannot be combined with --generate, which does no training step\n");
  EXPECT_EQ(refusal(2, {"--tensor-parallel", "2", "--budget"}),
            "--tensor-parallel: cannot be combined with --budget, which counts the ops of one rank with the "
            "whole model\n");
  EXPECT_EQ(refusal(2, words("--pipeline-parallel 2 --reproducible --batch-size 8")),
            "--pipeline-parallel: cannot be combined with --reproducible\n");
}

// The memory of a rank depends on --comm: with zero1, each of two ranks has half of the moments.
TEST_F(Stage1, KeepsWhatItsWayOfCombiningGradientsNeeds) {
  const auto moments = [&](const char* comm) {
    const ProgramResult planned =
        stage1(2, "train", small("run", {"--comm", comm}) + Arguments{"--dry-run", "--json"});
    return nlohmann::json::parse(planned.output)["memory_bytes"]["moments"].get<double>();
  };
  EXPECT_NEAR(moments("zero1") / moments("overlapped"), 0.5, 0.05);
  EXPECT_NEAR(moments("zero1-overlapped") / moments("overlapped"), 0.5, 0.05);
}

TEST_F(Stage1, RanksMayHaveDifferentNumbersOfThreads) {
  const auto rank = [&](const char* threads) {
    return ranks_of(1, "stage1_train") + small("run", {"--stop-after", "1", "--threads", threads});
  };
  expect_done(run_mpi(rank("1") + Arguments{":"} + rank("2"), directory_.path()));
}

TEST_F(Stage1, WithNothingToWarnOfPrintsNoEmptyLine) {
  const Arguments plan = small("run", {"--threads", "1"}) + Arguments{"--dry-run"};
  const std::string errors = stage1(1, "train", plan).errors;
  EXPECT_FALSE(errors.starts_with('\n')) << errors;
}

TEST_F(Stage1, TellsOnWhatItRuns) {
  const auto machine = [&](const Arguments& more) {
    const Arguments flags = small("run", with_flags({"--threads", "1", "--cpu-matmul", "tiled"}, more));
    const std::string errors = stage1(2, "train", flags + Arguments{"--dry-run"}).errors;
    const std::size_t at = errors.find("machine: ");
    return errors.substr(at, errors.find('\n', at) - at);
  };
  const std::string expected =
      "machine: 2 ranks on 1 node, each on [0-9]+ of [0-9]+ cores?, which 2 ranks share; CPU, 1 thread, "
      "tiled "
      "matmul; gradients bucketed";
  const std::string found = machine({"--comm", "bucketed"});
  EXPECT_TRUE(matches(found, expected)) << found;
  // On a single core, which this process and its children are kept on meanwhile.
  cpu_set_t all, one;
  ASSERT_EQ(sched_getaffinity(0, sizeof all, &all), 0);
  CPU_ZERO(&one);
  for (int core = 0; CPU_COUNT(&one) == 0; ++core) {
    if (CPU_ISSET(core, &all)) CPU_SET(core, &one);
  }
  ASSERT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
  const std::string on_one_core = machine({});
  ASSERT_EQ(sched_setaffinity(0, sizeof all, &all), 0);
  EXPECT_TRUE(on_one_core.starts_with("machine: 2 ranks on 1 node, each on 1 of ")) << on_one_core;
  EXPECT_NE(on_one_core.find(", which 2 ranks share; "), std::string::npos) << on_one_core;
}

TEST_F(Stage1, OpenMpsVariableIsTheDefaultOfThreads) {
  const auto machine = [&](const Arguments& flags) {
    return run_mpi(ranks_of(2, "stage1_train") + flags + Arguments{"--dry-run"}, directory_.path(),
                   {.environment = {{"OMP_NUM_THREADS", "3"}}})
        .errors;
  };
  Arguments flags = small("run", {"--threads", "2"});
  EXPECT_NE(machine(flags).find("CPU, 2 threads, "), std::string::npos) << machine(flags);
  const auto threads = std::ranges::find(flags, "--threads");
  flags.erase(threads, threads + 2);
  EXPECT_NE(machine(flags).find("CPU, 3 threads, "), std::string::npos) << machine(flags);
}

TEST_F(Stage1, HelpAndVersionComeOnce) {
  for (const char* flag : {"--help", "--version"}) {
    const std::string one = stage1(1, "train", {flag}).output;
    EXPECT_NE(one.find("stage1_train"), std::string::npos) << one;
    EXPECT_EQ(stage1(2, "train", {flag}).output, one);
  }
}

// As with srun, if Slurm and MPI are built with different PMIx.
TEST_F(Stage1, ARankThatSlurmStartedAloneAmongOthersIsRefused) {
  const auto start = [&](std::vector<std::pair<std::string, std::string>> variables) {
    variables.emplace_back("ASAN_OPTIONS", "detect_leaks=0");  // of the MPI library, as in run_mpi
    return run_program("stage1_train", small("run", {"--stop-after", "1"}), directory_.path(),
                       {.environment = variables});
  };
  const ProgramResult first = start({{"SLURM_NTASKS", "4"}, {"SLURM_PROCID", "0"}});
  EXPECT_EQ(first.exit_code, 2);
  EXPECT_EQ(first.errors,
            "stage1_train: Slurm has 4 tasks (SLURM_NTASKS), but this rank is alone in its MPI job: start "
            "with mpirun, as "
            "scripts/slurm/*.sbatch do, or with srun --mpi=pmix if MPI and Slurm are built with the same "
            "PMIx; for a "
            "single rank use mpirun -np 1\n");
  const ProgramResult second = start({{"SLURM_NTASKS", "4"}, {"SLURM_PROCID", "1"}});
  EXPECT_EQ(second.exit_code, 2);
  EXPECT_EQ(second.errors, "") << "the line appears once";
  EXPECT_EQ(start({{"SLURM_NTASKS", "1"}}).exit_code, 0);
}

TEST_F(Stage1, AProgramOfOneProcessIsNotStartedSeveralTimes) {
  const ProgramResult result = run_mpi(ranks_of(2, "stage0_train") + small("run", {}), directory_.path());
  EXPECT_EQ(result.exit_code, 2);
  // mpirun may end the other process before it says so too.
  expect_said(result,
              "stage0_train: mpirun has started 2 processes, but this one knows no other: use stage 1");
  EXPECT_FALSE(std::filesystem::exists(directory_.path() / "run"));
}

TEST_F(Stage1, MpirunMayStartOneRankInAJobOfSeveralTasks) {
  expect_done(run_mpi(ranks_of(1, "stage1_train") + small("run", {"--stop-after", "1"}), directory_.path(),
                      {.environment = {{"SLURM_NTASKS", "4"}}}));
}

// As docs/mpi.md says.
TEST_F(Stage1, AnErrorIsTheOnlyLineOfAQuietMpirun) {
  const Arguments arguments = ranks_of(2, "stage1_train") + Arguments{"--steps", "0"};
  const ProgramResult result = run_mpi(Arguments{"--quiet"} + arguments, directory_.path());
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_EQ(result.errors, "stage1_train: --steps: expected a whole number from 1 to 1000000000, not '0'\n");
}

}  // namespace
}  // namespace stagegpt::test
