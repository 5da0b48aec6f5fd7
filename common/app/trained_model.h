// A trained model and its tokenizer, from files of any supported format.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "common/comm/rank_group.h"
#include "common/data/tokenizers/tokenizer.h"
#include "common/model/gpt2.h"

namespace stagegpt {

// For inference alone.
struct TrainedModel {
  std::unique_ptr<Gpt2> model;
  std::unique_ptr<Tokenizer> tokenizer;
};

// Throws UserError if no model is named.
void require_model_path(const std::string& path);

// `path`: a run, a checkpoint, any Hugging Face GPT-2 directory, or llm.c's model file. The tokenizer is the
// directory's unless a path is given; llm.c's files need one. Throws UserError that names --model or
// --tokenizer-path. `activations` is as for Gpt2. `check` sees what model it is before that is allocated, and
// may throw.
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
