#include "common/app/model_flags.h"

#include <algorithm>

namespace stagegpt {

void ModelFlags::add(CommandLine& command_line) {
  std::vector<std::string> names;
  for (const Preset& preset : presets()) names.emplace_back(preset.name);
  command_line.group("Model");
  command_line.choice("--model", preset_, names, "preset");
  command_line.integer("--n-layer", n_layer_, 1, 1000, "blocks (default: the preset's, listed below)");
  command_line.integer("--n-head", n_head_, 1, 65536, "attention heads; must divide --n-embd");
  command_line.integer("--n-embd", n_embd_, 1, 65536, "channels");
  command_line.integer("--block-size", block_size_, 1, 1 << 20, "longest context, in tokens");
  command_line.choice("--activation", activation_, {"gelu_new", "gelu", "relu"}, "non-linearity");
  command_line.real("--dropout", dropout_, kBelowOne, "probability of dropping");

  std::string list = "Presets:";
  for (const auto& [name, config, learning_rate] : presets()) {
    list += concat("\n  ", name, ": ", config.n_layer, " layers, ", config.n_head, " heads, ", config.n_embd,
                   " channels, context ", config.block_size, ", learning rate ", learning_rate);
  }
  command_line.footer(list);
}

const Preset& ModelFlags::preset() const { return *std::ranges::find(presets(), preset_, &Preset::name); }

Gpt2Config ModelFlags::config() const {
  Gpt2Config config = preset().config;
  config.n_layer = static_cast<int>(n_layer_.value_or(config.n_layer));
  config.n_head = static_cast<int>(n_head_.value_or(config.n_head));
  config.n_embd = static_cast<int>(n_embd_.value_or(config.n_embd));
  config.block_size = block_size_.value_or(config.block_size);
  config.activation = *activation_named(activation_);
  config.dropout = dropout_;
  config.validate();
  return config;
}

}  // namespace stagegpt
