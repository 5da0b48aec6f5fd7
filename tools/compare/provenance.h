// What a comparison ran on: machine, compiler, libraries, source.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "common/base/json.h"

namespace stagegpt::compare {

// An object of objects; what cannot be found out is null. No name of the host or the user is in it. `mpi` is
// what the launcher says of itself, `source` the folder of the source code.
Json find_provenance(const std::string& mpi, const std::string& source);

// Cores that this process may use.
std::int64_t usable_cores();

// The value of the first line "KEY: value" or "KEY=value" of a text, without quotes; empty where there is
// none.
std::string value_of(const std::string& text, const std::string& key);

}  // namespace stagegpt::compare
