#include "common/app/trained_model.h"

#include "common/checkpoint/hugging_face_model.h"
#include "common/checkpoint/llmc_files.h"
#include "common/checkpoint/manifest.h"
#include "common/comm/agreement.h"
#include "common/data/tokenizers/load_tokenizer.h"
#include "common/data/tokenizers/tokenizer_json.h"
#include "common/io/content_hash.h"

namespace stagegpt {
namespace {

namespace fs = std::filesystem;

constexpr const char *kModel = "--model", *kTokenizer = "--tokenizer-path";

using Check = std::function<void(const Gpt2Config&)>;

std::unique_ptr<Gpt2> load_directory(Backend& backend, const fs::path& directory, const Check& check,
                                     DType activations) {
  verify_named(directory, kModel);
  const HuggingFaceModel file(directory, kModel);
  check(file.config());
  auto model = std::make_unique<Gpt2>(backend, file.config(), DType::f32, 1, Purpose::inference, activations);
  load_weights(file, backend, *model);
  return model;
}

std::unique_ptr<Gpt2> load_llmc_file(Backend& backend, const fs::path& path, const Check& check,
                                     DType activations) {
  const MappedFile bytes(path, kModel);
  const LlmcModel file = parse_llmc_model(bytes.bytes(), kModel);
  check(file.config);
  auto model = std::make_unique<Gpt2>(backend, file.config, DType::f32, 1, Purpose::inference, activations);
  const Parameters& parameters = model->parameters();
  load_values(backend, parameters.table(), parameters.weights(), llmc_values(parameters.table(), file));
  return model;
}

}  // namespace

void require_model_path(const std::string& path) {
  if (!path.empty()) return;
  user_error(kModel,
             " is missing: expected a run, a checkpoint, a Hugging Face GPT-2 directory, or a model file in "
             "llm.c's format");
}

TrainedModel load_trained_model(Backend& backend, const fs::path& path,
                                const std::optional<std::string>& tokenizer_path, const Check& check,
                                DType activations) {
  std::error_code ignored;
  const bool is_directory = fs::is_directory(path, ignored);
  const fs::path directory = is_directory ? model_directory(path) : fs::path();
  if (!is_directory && !tokenizer_path) {
    if (!fs::exists(path, ignored))
      user_error(kModel, ": expected a directory or a model file, but ", path, " does not exist");
    user_error(kTokenizer, ": expected the path of a tokenizer, since the model file ", path, " has none");
  }
  TrainedModel trained;
  trained.tokenizer =
      tokenizer_path ? load_tokenizer(*tokenizer_path, kTokenizer) : load_tokenizer(directory, kModel);
  trained.model = is_directory ? load_directory(backend, directory, check, activations)
                               : load_llmc_file(backend, path, check, activations);
  trained.model->parameters().update_shadow();
  const std::int64_t size = trained.model->config().vocab_size;
  if (trained.tokenizer->size() > size) {
    user_error(tokenizer_path ? kTokenizer : kModel, ": expected a tokenizer of at most ", size,
               " tokens, as the model has, not ", trained.tokenizer->size());
  }
  return trained;
}

TrainedModel load_shared_model(RankGroup& group, Backend& backend, const fs::path& path,
                               const std::optional<std::string>& tokenizer_path, const Check& check,
                               DType activations) {
  TrainedModel trained;
  agree(group, [&] { trained = load_trained_model(backend, path, tokenizer_path, check, activations); });
  if (group.size() == 1) return trained;
  require_same(group, {{kModel, concat(trained.model->config().vocab_size, " tokens and ",
                                       trained.model->parameters().table().numel(), " parameters")},
                       {"tokenizer", hash_of_text(tokenizer_json(*trained.tokenizer))}});
  return trained;
}

}  // namespace stagegpt
