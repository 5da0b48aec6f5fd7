#include "common/data/corpus.h"

#include <glob.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "common/data/prepared_data.h"
#include "common/data/text_source.h"
#include "common/data/tokenizers/load_tokenizer.h"
#include "common/error.h"

namespace stagegpt {
namespace {

namespace fs = std::filesystem;
constexpr std::string_view kFlag = "--data";

// The files that a pattern matches, sorted; the file of that very name where there is one.
std::vector<std::string> matching_files(const std::string& pattern) {
  std::error_code ignored;
  if (fs::exists(pattern, ignored)) return {pattern};
  glob_t matches{};
  std::vector<std::string> files;
  if (glob(pattern.c_str(), 0, nullptr, &matches) == 0) {
    files.assign(matches.gl_pathv, matches.gl_pathv + matches.gl_pathc);
  }
  globfree(&matches);
  return files;
}

std::vector<std::string> data_files(const std::string& pattern) {
  std::vector<std::string> files = matching_files(pattern);
  if (!files.empty()) return files;
  if (pattern.find_first_of("*?[") != std::string::npos)
    user_error(kFlag, ": no file matches \"", pattern, '"');
  user_error(kFlag, ": cannot open \"", pattern,
             "\": No such file or directory; scripts/download_data.sh fetches "
             "TinyShakespeare and TinyStories");
}

// Directories that prepare_data made, as the pattern of their training shards.
std::string without_directory(const std::string& data) {
  std::error_code ignored;
  if (!fs::is_directory(data, ignored)) return data;
  const std::string shards = (fs::path(data) / "train_*.bin").string();
  if (matching_files(shards).empty()) {
    user_error(kFlag, ": \"", data,
               "\" is a directory without train_*.bin, expected one that prepare_data made");
  }
  return shards;
}

bool is_shard(const std::string& path) { return fs::path(path).extension() == ".bin"; }

// The pattern of the validation shards: "train" becomes "val" in the name. Empty where it does not occur.
std::string validation_pattern(const std::string& train) {
  constexpr std::string_view kTrain = "train";
  const std::size_t name = train.rfind('/') + 1, at = train.rfind(kTrain);
  if (at == std::string::npos || at < name) return "";
  return std::string(train).replace(at, kTrain.size(), "val");
}

std::unique_ptr<Tokenizer> tokenizer_of_shards(const std::string& first_shard, const TokenizerChoice& choice,
                                               ManifestCheck& manifests) {
  if (auto chosen = load_chosen_tokenizer(choice)) return chosen;
  if (choice.vocab_size)
    user_error("--vocab-size: shards are tokens already, of a vocabulary of its own size");
  std::error_code ignored;
  for (const char* name : {"tokenizer.json", "tokenizer.bin"}) {
    const fs::path path = fs::path(first_shard).parent_path() / name;
    if (!fs::exists(path, ignored)) continue;
    const MappedFile file(path, kFlag);
    if (std::strcmp(name, "tokenizer.json") == 0) manifests.require(path, file.bytes(), kFlag);
    auto tokenizer = load_tokenizer(path, kFlag);
    if (choice.kind && *choice.kind != tokenizer->kind()) {
      user_error("--tokenizer: ", *choice.kind, ", but ", path, " beside the shards is of kind ",
                 tokenizer->kind());
    }
    return tokenizer;
  }
  user_error(kFlag, ": no tokenizer.json beside \"", first_shard,
             "\"; name theirs with --tokenizer gpt2 or "
             "--tokenizer-path");
}

TokenSequence open_shards(const std::vector<std::string>& paths, std::int64_t vocab_size,
                          ManifestCheck& manifests) {
  TokenSequence tokens;
  for (const std::string& path : paths) {
    if (!is_shard(path)) user_error(kFlag, ": \"", path, "\" is no token shard (.bin), but others are");
    auto shard = std::make_shared<const TokenShard>(path, kFlag);
    manifests.require(path, shard->bytes(), kFlag);
    shard->require_tokens_below(vocab_size);
    tokens.append(std::move(shard));
  }
  return tokens;
}

Corpus load_shards(const std::string& pattern, const std::vector<std::string>& files,
                   const CorpusConfig& config) {
  Corpus corpus;
  ManifestCheck manifests;
  corpus.tokenizer = tokenizer_of_shards(files.front(), config.tokenizer, manifests);
  corpus.train = open_shards(files, corpus.tokenizer->size(), manifests);
  const std::string validation = validation_pattern(pattern);
  const std::vector<std::string> validation_files =
      validation.empty() ? std::vector<std::string>() : matching_files(validation);
  if (!validation_files.empty()) {
    corpus.validation = open_shards(validation_files, corpus.tokenizer->size(), manifests);
    return corpus;
  }
  const std::int64_t size = corpus.train.size();
  const auto held_out = static_cast<std::int64_t>(static_cast<double>(size) * config.val_fraction);
  corpus.validation = corpus.train.slice(size - held_out, held_out);
  corpus.train = corpus.train.slice(0, size - held_out);
  return corpus;
}

Corpus load_text(const std::vector<std::string>& files, const CorpusConfig& config, int threads) {
  const TextSource text(files, kFlag);
  TokenizeOptions options;
  options.threads = threads;
  options.special = config.special;
  Corpus corpus;
  corpus.tokenizer = make_tokenizer(config.tokenizer, text, options);
  const std::int64_t split = text.split(config.val_fraction);
  const auto append_to = [&](TokenSequence& tokens) {
    return [&](std::span<const std::int32_t> ids) { tokens.append(ids, corpus.tokenizer->size()); };
  };
  tokenize(text, {0, split}, *corpus.tokenizer, options, append_to(corpus.train));
  tokenize(text, {split, text.bytes()}, *corpus.tokenizer, options, append_to(corpus.validation));
  return corpus;
}

}  // namespace

Corpus load_corpus(const CorpusConfig& config, std::int64_t block_size, int threads) {
  const std::string pattern = without_directory(config.data);
  const std::vector<std::string> files = data_files(pattern);
  Corpus corpus = std::ranges::any_of(files, is_shard) ? load_shards(pattern, files, config)
                                                       : load_text(files, config, threads);
  for (const auto& [name, tokens] :
       {std::pair{"training", &corpus.train}, {"validation", &corpus.validation}}) {
    if (tokens->size() < block_size + 1) {
      user_error(kFlag, ": \"", config.data, "\" leaves ", tokens->size(), " tokens for ", name,
                 ", fewer than one window of ", block_size + 1,
                 "; give a longer text, another --val-fraction or a smaller --block-size");
    }
  }
  return corpus;
}

}  // namespace stagegpt
