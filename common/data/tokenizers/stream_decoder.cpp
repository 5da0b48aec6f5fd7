#include "common/data/tokenizers/stream_decoder.h"

#include "common/data/utf8.h"

namespace stagegpt {

std::string StreamDecoder::push(std::int32_t id) {
  std::string text = std::exchange(pending_, {}) + tokenizer_.decode({&id, 1});
  const std::size_t whole = utf8_complete(text);
  pending_ = text.substr(whole);
  text.resize(whole);
  return text;
}

}  // namespace stagegpt
