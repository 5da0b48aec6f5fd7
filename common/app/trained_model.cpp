#include "common/app/trained_model.h"

#include <iostream>

#include "common/base/grouped.h"
#include "common/comm/agreement.h"
#include "common/data/tokenizers/load_tokenizer.h"
#include "common/data/tokenizers/tokenizer_json.h"
#include "common/io/content_hash.h"

namespace stagegpt {
namespace {

constexpr const char *kModel = "--model", *kTokenizer = "--tokenizer-path";

}  // namespace

void refuse_missing_tokenizer(const std::filesystem::path& model) {
  user_error(kTokenizer, ": expected the path of a tokenizer, since the model file ", model, " has none");
}

std::unique_ptr<Tokenizer> load_model_tokenizer(const ModelFile& model, std::string_view flag,
                                                const std::optional<std::string>& tokenizer_path) {
  if (!tokenizer_path && !model.directory) return nullptr;
  if (tokenizer_path) flag = kTokenizer;
  auto tokenizer =
      load_tokenizer(tokenizer_path ? std::filesystem::path(*tokenizer_path) : *model.directory, flag);
  if (tokenizer->size() > model.config.vocab_size) {
    user_error(flag, ": expected a tokenizer of at most ", model.config.vocab_size,
               " tokens, as the model has, not ", tokenizer->size());
  }
  return tokenizer;
}

TrainedModel load_trained_model(Backend& backend, const std::filesystem::path& path,
                                const std::optional<std::string>& tokenizer_path,
                                const std::function<void(const Gpt2Config&)>& check, DType activations) {
  TrainedModel trained;
  const ModelFile file = open_model(path, kModel);
  check(file.config);
  trained.tokenizer = load_model_tokenizer(file, kModel, tokenizer_path);
  if (!trained.tokenizer) refuse_missing_tokenizer(path);
  trained.model =
      std::make_unique<Gpt2>(backend, file.config, DType::f32, 1, Purpose::inference, activations);
  load_weights(backend, trained.model->parameters(), file.values);
  trained.model->parameters().update_shadow();
  return trained;
}

TrainedModel load_shared_model(RankGroup& group, Backend& backend, const std::filesystem::path& path,
                               const std::optional<std::string>& tokenizer_path,
                               const std::function<void(const Gpt2Config&)>& check, DType activations) {
  TrainedModel trained;
  agree(group, [&] { trained = load_trained_model(backend, path, tokenizer_path, check, activations); });
  const std::int64_t size = trained.model->config().vocab_size, known = trained.tokenizer->size();
  if (group.is_root() && known < size) {
    std::cerr << "note: the model has " << grouped(size) << " tokens, of which its tokenizer has "
              << grouped(known) << '\n';
  }
  if (group.size() == 1) return trained;
  require_same(group, {{kModel, concat(trained.model->config().vocab_size, " tokens and ",
                                       trained.model->parameters().table().numel(), " parameters")},
                       {"tokenizer", hash_of_text(tokenizer_json(*trained.tokenizer))}});
  return trained;
}

}  // namespace stagegpt
