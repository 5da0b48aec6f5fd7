#include "tools/inspect/layer_history.h"

#include <cmath>
#include <vector>

#include "common/base/json.h"
#include "common/io/file.h"
#include "common/measure/step_times.h"

namespace stagegpt {
namespace {

namespace fs = std::filesystem;

constexpr const char* kFields[] = {"grad_norm", "weight_norm",     "update_ratio", "mean",      "rms",
                                   "largest",   "attention_added", "mlp_added",    "dead_units"};

// The lines that have layers.
std::vector<nlohmann::json> measured_steps(const fs::path& metrics) {
  std::vector<nlohmann::json> steps;
  const MappedFile file(metrics, "metrics.jsonl");
  std::string_view text = file.text();
  for (std::size_t number = 1, end = text.find('\n'); end != text.npos; end = text.find('\n'), ++number) {
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(end + 1);
    if (line.find("\"layers\"") == line.npos) continue;
    steps.push_back(naming(concat(metrics.string(), ", line ", number), [&] { return parse_json(line); }));
  }
  return steps;
}

std::vector<nlohmann::json> thinned(std::vector<nlohmann::json> steps) {
  constexpr std::size_t kMost = 120;
  if (steps.size() <= kMost) return steps;
  std::vector<nlohmann::json> kept;
  for (std::size_t i = 0; i < kMost; ++i) kept.push_back(steps[i * (steps.size() - 1) / (kMost - 1)]);
  return kept;
}

// Five significant digits.
Json rounded(const nlohmann::json& value) {
  if (!value.is_number()) return {};
  const auto x = value.get<double>();
  if (x == 0) return 0;
  const double unit = std::pow(10.0, 4 - std::floor(std::log10(std::abs(x))));
  return std::round(x * unit) / unit;
}

// The median of the last values of the blocks; null where fewer than three have one: a block is not its own
// reference.
Json median_of_blocks(const Json& names, const Json& of_layers) {
  Samples values;
  for (std::size_t i = 0; i < names.size(); ++i) {
    const Json& last = of_layers[i].back();
    if (names[i].get<std::string>().starts_with("h.") && last.is_number()) values.add(last.get<double>());
  }
  if (values.size() < 3) return {};
  return values.median();
}

}  // namespace

std::optional<fs::path> metrics_of(const fs::path& model) {
  std::error_code ignored;
  if (fs::exists(model / "metrics.jsonl", ignored)) return model / "metrics.jsonl";
  const fs::path checkpoint = fs::weakly_canonical(model, ignored);  // RUN/latest is a link
  const fs::path metrics = checkpoint.parent_path().parent_path() / "metrics.jsonl";
  if (checkpoint.parent_path().filename() != "checkpoints" || !fs::exists(metrics, ignored)) return {};
  return metrics;
}

Json layer_history(const fs::path& metrics) {
  const std::vector<nlohmann::json> steps = thinned(measured_steps(metrics));
  if (steps.empty()) return {};
  return naming(metrics.string(), [&] {
    return read_json([&] {
      Json history = {{"steps", Json::array()}, {"layers", Json::array()}};
      for (const nlohmann::json& step : steps)
        history["steps"].push_back(step.at("step").get<std::int64_t>());
      const nlohmann::json& layers = steps.back().at("layers");
      for (const nlohmann::json& layer : layers)
        history["layers"].push_back(layer.at("name").get<std::string>());
      for (const char* field : kFields) {
        Json of_layers = Json::array();
        for (std::size_t i = 0; i < layers.size(); ++i) {
          Json values = Json::array();
          for (const nlohmann::json& step : steps)
            values.push_back(rounded(step.at("layers").at(i).value(field, nlohmann::json())));
          of_layers.push_back(std::move(values));
        }
        history["medians"][field] = median_of_blocks(history["layers"], of_layers);
        history[field] = std::move(of_layers);
      }
      return history;
    });
  });
}

}  // namespace stagegpt
