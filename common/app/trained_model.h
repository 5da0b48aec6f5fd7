// A trained model and its tokenizer, from files of any supported format.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "common/checkpoint/model_file.h"
#include "common/comm/rank_group.h"
#include "common/data/tokenizers/tokenizer.h"
#include "common/model/gpt2.h"

namespace stagegpt {

// For inference alone.
struct TrainedModel {
  std::unique_ptr<Gpt2> model;
  std::unique_ptr<Tokenizer> tokenizer;
};

// The tokenizer at `tokenizer_path`, or, without one, that in the directory of a model, which the user named
// by `flag`; null if the model is a file. Throws UserError, also if the tokenizer has more tokens than the
// model.
std::unique_ptr<Tokenizer> load_model_tokenizer(const ModelFile& model, std::string_view flag,
                                                const std::optional<std::string>& tokenizer_path);
// Throws UserError for a model file without a tokenizer.
[[noreturn]] void refuse_missing_tokenizer(const std::filesystem::path& model);

// `path` is as for open_model(). The tokenizer is the directory's unless a path is given; llm.c's files need
// one. Throws UserError that names --model or --tokenizer-path. `activations` is as for Gpt2. `check` sees
// what model it is before that is allocated, and may throw.
TrainedModel load_trained_model(Backend& backend, const std::filesystem::path& path,
                                const std::optional<std::string>& tokenizer_path,
                                const std::function<void(const Gpt2Config&)>& check,
                                DType activations = DType::f32);

// Loads a model on all ranks: what fails on one, fails on all, and they must have found the same model and
// tokenizer.
TrainedModel load_shared_model(RankGroup& group, Backend& backend, const std::filesystem::path& path,
                               const std::optional<std::string>& tokenizer_path,
                               const std::function<void(const Gpt2Config&)>& check,
                               DType activations = DType::f32);

}  // namespace stagegpt
