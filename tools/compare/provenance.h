// The environment of a comparison: machine, compiler, libraries, source.
#pragma once

#include <cstdint>
#include <string>

#include "common/app/version.h"
#include "common/base/json_fwd.h"

namespace stagegpt::compare {

// An object of objects; unknown values are null. It contains no host or user name. `mpi` is the launcher's
// version, `version` that of the programs.
Json find_provenance(const std::string& mpi, const Version& version);

// Cores that this process may use.
std::int64_t usable_cores();

}  // namespace stagegpt::compare
