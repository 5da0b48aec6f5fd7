// Declares the types of JSON, for headers that only name them. json.h defines them, which takes long to
// compile.
#pragma once

#include <nlohmann/json_fwd.hpp>

namespace stagegpt {

// Keeps keys in the order in which they were added. Used for all JSON that is written; parse_json() returns
// sorted keys.
using Json = nlohmann::ordered_json;

}  // namespace stagegpt
