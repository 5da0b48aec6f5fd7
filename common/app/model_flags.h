// The flags that choose a model.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "common/app/command_line.h"
#include "common/model/gpt2.h"

namespace stagegpt {

class ModelFlags {
 public:
  void add(CommandLine& command_line);

  // Starts from the weights in a checkpoint, whatever --model names.
  void begin_from(const std::filesystem::path& checkpoint) { weights_ = checkpoint; }
  // The preset's or the files' model, with the fields that were given; the other flags are set to its values.
  // Throws UserError for an impossible model, and for a shape that the files' weights do not have: only their
  // context can be made shorter.
  const Gpt2Config& resolve();
  const Gpt2Config& config() const { return config_; }
  // Throws UserError where the command line names a preset and a file, --config, gives it another size or
  // activation, unless the file names that preset too.
  void refuse_fields_of_another_model(const CommandLine& command_line) const;

  // As given: a preset or a path.
  const std::string& name() const { return name_; }
  // The name, with what differs from the preset: "gpt2", "gpt2 with n_layer 4, block_size 64".
  std::string label() const;
  // The directory or file of the weights to start from; nothing for a preset, whose weights are random.
  const std::optional<std::filesystem::path>& weights() const { return weights_; }
  // The default peak learning rate.
  double learning_rate() const;

 private:
  // A field that has another value than the preset's.
  struct Change {
    std::string key, value, preset_value;
  };
  std::vector<Change> changes() const;

  std::string name_ = "nano";
  std::optional<std::int64_t> n_layer_, n_head_, n_embd_, block_size_;
  std::optional<std::string> activation_;
  double dropout_ = 0;
  std::optional<std::filesystem::path> weights_;
  Gpt2Config config_;
};

}  // namespace stagegpt
