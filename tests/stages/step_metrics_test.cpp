// From a step's measurements to the line of metrics.jsonl and the curves of TensorBoard.
#include "common/train/step_metrics.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "common/base/error.h"
#include "common/base/json.h"

namespace stagegpt::test {
namespace {

// A step of 3.875 s. All numbers are different, so that a mix-up is detected.
StepMetrics measured() {
  StepMetrics metrics;
  metrics.report = {
      .step = 6,
      .loss = 1.5,
      .grad_norm = 0.75,
      .learning_rate = 0.001,
      .seconds = {.data = 0.25, .forward = 0.5, .backward = 1, .communication = 2, .optimizer = 0.125},
      .communication = {.bytes_reduced = 4096, .seconds_under_way = 1.75},
      .least_rank_seconds = 1.25,
      .most_rank_seconds = 1.875,
      .slowest_rank = 2};
  metrics.slowest_host = "node07";
  metrics.tokens_seen = 434;
  metrics.step_tokens = 62;
  metrics.step_flops = 15.5e9;
  metrics.peak_flops_per_second = 32e9;
  metrics.peak_memory_bytes = 5'000'000;
  return metrics;
}

// The fields that every line has.
Json fields_of_a_line() {
  return {{"step", 7},
          {"tokens", 434},
          {"loss", 1.5},
          {"perplexity", std::exp(1.5)},
          {"grad_norm", 0.75},
          {"learning_rate", 0.001},
          {"tokens_per_second", 16.0},
          {"model_flops_per_second", 4e9},
          {"mfu", 0.125},
          {"ms",
           {{"data", 250.0},
            {"forward", 500.0},
            {"backward", 1000.0},
            {"communication", 2000.0},
            {"optimizer", 125.0}}},
          {"seconds", 3.875},
          {"bytes_reduced", 4096},
          {"peak_memory_bytes", 5'000'000}};
}

std::vector<std::string> texts(const std::vector<Scalar>& scalars) {
  std::vector<std::string> texts;
  for (const Scalar& scalar : scalars) texts.push_back(concat(scalar.tag, ' ', scalar.value));
  return texts;
}

const std::vector<std::string> kCurves = {"train/loss 1.5",
                                          "train/grad_norm 0.75",
                                          "train/learning_rate 0.001",
                                          "speed/tokens_per_second 16",
                                          "speed/model_gflops_per_second 4",
                                          "speed/mfu 0.125",
                                          "memory/peak_megabytes 5",
                                          "milliseconds/data 250",
                                          "milliseconds/forward 500",
                                          "milliseconds/backward 1000",
                                          "milliseconds/communication 2000",
                                          "milliseconds/optimizer 125"};

template <class T>
std::vector<T> operator+(std::vector<T> all, const std::vector<T>& more) {
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

TEST(StepMetrics, OfOneRankAreThoseOfTheStepAlone) {
  EXPECT_EQ(to_json(measured()).dump(1), fields_of_a_line().dump(1));
  EXPECT_EQ(texts(to_scalars(measured())), kCurves);
}

TEST(StepMetrics, OfSeveralRanksTellHowTheyDiffer) {
  StepMetrics metrics = measured();
  metrics.ranks = 2;
  Json expected = fields_of_a_line();
  expected["ranks"] = {
      {"size", 2},         {"quickest_ms", 1250.0},   {"slowest_ms", 1875.0}, {"reduction_ms", 1750.0},
      {"slowest_rank", 2}, {"slowest_host", "node07"}};
  EXPECT_EQ(to_json(metrics).dump(1), expected.dump(1));
  const std::vector<std::string> curves = {"ranks/quickest_ms 1250", "ranks/slowest_ms 1875",
                                           "ranks/reduction_ms 1750"};
  EXPECT_EQ(texts(to_scalars(metrics)), kCurves + curves);
}

TEST(StepMetrics, OfAStepThatWasSkippedSaySo) {
  StepMetrics metrics = measured();
  metrics.report.grad_norm = std::numeric_limits<double>::infinity();
  const Json line = to_json(metrics);
  EXPECT_EQ(line.dump().find("\"grad_norm\":null"), line.dump().find("\"grad_norm\""));
  EXPECT_EQ(line.at("skipped"), true);
  EXPECT_EQ(line.size(), fields_of_a_line().size() + 1);
}

TEST(StepMetrics, HaveAValidationWhereThereWasOne) {
  const ValidationResult validation{
      .loss = 2, .accuracy = 0.375, .bits_per_byte = 1.25, .tokens = 1024, .seconds = 0.5};
  StepMetrics metrics = measured();
  metrics.validation = validation;
  Json expected = fields_of_a_line();
  expected["validation_loss"] = 2.0;
  expected["validation_perplexity"] = std::exp(2.0);
  expected["validation_accuracy"] = 0.375;
  expected["validation_tokens"] = 1024;
  expected["validation_seconds"] = 0.5;
  expected["bits_per_byte"] = 1.25;
  EXPECT_EQ(to_json(metrics).dump(1), expected.dump(1));
  const std::vector<std::string> curves = {"validation/loss 2",
                                           concat("validation/perplexity ", std::exp(2.0)),
                                           "validation/accuracy 0.375", "validation/bits_per_byte 1.25"};
  EXPECT_EQ(texts(to_scalars(metrics)), kCurves + curves);

  // Without bits_per_byte, as for unknown words.
  metrics.validation->bits_per_byte.reset();
  expected.erase("bits_per_byte");
  EXPECT_EQ(to_json(metrics).dump(1), expected.dump(1));
  EXPECT_EQ(to_scalars(metrics).size(), kCurves.size() + 3);
}

}  // namespace
}  // namespace stagegpt::test
