// One token for each character (Unicode code point) that occurs in a corpus, in order of code point.
#pragma once

#include <unordered_map>

#include "common/data/tokenizer.h"

namespace stagegpt {

class CharTokenizer final : public Tokenizer {
 public:
  // The vocabulary of `corpus`. Throws UserError where it is not UTF-8.
  explicit CharTokenizer(std::string_view corpus);

  std::vector<std::int32_t> encode(std::string_view text) const override;
  std::string decode(std::span<const std::int32_t> ids) const override;
  std::int64_t size() const override { return static_cast<std::int64_t>(characters_.size()); }

 private:
  std::vector<std::string> characters_;  // by id, in UTF-8
  std::unordered_map<std::string, std::int32_t> ids_;
};

}  // namespace stagegpt
