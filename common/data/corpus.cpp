#include "common/data/corpus.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <functional>
#include <optional>
#include <utility>

#include "common/base/error.h"
#include "common/base/json.h"
#include "common/comm/agreement.h"
#include "common/data/find_files.h"
#include "common/data/prepared_data.h"
#include "common/data/text_source.h"
#include "common/data/token_shard.h"
#include "common/data/tokenizers/load_tokenizer.h"
#include "common/data/tokenizers/tokenizer_json.h"
#include "common/io/content_hash.h"
#include "common/io/work_progress.h"

namespace stagegpt {
namespace {

namespace fs = std::filesystem;
constexpr const char* kFlag = "--data";

// Replaces a directory made by prepare_data by the pattern of its training shards or, if there is no
// training, of its validation shards.
std::string expand_directory(const std::string& data, bool trains) {
  std::error_code ignored;
  if (!fs::is_directory(data, ignored)) return data;
  const std::string names = trains ? "train_*.bin" : "val_*.bin",
                    shards = escape_pattern((fs::path(data) / "").string()) + names;
  if (matching_files(shards).empty()) {
    user_error(kFlag, ": \"", data, "\" is a directory without ", names,
               "; expected a directory made by prepare_data");
  }
  return shards;
}

bool is_shard(const std::string& path) { return fs::path(path).extension() == ".bin"; }

// The files of --data: texts or token shards. The pattern of the validation shards is derived from `pattern`.
struct DataFiles {
  std::string pattern;
  std::vector<std::string> files;

  bool are_shards() const { return is_shard(files.front()); }
};

// The pattern of the validation shards: "train" in the file name is replaced by "val". Empty if the name does
// not contain "train".
std::string validation_pattern(const std::string& train) {
  constexpr std::string_view kTrain = "train";
  const std::size_t name = train.rfind('/') + 1, at = train.rfind(kTrain);
  if (at == std::string::npos || at < name) return "";
  return std::string(train).replace(at, kTrain.size(), "val");
}

std::unique_ptr<Tokenizer> tokenizer_of_shards(const std::string& first_shard,
                                               const TokenizerChoice& choice) {
  const TokenShard is_one(first_shard, kFlag);
  if (auto chosen = load_chosen_tokenizer(choice)) return chosen;
  if (choice.vocab_size)
    user_error("--vocab-size: cannot be set for token shards; they have the vocabulary of their tokenizer");
  std::error_code ignored;
  ManifestCheck manifests;
  for (const char* name : {"tokenizer.json", "tokenizer.bin"}) {
    const fs::path path = fs::path(first_shard).parent_path() / name;
    if (!fs::exists(path, ignored)) continue;
    if (std::strcmp(name, "tokenizer.json") == 0) manifests.require(path, hash_of_file(path), kFlag);
    auto tokenizer = load_tokenizer(path, kFlag);
    if (choice.kind && *choice.kind != tokenizer->kind()) {
      user_error("--tokenizer: ", *choice.kind, ", but the tokenizer of the shards, ", path, ", is of kind ",
                 tokenizer->kind());
    }
    return tokenizer;
  }
  user_error(kFlag, ": there is no tokenizer.json beside \"", first_shard,
             "\"; name the tokenizer of the shards with --tokenizer gpt2 or --tokenizer-path");
}

// The opened shards of both parts. Their headers have been checked.
struct Shards {
  std::vector<std::shared_ptr<TokenShard>> all;
  std::size_t training = 0;  // how many of `all`, from the first on, are for training

  void add(const std::vector<std::string>& more) {
    for (const std::string& path : more) all.push_back(std::make_shared<TokenShard>(path, kFlag));
  }
};

// All shards must have tokens of the same vocabulary, also if they are in several directories.
void require_same_tokenizer(const std::vector<std::string>& shards, const Tokenizer& tokenizer) {
  fs::path last;
  for (const std::string& shard : shards) {
    const fs::path path = fs::path(shard).parent_path() / "tokenizer.json";
    std::error_code ignored;
    if (path == std::exchange(last, path) || !fs::exists(path, ignored)) continue;
    if (load_tokenizer(path, kFlag)->vocabulary().tokens != tokenizer.vocabulary().tokens) {
      user_error(kFlag, ": \"", shard, "\" has tokens of another vocabulary (", path,
                 "); all shards must have the same tokenizer");
    }
  }
}

// A pattern of training shards must not match validation shards: these are found by their names.
void require_one_part(const std::vector<std::string>& shards) {
  const auto is_named = [](const std::string& shard, const char* part) {
    return fs::path(shard).filename().string().find(part) != std::string::npos;
  };
  const auto train =
      std::ranges::find_if(shards, [&](const auto& shard) { return is_named(shard, "train"); });
  const auto val = std::ranges::find_if(
      shards, [&](const auto& shard) { return is_named(shard, "val") && !is_named(shard, "train"); });
  if (train == shards.end() || val == shards.end()) return;
  user_error(kFlag, ": the pattern matches shards for training and for validation, \"", *train, "\" and \"",
             *val, "\"; name the first ones: the others are then found beside them");
}

void require_shards(const std::vector<std::string>& files, const CorpusConfig& config) {
  const auto other = std::ranges::find_if_not(files, is_shard);
  if (other != files.end())
    user_error(kFlag, ": \"", *other,
               "\" is not a token shard (.bin), but other files are; expected either texts or shards");
  if (config.trains()) require_one_part(files);
  if (config.special == SpecialTokens::recognised) {
    user_error(
        "--parse-special-tokens: cannot be used with token shards, which are already encoded; give it to "
        "prepare_data");
  }
}

Shards open_shards(const DataFiles& data, const CorpusConfig& config) {
  Shards shards;
  shards.add(data.files);
  shards.training = shards.all.size();
  const std::string validation = validation_pattern(data.pattern);
  if (!validation.empty() && config.val_fraction > 0 && config.trains())
    shards.add(matching_files(validation));
  return shards;
}

// Compares the hashes of the shards with those in the manifests of their directories, if there are any.
void require_as_in_manifests(const Shards& shards) {
  ManifestCheck manifests;
  for (const auto& shard : shards.all) manifests.require(shard->path(), shard->hash(), kFlag);
}

// The tokens of one text, or of the shards of one pattern.
struct Parts {
  TokenSequence train, validation;
};

Parts load_shards(RankGroup& group, const DataFiles& data, const CorpusConfig& config,
                  const Tokenizer& tokenizer) {
  Shards shards;
  agree(group, [&] {
    require_same_tokenizer(data.files, tokenizer);
    shards = open_shards(data, config);
  });
  verify_shards(group, shards.all, tokenizer.size(), kFlag);
  agree(group, [&] { require_as_in_manifests(shards); });
  Parts parts;
  for (std::size_t i = 0; i < shards.all.size(); ++i) {
    (i < shards.training ? parts.train : parts.validation).append(shards.all[i]);
  }
  if (shards.all.size() > shards.training) return parts;
  const std::int64_t size = parts.train.size();
  const auto held_out = static_cast<std::int64_t>(static_cast<double>(size) * config.val_fraction);
  parts.validation = parts.train.slice(size - held_out, held_out);
  parts.train = parts.train.slice(0, size - held_out);
  return parts;
}

Parts load_text(RankGroup& group, const std::vector<std::string>& files, const CorpusConfig& config,
                const Tokenizer& tokenizer, int threads) {
  std::optional<TextSource> opened;
  std::int64_t split = 0;
  agree(group, [&] {
    opened.emplace(files, kFlag, TextFormat{.any_bytes = config.any_bytes});
    split = opened->split(config.val_fraction, special_in(config.special, tokenizer));
  });
  const TextSource& text = *opened;
  ByteProgress progress("reading the text");
  const TokenizeOptions options{threads, config.special, std::ref(progress)};
  Parts parts;
  const auto append_to = [&](TokenSequence& tokens) {
    return [&](std::span<const std::int32_t> ids) { tokens.append(ids, tokenizer.size()); };
  };
  tokenize_together(group, text, {0, split}, tokenizer, options, append_to(parts.train));
  tokenize_together(group, text, {split, text.bytes()}, tokenizer, options, append_to(parts.validation));
  return parts;
}

DataFiles find_data_files(const std::string& source, const CorpusConfig& config) {
  const std::string pattern = expand_directory(source, config.trains());
  const DataFiles data{pattern, find_files(pattern, kFlag)};
  if (std::ranges::any_of(data.files, is_shard)) require_shards(data.files, config);
  return data;
}

// The text, or the texts of a mixture.
std::vector<MixtureSource> sources_of(const CorpusConfig& config) {
  std::vector<MixtureSource> sources = parse_mixture(config.data);
  if (sources.empty()) sources.push_back({config.data, kMixtureBlock});
  return sources;
}

std::vector<DataFiles> find_all_data_files(const CorpusConfig& config) {
  std::vector<DataFiles> all;
  for (const MixtureSource& source : sources_of(config)) all.push_back(find_data_files(source.data, config));
  return all;
}

void require_window(const TokenSequence& tokens, const std::string& source, const char* purpose,
                    std::int64_t block_size) {
  if (tokens.size() > block_size) return;
  user_error(
      kFlag, ": \"", source, "\" leaves ", tokens.size(), tokens.size() == 1 ? " token" : " tokens", " for ",
      purpose, ", fewer than one window of ", block_size + 1, "; give a longer text",
      block_size > 1 ? ", another --val-fraction or a smaller --block-size" : " or another --val-fraction");
}

Parts load_source(RankGroup& group, const DataFiles& data, const CorpusConfig& config,
                  const Tokenizer& tokenizer, int threads) {
  return data.are_shards() ? load_shards(group, data, config, tokenizer)
                           : load_text(group, data.files, config, tokenizer, threads);
}

// Tokens that are mixed otherwise are other data.
TokenIdentity identity_of(const TokenSequence& tokens, const std::vector<MixturePart>& mixture) {
  TokenIdentity identity = tokens.identity();
  if (mixture.empty()) return identity;
  std::string text = identity.hash;
  for (const MixturePart& part : mixture) text += concat(" ", part.size, ":", part.share);
  identity.hash = hash_of_text(text);
  return identity;
}

// Loaded from files, that of the token shards, or trained on the text.
std::unique_ptr<Tokenizer> corpus_tokenizer(const CorpusConfig& config, int threads) {
  std::vector<std::string> texts;
  for (const DataFiles& data : find_all_data_files(config)) {
    if (data.are_shards()) return tokenizer_of_shards(data.files.front(), config.tokenizer);
    texts.insert(texts.end(), data.files.begin(), data.files.end());
  }
  const TextSource text(texts, kFlag, {.any_bytes = config.any_bytes});
  ByteProgress progress("reading the text");
  return make_tokenizer(config.tokenizer, text, {threads, config.special, std::ref(progress)});
}

}  // namespace

Corpus load_corpus(RankGroup& group, const CorpusConfig& config, std::unique_ptr<Tokenizer> tokenizer,
                   std::int64_t block_size, int threads) {
  std::vector<MixtureSource> sources;
  std::vector<DataFiles> files;
  std::string kinds;
  agree(group, [&] {
    sources = sources_of(config);
    files = find_all_data_files(config);
    for (const DataFiles& data : files)
      kinds += concat(kinds.empty() ? "" : ", ", data.are_shards() ? "token shards" : "text");
  });
  // All ranks must take the same branch below.
  require_same(group, {{kFlag, kinds}});
  Corpus corpus;
  corpus.tokenizer = std::move(tokenizer);
  for (std::size_t k = 0; k < files.size(); ++k) {
    const Parts parts = load_source(group, files[k], config, *corpus.tokenizer, threads);
    agree(group, [&] {
      if (config.trains()) require_window(parts.train, sources[k].data, "training", block_size);
    });
    corpus.train.append(parts.train);
    corpus.validation.append(parts.validation);
    if (files.size() > 1) corpus.mixture.push_back({parts.train.size(), sources[k].share});
  }
  agree(group, [&] {
    if (config.val_fraction > 0) require_window(corpus.validation, config.data, "validation", block_size);
    corpus.train_identity = identity_of(corpus.train, corpus.mixture);
    corpus.validation_identity = corpus.validation.identity();
  });
  return corpus;
}

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
