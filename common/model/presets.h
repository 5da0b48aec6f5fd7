// Models that --model knows by name.
#pragma once

#include <string_view>
#include <vector>

#include "common/model/gpt2_config.h"

namespace stagegpt {

struct Preset {
  std::string_view name;
  Gpt2Config config;     // the vocabulary is replaced by the tokenizer's
  double learning_rate;  // a peak learning rate with which it trains well
};

// nano (small enough to learn data/dummy.txt within a minute on two cores), and GPT-2's four sizes with the
// learning rates of Brown et al., arXiv:2005.14165, table 2.1.
const std::vector<Preset>& presets();

}  // namespace stagegpt
