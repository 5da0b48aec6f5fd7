#include <cmath>

#include "common/base/error.h"
#include "common/base/json.h"
#include "tools/compare/report_parts.h"

namespace stagegpt::compare {
namespace {

// Infinity and NaN become null, because JSON has no number for them.
Json number(double value) { return std::isfinite(value) ? Json(value) : Json(); }

Json number(const std::optional<double>& value) { return value ? number(*value) : Json(); }

Json spread_json(const Spread& spread) {
  return {{"median", spread.median}, {"min", spread.min}, {"max", spread.max}};
}

Json phases_json(const PhaseMs& ms) {
  Json json;
  for (std::size_t i = 0; i < kPhases.size(); ++i) json[kPhases[i]] = number(ms[i]);
  return json;
}

Json trial_json(const Trial& trial, std::int64_t warmup) {
  Json loss = Json::array(), grad_norm = Json::array(), seconds = Json::array();
  for (const StepRecord& step : trial.steps) {
    loss.push_back(number(step.loss));
    grad_norm.push_back(number(step.grad_norm));
    seconds.push_back(step.seconds);
  }
  const Timing timed = timing(trial, warmup);
  return {{"loss", std::move(loss)},
          {"grad_norm", std::move(grad_norm)},
          {"seconds", std::move(seconds)},
          {"tokens_per_second", number(timed.tokens_per_second)},
          {"step_ms", number(timed.step_ms)},
          {"phases_ms", phases_json(timed.ms)},
          {"communication_share", number(timed.communication_share)},
          {"peak_memory_bytes", trial.peak_memory_bytes},
          {"weights_xxh3_128", trial.weights_xxh3_128},
          {"busy", busy_json(trial.load)}};
}

Json spans_json(const std::vector<StepSpan>& spans) {
  Json json = Json::array();
  const auto rounded = [](double ms) { return std::round(1e4 * ms) / 1e4; };
  for (const StepSpan& span : spans)
    json.push_back(Json::array({span.name, rounded(span.begin), rounded(span.ms)}));
  return json;
}

Json rank_json(const RankTimeline& rank) {
  Json json = {
      {"phases_ms", phases_json(rank.phase_ms())}, {"waiting_ms", rank.waiting_ms()},
      {"messages_ms", rank.message_ms()},          {"messages_during_backward_ms", rank.overlap_ms()},
      {"phases", spans_json(rank.phases)},         {"host", spans_json(rank.host)},
      {"messages", spans_json(rank.messages)},     {"rows", Json::object()}};
  for (const RankTimeline::Row& row : rank.rows) {
    Json& spans = json["rows"][row.name];
    if (spans.is_null()) spans = Json::array();
    for (Json& span : spans_json(row.spans)) spans.push_back(std::move(span));
  }
  return json;
}

Json timeline_json(const std::optional<Recording>& recording) {
  if (!recording) return nullptr;
  const StepTimeline& timeline = recording->timeline;
  const bool there = recording->failure.empty();
  Json ranks = Json::array();
  for (const RankTimeline& rank : timeline.ranks) ranks.push_back(rank_json(rank));
  return {{"failure", or_null(recording->failure)},
          {"profile", or_null(recording->profile)},
          {"step", there ? Json(timeline.step) : Json()},
          {"steps_recorded", timeline.recorded},
          {"ms", there ? Json(timeline.ms) : Json()},
          {"clock_error_ms", timeline.clock_error_ms},
          {"ranks", std::move(ranks)}};
}

Json entry_json(const Entry& entry, std::int64_t warmup) {
  const Contestant& contestant = entry.contestant;
  Json trials = Json::array();
  for (const Trial& trial : entry.trials) trials.push_back(trial_json(trial, warmup));
  return {{"name", contestant.name()},
          {"label", contestant.label()},
          {"stage", contestant.program.stage},
          {"hardware", name_of(contestant.program.hardware)},
          {"other_build", contestant.program.other_build},
          {"ranks", contestant.ranks},
          {"tensor_parallel", contestant.tensor_ranks},
          {"pipeline_parallel", contestant.pipeline_stages},
          {"threads_per_rank", contestant.threads},
          {"batch_size", contestant.batch_size},
          {"reproducible", contestant.reproducible},
          {"timed", contestant.timed},
          {"machine", or_null(entry.machine)},
          {"command", entry.command},
          {"failure", or_null(entry.failure)},
          {"timeline", timeline_json(entry.recording)},
          {"trials", std::move(trials)}};
}

Json speed_json(const Comparison& comparison, const Speed& speed) {
  return {{"name", comparison.entries[speed.entry].contestant.name()},
          {"tokens_per_second", spread_json(speed.tokens_per_second)},
          {"step_ms", spread_json(speed.step_ms)},
          {"phases_ms", phases_json(speed.ms)},
          {"speed_up", number(speed.speed_up)},
          {"efficiency", number(speed.efficiency)},
          {"communication_share", speed.communication_share},
          {"peak_memory_bytes", speed.peak_memory_bytes}};
}

Json tensor_json(const FirstTensor& first) {
  if (first.text.empty()) return nullptr;
  return {{"step", first.step > 0 ? Json(first.step) : Json()},
          {"tensor", or_null(first.tensor)},
          {"difference", first.step > 0 ? number(first.error) : Json()},
          {"limit", first.step > 0 ? number(first.limit) : Json()},
          {"text", first.text}};
}

Json check_json(const Comparison& comparison, std::size_t index) {
  const Check& check = comparison.checks[index];
  Json json = {{"name", comparison.subject(check).contestant.name()},
               {"reference", comparison.reference(check).contestant.name()},
               {"kind", name_of(check.kind)},
               {"passed", check.passed()},
               {"steps", check.steps},
               {"loss_difference", number(check.loss_error)},
               {"grad_norm_difference", number(check.norm_error)},
               {"disagreement", nullptr}};
  if (!check.first) return json;
  const Disagreement& first = *check.first;
  json["disagreement"] = {{"step", first.step},
                          {"quantity", first.quantity},
                          {"expected", number(first.expected)},
                          {"actual", number(first.actual)},
                          {"difference", number(first.error)},
                          {"limit", first.limit},
                          {"trial", first.trial + 1},
                          {"first_divergent_tensor", tensor_json(comparison.divergences[index])},
                          {"text", describe(comparison, check)}};
  return json;
}

Json experiment_json(const Comparison& comparison) {
  const Experiment& experiment = comparison.experiment;
  return {{"mode", name_of(experiment.mode)},
          {"cores", experiment.cores},
          {"ranks", experiment.ranks},
          {"tensor_parallel", experiment.tensor_parallel},
          {"pipeline_parallel", experiment.pipeline_parallel},
          {"repeats", experiment.repeats},
          {"warmup", experiment.warmup},
          {"reproducible", experiment.reproducible},
          {"limits", {{"loss", experiment.limits.loss}, {"grad_norm", experiment.limits.grad_norm}}},
          {"model", comparison.model},
          {"data", comparison.data},
          {"settings", comparison.settings}};
}

}  // namespace

Json results_json(const Comparison& comparison) {
  const std::int64_t warmup = comparison.experiment.warmup;
  Json json = {{"format", kFormat},
               {"version", kVersion},
               {"passed", comparison.passed()},
               {"agree", comparison.all_agree()},
               {"interrupted", comparison.interrupted},
               {"verdict", verdict(comparison)},
               {"title", comparison.title},
               {"author", or_null(comparison.author)},
               {"command", comparison.command},
               {"seconds", comparison.seconds},
               {"busy", busy_json(busy_runs(comparison).busiest)},
               {"provenance", comparison.provenance},
               {"experiment", experiment_json(comparison)},
               {"contestants", Json::array()},
               {"left_out", Json::array()},
               {"agreement", Json::array()},
               {"speed", Json::array()}};
  for (const Entry& entry : comparison.entries) json["contestants"].push_back(entry_json(entry, warmup));
  for (const auto& [who, why] : comparison.left_out) json["left_out"].push_back({{"who", who}, {"why", why}});
  for (std::size_t i = 0; i < comparison.checks.size(); ++i) {
    json["agreement"].push_back(check_json(comparison, i));
  }
  for (const Speed& speed : speeds(comparison)) json["speed"].push_back(speed_json(comparison, speed));
  return json;
}

}  // namespace stagegpt::compare
