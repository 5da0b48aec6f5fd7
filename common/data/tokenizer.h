// Text to token ids and back.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace stagegpt {

class Tokenizer {
 public:
  virtual ~Tokenizer() = default;
  // Throws UserError for text that the vocabulary cannot express.
  virtual std::vector<std::int32_t> encode(std::string_view text) const = 0;
  // Ids must be below size().
  virtual std::string decode(std::span<const std::int32_t> ids) const = 0;
  virtual std::int64_t size() const = 0;
};

}  // namespace stagegpt
