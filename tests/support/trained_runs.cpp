#include "tests/support/trained_runs.h"

#include <algorithm>
#include <cmath>
#include <map>
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

void TrainedRuns::expect_told_once(const ProgramResult& result, int exit_code, const std::string& text) {
  expect_failure(result, exit_code, text);
  EXPECT_EQ(result.errors.find(text), result.errors.rfind(text)) << result.errors;
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

double TrainedRuns::largest_loss_difference(const std::string& run, const std::string& other) const {
  const std::vector<double> a = metric(run, "loss"), b = metric(other, "loss");
  EXPECT_EQ(a.size(), b.size());
  EXPECT_FALSE(a.empty());
  double largest = 0;
  for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    const double difference = std::abs(a[i] / b[i] - 1);
    EXPECT_TRUE(std::isfinite(difference)) << run << ", line " << i;
    largest = std::max(largest, difference);
  }
  return largest;
}

void TrainedRuns::expect_same_curves(const std::string& run, const std::string& other) const {
  for (const char* field : {"loss", "grad_norm", "validation_loss"}) {
    const std::vector<double> a = metric(run, field), b = metric(other, field);
    ASSERT_EQ(a.size(), b.size()) << field;
    ASSERT_FALSE(a.empty()) << field;
    for (std::size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(a[i] / b[i], 1, 1e-4) << field << ' ' << i;
  }
}

namespace {

// The values of "layers" in each line that has it: "h.0 rms" and so on.
std::vector<std::map<std::string, double>> watched(const std::filesystem::path& metrics) {
  std::vector<std::map<std::string, double>> steps;
  std::istringstream lines(read_bytes(metrics));
  for (std::string line; std::getline(lines, line);) {
    const auto json = nlohmann::json::parse(line);
    if (!json.contains("layers")) continue;
    steps.emplace_back();
    for (const auto& layer : json["layers"]) {
      for (const auto& [field, value] : layer.items()) {
        if (value.is_number()) steps.back()[layer["name"].get<std::string>() + ' ' + field] = value;
      }
    }
  }
  return steps;
}

}  // namespace

void TrainedRuns::expect_same_layers(const std::string& run, const std::string& other,
                                     double tolerance) const {
  const auto found = watched(directory_.path() / run / "metrics.jsonl"),
             expected = watched(directory_.path() / other / "metrics.jsonl");
  ASSERT_EQ(found.size(), expected.size());
  ASSERT_FALSE(found.empty());
  for (std::size_t step = 0; step < found.size(); ++step) {
    ASSERT_EQ(found[step].size(), expected[step].size());
    for (const auto& [name, value] : expected[step]) {
      // A mean is small against the elements that it is of, so its error is measured by their size.
      const bool is_mean = name.ends_with(" mean");
      const double size = is_mean ? expected[step].at(name.substr(0, name.size() - 4) + "rms") : value;
      EXPECT_NEAR(found[step].at(name), value, tolerance * std::abs(size))
          << run << ", " << name << ", watched step " << step;
    }
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
