#include "common/app/shared_corpus.h"

#include "common/base/json.h"
#include "common/comm/agreement.h"
#include "common/data/tokenizers/tokenizer_json.h"

namespace stagegpt {

Corpus load_shared_corpus(RankGroup& group, const CorpusConfig& config, std::int64_t block_size,
                          int threads) {
  std::unique_ptr<Tokenizer> tokenizer;
  const std::string json = text_from_root(group, [&] {
    tokenizer = corpus_tokenizer(config, threads);
    return group.size() > 1 ? tokenizer_json(*tokenizer) : "";
  });
  agree(group, [&] {
    if (!tokenizer) tokenizer = parse_tokenizer_json(parse_json(json));
  });
  return load_corpus(group, config, std::move(tokenizer), block_size, threads);
}

}  // namespace stagegpt
