#include "common/app/model_flags.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "common/app/flag_values.h"
#include "common/checkpoint/model_file.h"
#include "common/io/file.h"
#include "common/model/presets.h"

namespace stagegpt {
namespace {

// The peak for weights that are trained already: small, lest they lose what they have learnt.
constexpr double kFineTuningRate = 5e-5;

const Preset* preset_named(std::string_view name) {
  const auto preset = std::ranges::find(presets(), name, &Preset::name);
  return preset == presets().end() ? nullptr : &*preset;
}

std::vector<std::string> preset_names() {
  std::vector<std::string> names;
  for (const Preset& preset : presets()) names.emplace_back(preset.name);
  return names;
}

// Sets `value` to what was given, if anything, and then `given` to `value`. Existing weights keep their
// shape.
template <class T, class Given>
void replace(T& value, std::optional<Given>& given, const char* flag, bool weights_are_there) {
  if (given && weights_are_there && static_cast<T>(*given) != value) {
    user_error(flag, ": expected ", value, ", as the weights of --model have, not ", *given);
  }
  if (given) value = static_cast<T>(*given);
  given = value;
}

}  // namespace

void ModelFlags::add(CommandLine& command_line) {
  command_line.group("Model");
  command_line.text("--model", name_, concat("preset, or weights to start from: ", kModelFormats));
  command_line.integer("--n-layer", n_layer_, 1, 1000,
                       "transformer blocks (default: the preset's, listed below)");
  command_line.integer("--n-head", n_head_, 1, 65536, "attention heads; must divide --n-embd");
  command_line.integer("--n-embd", n_embd_, 1, 65536, "channels of the embedding");
  command_line.integer("--block-size", block_size_, 1, 1 << 20, "longest context, in tokens");
  command_line.choice("--activation", activation_, {"gelu_new", "gelu", "relu"}, "non-linearity");
  command_line.real("--dropout", dropout_, kBelowOne, "dropout probability");

  std::string list = "Presets:";
  for (const auto& [name, config, learning_rate] : presets()) {
    list += concat("\n  ", name, ": ", config.n_layer, " layers, ", config.n_head, " heads, ", config.n_embd,
                   " channels, context ", config.block_size, ", learning rate ", learning_rate);
  }
  command_line.footer(list);
}

double ModelFlags::learning_rate() const {
  const Preset* preset = preset_named(name_);
  return preset ? preset->learning_rate : kFineTuningRate;
}

std::vector<ModelFlags::Change> ModelFlags::changes() const {
  const Preset* preset = preset_named(name_);
  if (!preset) return {};
  std::vector<Change> changes;
  const auto compare = [&](const char* key, const auto& value, const auto& preset_value) {
    if (value != preset_value) changes.push_back({key, concat(value), concat(preset_value)});
  };
  const Gpt2Config& usual = preset->config;
  compare("n_layer", config_.n_layer, usual.n_layer);
  compare("n_head", config_.n_head, usual.n_head);
  compare("n_embd", config_.n_embd, usual.n_embd);
  compare("block_size", config_.block_size, usual.block_size);
  compare("activation", name_of(config_.activation), name_of(usual.activation));
  return changes;
}

std::string ModelFlags::label() const {
  std::string label = name_;
  for (const Change& change : changes()) {
    label += concat(label == name_ ? " with " : ", ", change.key, ' ', change.value);
  }
  return label;
}

void ModelFlags::refuse_fields_of_another_model(const CommandLine& command_line) const {
  const nlohmann::json& file = command_line.file_settings();
  const std::string model = file.value("model", "");
  if (!command_line.is_given("--model") || model == name_) return;
  for (const auto& [key, value, preset_value] : changes()) {
    const std::string flag = flag_of_key(key);
    if (!file.contains(key) || command_line.is_given(flag)) continue;
    user_error("--model: ", name_, " has ", key, ' ', preset_value, ", but the file of --config says ", value,
               model.empty() ? "" : concat(", for ", model), "; leave ", key, " out there, or give ", flag,
               " too");
  }
}

const Gpt2Config& ModelFlags::resolve() {
  const Preset* preset = weights_ ? nullptr : preset_named(name_);
  if (!preset && !weights_) {
    if (!file_exists(name_)) {
      user_error("--model: expected one of ", joined(preset_names()), ", or ", kModelFormats, ", not '",
                 name_, "'", suggestion(name_, preset_names()));
    }
    // A run's latest checkpoint, because the run may write another meanwhile.
    weights_ = directory_of_model(name_).value_or(name_);
  }
  config_ = preset ? preset->config : read_config(*weights_, "--model");
  std::string activation(name_of(config_.activation));
  if (!preset && block_size_ > config_.block_size) {
    user_error("--block-size: expected at most ", config_.block_size,
               ", the positions that --model has learnt, not ", *block_size_);
  }
  replace(config_.block_size, block_size_, "--block-size", false);
  replace(config_.n_layer, n_layer_, "--n-layer", !preset);
  replace(config_.n_head, n_head_, "--n-head", !preset);
  replace(config_.n_embd, n_embd_, "--n-embd", !preset);
  replace(activation, activation_, "--activation", !preset);
  config_.activation = *activation_named(activation);
  config_.dropout = dropout_;
  config_.validate();
  return config_;
}

}  // namespace stagegpt
