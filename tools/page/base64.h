// Base64 (RFC 4648), for bytes inside a page.
#pragma once

#include <cstdint>
#include <span>
#include <string>

namespace stagegpt {

std::string base64(std::span<const std::uint8_t> bytes);

}  // namespace stagegpt
