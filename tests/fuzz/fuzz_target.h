// A fuzz target parses a file of one kind: for any bytes, it returns or throws UserError.
// LLVMFuzzerTestOneInput() calls it with bytes from libFuzzer, or from a corpus (replay.cpp).
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "common/base/error.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace stagegpt::test {

inline std::span<const std::byte> bytes_of(const std::uint8_t* data, std::size_t size) {
  return std::as_bytes(std::span(data, size));
}
inline std::string_view text_of(const std::uint8_t* data, std::size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

// Calls read(), which may throw only UserError, and then use() with the result, which may not throw.
template <class Read, class Use>
int read_then_use(const Read& read, const Use& use) {
  auto value = [&]() -> std::optional<decltype(read())> {
    try {
      return read();
    } catch (const UserError&) {
      return std::nullopt;
    }
  }();
  if (value) use(*value);
  return 0;
}

}  // namespace stagegpt::test
