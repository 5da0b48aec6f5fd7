// Declares the types of JSON, for headers that only name them. json.h defines them, which takes long to
// compile.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace stagegpt {

// Keeps keys in the order in which they were added. Used for all JSON that is written; parse_json() returns
// sorted keys.
using Json = nlohmann::ordered_json;

// JSON as it is printed and written, with a newline at the end; in one line if `indent` is -1. Bytes that are
// not UTF-8, which a path or a prompt may hold, are replaced.
std::string json_text(const Json& json, int indent = 2);

}  // namespace stagegpt
