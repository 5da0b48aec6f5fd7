// Text to token ids and back.
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/json.h"
#include "common/data/tokenizers/special_tokens.h"

namespace stagegpt {

// What every tokenizer has: the bytes that each id stands for, and which ids are special.
struct Vocabulary {
  std::vector<std::string> tokens;  // by id
  std::vector<SpecialToken> special_tokens;
  std::optional<std::int32_t> end_of_text;

  bool is_special(std::int32_t id) const;
};

class Tokenizer {
 public:
  virtual ~Tokenizer() = default;
  Tokenizer(const Tokenizer&) = delete;
  Tokenizer& operator=(const Tokenizer&) = delete;

  // Throws UserError for text that the vocabulary cannot express. Several threads may call it at once.
  std::vector<std::int32_t> encode(std::string_view text,
                                   SpecialTokens special = SpecialTokens::as_text) const;
  // The bytes of all ids, joined. Ids must be in [0, size()).
  std::string decode(std::span<const std::int32_t> ids) const;

  std::int64_t size() const { return std::ssize(vocabulary_.tokens); }
  const Vocabulary& vocabulary() const { return vocabulary_; }
  const std::vector<SpecialToken>& special_tokens() const { return vocabulary_.special_tokens; }
  bool is_special(std::int32_t id) const { return vocabulary_.is_special(id); }
  std::optional<std::int32_t> end_of_text() const { return vocabulary_.end_of_text; }
  // The token that stands for what the vocabulary lacks, of the kind of tokenizer that has one.
  virtual std::optional<std::int32_t> unknown() const { return std::nullopt; }

  // As --tokenizer names it.
  virtual std::string_view kind() const = 0;
  // Whether encode() refuses bytes that are not UTF-8.
  virtual bool needs_utf8() const = 0;

  // The beginning of a longer text: how much of it can be encoded without seeing what follows. With n the
  // result, encode(text + more) equals encode(text[0, n)) and encode(text[n, end) + more), joined. 0 where
  // there is no such n; a text that is long enough has one.
  std::size_t safe_cut(std::string_view text, SpecialTokens special = SpecialTokens::as_text) const;

  // The parts of Hugging Face's tokenizer.json that differ from kind to kind: pre_tokenizer, decoder, model.
  virtual Json hugging_face() const = 0;
  // Writes tokenizer.json, or llm.c's file where the name ends in ".bin".
  void save(const std::filesystem::path& path) const;

 protected:
  explicit Tokenizer(Vocabulary vocabulary);

 private:
  virtual void encode_text(std::string_view text, std::vector<std::int32_t>& ids) const = 0;
  virtual std::size_t cut_text(std::string_view text) const = 0;

  Vocabulary vocabulary_;
};

}  // namespace stagegpt
