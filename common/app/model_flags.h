// The flags that choose a model.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "common/app/command_line.h"
#include "common/model/gpt2.h"

namespace stagegpt {

class ModelFlags {
 public:
  void add(CommandLine& command_line);

  // The preset with the fields that were given replaced. Throws UserError for a model that cannot be.
  Gpt2Config config() const;
  const std::string& preset_name() const { return preset_; }
  const Preset& preset() const;

 private:
  std::string preset_ = "nano";
  std::optional<std::int64_t> n_layer_, n_head_, n_embd_, block_size_;
  std::string activation_ = "gelu_new";
  double dropout_ = 0;
};

}  // namespace stagegpt
