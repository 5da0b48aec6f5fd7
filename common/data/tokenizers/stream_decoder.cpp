#include "common/data/tokenizers/stream_decoder.h"

#include <utility>

#include "common/data/utf8.h"

namespace stagegpt {

std::string StreamDecoder::push_bytes(std::string_view bytes) {
  pending_ += bytes;
  const std::size_t whole = utf8_complete(pending_);
  const std::string text = utf8_replaced(std::string_view(pending_).substr(0, whole));
  pending_.erase(0, whole);
  return text;
}

std::string StreamDecoder::finish() { return utf8_replaced(std::exchange(pending_, {})); }

}  // namespace stagegpt
