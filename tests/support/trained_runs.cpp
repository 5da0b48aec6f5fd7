#include "tests/support/trained_runs.h"

#include <nlohmann/json.hpp>
#include <sstream>

#include "common/logging/step_trace.h"
#include "tools/compare/divergence.h"

namespace stagegpt::test {

void TrainedRuns::SetUp() {
  std::string text;
  for (int i = 0; i < 200; ++i) text += "the cat sat on the mats.\n";
  directory_.write("t.txt", text);
}

Arguments TrainedRuns::small(const std::string& run, const Arguments& more) {
  return with_flags(Arguments{"--data", "t.txt", "--tokenizer", "char", "--n-layer", "1", "--n-head", "2",
                              "--n-embd", "16", "--block-size", "16", "--batch-size", "24", "--steps", "30",
                              "--eval-every", "10", "--threads", "1", "--dropout", "0.1", "--run-dir", run,
                              // The sample after the last step: longer than a block, but not 500 tokens.
                              "--max-new-tokens", "20"},
                    more);
}

ProgramResult TrainedRuns::stage0(const std::string& job, const Arguments& arguments) const {
  return expect_done(run_program("stage0_" + job, arguments, directory_.path()));
}

ProgramResult TrainedRuns::expect_done(ProgramResult result) {
  EXPECT_EQ(result.exit_code, 0) << result.errors;
  return result;
}

std::string TrainedRuns::hash_after(int steps, const std::string& run) const {
  char name[32];
  std::snprintf(name, sizeof name, "step_%08d", steps);
  const auto path = directory_.path() / run / "checkpoints" / name / "manifest.json";
  return nlohmann::json::parse(read_bytes(path))["xxh3_128"];
}

std::vector<double> TrainedRuns::metric(const std::string& run, const char* field) const {
  std::istringstream lines(read_bytes(directory_.path() / run / "metrics.jsonl"));
  std::vector<double> values;
  for (std::string line; std::getline(lines, line);) {
    const auto json = nlohmann::json::parse(line);
    if (json.contains(field)) values.push_back(json[field]);
  }
  return values;
}

void TrainedRuns::expect_same_curves(const std::string& run, const std::string& other) const {
  for (const char* field : {"loss", "grad_norm", "validation_loss"}) {
    const std::vector<double> a = metric(run, field), b = metric(other, field);
    ASSERT_EQ(a.size(), b.size()) << field;
    ASSERT_FALSE(a.empty()) << field;
    for (std::size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(a[i] / b[i], 1, 1e-4) << field << ' ' << i;
  }
}

void TrainedRuns::expect_same_traces(const std::string& run, const std::string& reference,
                                     std::size_t steps) const {
  const auto traces = directory_.path() / run / "traces", expected = directory_.path() / reference / "traces";
  EXPECT_EQ(traces_in(traces).size(), steps);
  EXPECT_EQ(traces_in(expected).size(), steps);
  const auto found = first_divergence(expected, traces);
  EXPECT_FALSE(found) << run << ": " << found->text();
}

}  // namespace stagegpt::test
