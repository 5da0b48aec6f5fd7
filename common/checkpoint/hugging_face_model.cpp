#include "common/checkpoint/hugging_face_model.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "common/base/json.h"
#include "common/checkpoint/hugging_face_config.h"
#include "common/checkpoint/run_directory.h"
#include "common/checkpoint/tensor_files.h"
#include "common/data/tokenizers/tokenizer_json.h"
#include "common/io/file.h"

namespace stagegpt {
namespace {

namespace fs = std::filesystem;

constexpr const char* kConfig = "config.json";
constexpr const char* kHead = "lm_head.weight";
constexpr std::string_view kCompiled =
    "_orig_mod.";  // of all names, in a model that torch.compile has wrapped
constexpr std::string_view kPrefix = "transformer.";  // of all other names, in a model with a head of its own

std::string without_prefix(std::string_view name) {
  for (const std::string_view prefix : {kCompiled, kPrefix}) {
    if (name.starts_with(prefix)) name.remove_prefix(prefix.size());
  }
  return std::string(name);
}

// h.N.attn.bias and h.N.attn.masked_bias: the causal mask, a tensor in older files.
bool is_mask(const std::string& name) {
  std::string_view rest = name;
  if (!rest.starts_with("h.")) return false;
  rest.remove_prefix(2);
  const std::size_t digits = rest.find_first_not_of("0123456789");
  return digits != 0 && digits != rest.npos &&
         (rest.substr(digits) == ".attn.bias" || rest.substr(digits) == ".attn.masked_bias");
}

bool same_bytes(const SafetensorsView& a, const SafetensorsView& b) {
  return a.dtype == b.dtype && a.shape == b.shape && std::ranges::equal(a.bytes, b.bytes);
}

Gpt2Config config_in(const fs::path& directory) {
  if (!file_exists(directory / kConfig) && file_exists(directory / "checkpoints")) {
    const auto checkpoints = checkpoints_of(directory);
    if (checkpoints.empty()) user_error(directory, " is a run that has no checkpoint yet");
    user_error(directory,
               " is a run whose link 'latest' is missing; name a checkpoint: ", checkpoints.rbegin()->second);
  }
  const fs::path path = directory / kConfig;
  return naming(path, [&] { return parse_config(parse_json(MappedFile(path, kConfig).text())); });
}

// gpt2_parameter_table(config) by the names in a file. Beside an untied head they need the prefix
// "transformer.": older versions of transformers take names without it for those of a model without a head.
ParameterTable table_of_file(const Gpt2Config& config) {
  const ParameterTable table = gpt2_parameter_table(config);
  if (config.tie_word_embeddings) return table;
  ParameterTable named;
  for (Parameter row : table.rows()) {
    if (row.name != kHead) row.name = concat(kPrefix, row.name);
    named.add(std::move(row));
  }
  return named;
}

std::shared_ptr<TensorFiles> map_weights(const fs::path& directory) {
  const std::string weights = tensor_file_name(kModelTensors);
  if (!file_exists(directory / weights) && !file_exists(directory / tensor_index_name(kModelTensors))) {
    user_error(directory, " holds no ", weights,
               file_exists(directory / "pytorch_model.bin")
                   ? "; pytorch_model.bin is not supported: convert it with save_pretrained(…, "
                     "safe_serialization=True)"
                   : "");
  }
  return std::make_shared<TensorFiles>(directory, kModelTensors, [](const std::string& name) {
    std::string ours = without_prefix(name);
    return is_mask(ours) ? std::nullopt : std::optional(std::move(ours));
  });
}

// A tied model may be stored under the name of its output head alone, as safetensors.torch.save_model does.
void name_tied_weights(SafetensorsViews& weights, const Gpt2Config& config) {
  if (!config.tie_word_embeddings || weights.contains("wte.weight")) return;
  auto head = weights.extract(kHead);
  if (head.empty()) return;
  head.key() = "wte.weight";
  weights.insert(std::move(head));
}

// Removes an output head that is wte again. Throws UserError for a tensor that is not in the table.
void check_names(SafetensorsViews& weights, const Gpt2Config& config, const ParameterTable& table) {
  if (const auto head = weights.find(kHead); config.tie_word_embeddings && head != weights.end()) {
    if (!same_bytes(head->second, weights.at("wte.weight"))) {
      user_error(kHead, " differs from wte.weight, but ", kConfig,
                 " does not have 'tie_word_embeddings': false");
    }
    weights.erase(head);
  }
  for (const auto& [name, view] : weights) {
    if (table.find(name) < 0)
      user_error("the tensor '", name.substr(0, 80), "' does not belong to this model, a GPT2LMHeadModel");
  }
}

ModelFile read_directory(const fs::path& directory) {
  const Gpt2Config config = config_in(directory);
  const std::shared_ptr<TensorFiles> files = map_weights(directory);
  SafetensorsViews& weights = files->tensors();  // by the names in the parameter table
  // Before the parameter table is built: a wrong n_layer could make it far larger than the files.
  if (weights.size() < static_cast<std::size_t>(config.n_layer))
    user_error(directory, ": ", weights.size(), " tensors are too few for ", config.n_layer, " layers");
  const ParameterTable table = gpt2_parameter_table(config);
  name_tied_weights(weights, config);
  return naming(directory, [&] {
    ModelFile model{config, file_values(files, table, "")};
    check_names(weights, config, table);
    return model;
  });
}

}  // namespace

ModelFile read_hugging_face(const fs::path& directory, std::string_view flag) {
  return naming(flag, [&] { return read_directory(directory); });
}

Gpt2Config read_hugging_face_config(const fs::path& directory, std::string_view flag) {
  return naming(flag, [&] { return config_in(directory); });
}

std::vector<FileEntry> write_hugging_face(const fs::path& directory, const Gpt2Config& config,
                                          const ParameterValues& values, const Tokenizer* tokenizer,
                                          const Heartbeat& beat) {
  const auto end_of_text = tokenizer ? tokenizer->end_of_text() : std::nullopt;
  std::vector<FileEntry> files;
  const auto write = [&](const char* name, const std::string& text) {
    files.push_back(write_hashed(directory / name, text));
    beat();
  };
  write(kConfig, config_json(config, end_of_text));
  write("generation_config.json", generation_config_json(end_of_text));
  if (tokenizer) {
    write("tokenizer.json", tokenizer_json(*tokenizer));
    write("tokenizer_config.json", tokenizer_config_json(*tokenizer, config.block_size));
  }
  files.push_back(
      write_parameters(directory / tensor_file_name(kModelTensors), table_of_file(config), {{"", values}}));
  beat();
  return files;
}

}  // namespace stagegpt
