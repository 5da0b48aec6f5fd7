#include "common/train/step_metrics.h"

#include <cmath>

#include "common/base/json.h"

namespace stagegpt {
namespace {

constexpr double kMilliseconds = 1e3;

std::vector<Scalar> milliseconds(const PhaseSeconds& seconds) {
  std::vector<Scalar> all;
  for (const auto& [name, phase] : kStepPhases) all.push_back({name, kMilliseconds * seconds.*phase});
  return all;
}

// Times of a run with several ranks.
std::vector<Scalar> of_ranks(const StepReport& report) {
  return {{"quickest_ms", kMilliseconds * report.least_rank_seconds},
          {"slowest_ms", kMilliseconds * report.most_rank_seconds},
          {"reduction_ms", kMilliseconds * report.communication.seconds_under_way}};
}

Json to_json(const LayerHealth& layer) {
  Json json = {{"name", layer.name},
               {"grad_norm", layer.grad_norm},
               {"weight_norm", layer.weight_norm},
               {"update_ratio", layer.update_ratio}};
  if (const auto& activations = layer.activations) {
    json["mean"] = activations->mean;
    json["rms"] = activations->rms;
    json["largest"] = activations->largest;
    json["attention_added"] = activations->attention_added;
    json["mlp_added"] = activations->mlp_added;
    json["dead_units"] = activations->dead_units;
  }
  return json;
}

double tokens_per_second(const StepMetrics& metrics) {
  return static_cast<double>(metrics.step_tokens) / metrics.report.seconds.total();
}

double flops_per_second(const StepMetrics& metrics) {
  return metrics.step_flops / metrics.report.seconds.total();
}

double mfu(const StepMetrics& metrics) { return flops_per_second(metrics) / metrics.peak_flops_per_second; }

}  // namespace

Json to_json(const ChoiceResult& task) {
  return {{"acc", task.acc}, {"acc_norm", task.acc_norm}, {"questions", task.questions}};
}

Json to_json(const StepMetrics& metrics) {
  const StepReport& report = metrics.report;
  Json ms;
  for (const Scalar& phase : milliseconds(report.seconds)) ms[phase.tag] = phase.value;
  Json line = {{"step", report.step + 1},
               {"tokens", metrics.tokens_seen},
               {"loss", report.loss},
               {"perplexity", std::exp(report.loss)},
               {"grad_norm", report.grad_norm},
               {"learning_rate", report.learning_rate},
               {"tokens_per_second", tokens_per_second(metrics)},
               {"model_flops_per_second", flops_per_second(metrics)},
               {"mfu", mfu(metrics)},
               {"ms", ms},
               {"seconds", report.seconds.total()},
               {"bytes_reduced", report.communication.bytes_reduced},
               {"peak_memory_bytes", metrics.peak_memory_bytes}};
  if (metrics.ranks > 1) {
    Json& ranks = line["ranks"] = {{"size", metrics.ranks}};
    for (const Scalar& scalar : of_ranks(report)) ranks[scalar.tag] = scalar.value;
    ranks["slowest_rank"] = report.slowest_rank;
    ranks["slowest_host"] = metrics.slowest_host;
  }
  if (report.skipped()) line["skipped"] = true;
  if (const auto& validation = metrics.validation) {
    line["validation_loss"] = validation->loss;
    line["validation_perplexity"] = std::exp(validation->loss);
    line["validation_accuracy"] = validation->accuracy;
    line["validation_tokens"] = validation->tokens;
    line["validation_seconds"] = validation->seconds;
    if (validation->bits_per_byte) line["bits_per_byte"] = *validation->bits_per_byte;
  }
  if (metrics.task) line["task"] = to_json(*metrics.task);
  for (const LayerHealth& layer : metrics.layers) line["layers"].push_back(to_json(layer));
  return line;
}

std::vector<Scalar> to_scalars(const StepMetrics& metrics) {
  const StepReport& report = metrics.report;
  std::vector<Scalar> scalars = {
      {"train/loss", report.loss},
      {"train/grad_norm", report.grad_norm},
      {"train/learning_rate", report.learning_rate},
      {"speed/tokens_per_second", tokens_per_second(metrics)},
      {"speed/model_gflops_per_second", flops_per_second(metrics) / 1e9},
      {"speed/mfu", mfu(metrics)},
      {"memory/peak_megabytes", static_cast<double>(metrics.peak_memory_bytes) / 1e6}};
  for (const Scalar& phase : milliseconds(report.seconds)) {
    scalars.push_back({"milliseconds/" + phase.tag, phase.value});
  }
  if (metrics.ranks > 1) {
    for (const Scalar& scalar : of_ranks(report)) scalars.push_back({"ranks/" + scalar.tag, scalar.value});
  }
  if (metrics.validation) {
    const ValidationResult& validation = *metrics.validation;
    scalars.push_back({"validation/loss", validation.loss});
    scalars.push_back({"validation/perplexity", std::exp(validation.loss)});
    scalars.push_back({"validation/accuracy", validation.accuracy});
    if (validation.bits_per_byte) scalars.push_back({"validation/bits_per_byte", *validation.bits_per_byte});
  }
  if (metrics.task) {
    scalars.push_back({"task/acc", metrics.task->acc});
    scalars.push_back({"task/acc_norm", metrics.task->acc_norm});
  }
  return scalars;
}

}  // namespace stagegpt
