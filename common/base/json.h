// JSON from a person or a file, read strictly.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "common/base/error.h"

namespace stagegpt {

// Keys stay in the order in which they were added: for all that is written. parse_json() sorts them.
using Json = nlohmann::ordered_json;

// Throws UserError, in one line, for text that is not JSON, has a key twice in one object
// or is nested more than 64 deep.
nlohmann::json parse_json(std::string_view text);

// The value, which may not be converted from another kind: of a number out of range, or a fraction, that is
// undefined. Throws UserError, calling it `what`, for anything but a whole number that is not negative.
std::uint64_t natural_number(const nlohmann::json& json, std::string_view what);

// What nlohmann's exception says, in one line, without its number.
std::string json_message(const nlohmann::json::exception& error);

// Returns read(), which takes values out of JSON. Throws UserError where one is missing or of another type.
template <class Read>
auto read_json(const Read& read) {
  try {
    return read();
  } catch (const nlohmann::json::exception& error) {
    user_error(json_message(error));
  }
}

}  // namespace stagegpt
