// JSON from a person or a file, read strictly.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "common/error.h"

namespace stagegpt {

// Throws UserError, in one line, for text that is not JSON, has a key twice in one object
// or is nested more than 64 deep.
nlohmann::json parse_json(std::string_view text);

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
