// Strict reading of JSON from files and users.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "common/base/error.h"
#include "common/base/json_fwd.h"

namespace stagegpt {

// Throws UserError, with a message of one line, if the text is not JSON, an object has a duplicate key, or
// values are nested more than 64 levels deep.
nlohmann::json parse_json(std::string_view text);
// Parses one line of JSON Lines. The caller names the line; a message of this one has only the column.
nlohmann::json parse_json_line(std::string_view line);

// The value of a non-negative integer. Nothing is converted: nlohmann's conversion of a fraction or a number
// out of range is undefined. Throws UserError, which names the value `what`, for anything else.
std::uint64_t natural_number(const nlohmann::json& json, std::string_view what);

// The message of an exception of nlohmann, in one line, without its error number.
std::string json_message(const nlohmann::json::exception& error);

// Null for a value that is not there, or for an empty text.
template <class T>
Json or_null(const std::optional<T>& value) {
  return value ? Json(*value) : Json();
}
inline Json or_null(const std::string& text) { return text.empty() ? Json() : Json(text); }

// Returns read(), which extracts values from JSON. Throws UserError if a value is missing or has another
// type.
template <class Read>
auto read_json(const Read& read) {
  try {
    return read();
  } catch (const nlohmann::json::exception& error) {
    user_error(json_message(error));
  }
}

}  // namespace stagegpt
