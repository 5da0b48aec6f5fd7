#include "common/model/presets.h"

namespace stagegpt {

const std::vector<Preset>& presets() {
  const auto preset = [](std::string_view name, int n_layer, int n_head, int n_embd, double learning_rate) {
    Gpt2Config config;
    config.n_layer = n_layer;
    config.n_head = n_head;
    config.n_embd = n_embd;
    return Preset{name, config, learning_rate};
  };
  static const std::vector<Preset> presets = [&] {
    std::vector<Preset> list = {
        preset("nano", 4, 4, 128, 3e-3),           preset("gpt2", 12, 12, 768, 6e-4),
        preset("gpt2-medium", 24, 16, 1024, 3e-4), preset("gpt2-large", 36, 20, 1280, 2.5e-4),
        preset("gpt2-xl", 48, 25, 1600, 2e-4),
    };
    Gpt2Config& nano = list[0].config;
    nano.block_size = 128;
    nano.vocab_size = 128;
    nano.initializer_range = 0.08;  // about 1/√C: with 0.02, a model this narrow learns half as fast
    return list;
  }();
  return presets;
}

}  // namespace stagegpt
