// Flags and values of earlier versions that are gone. On a command line and in --config they are refused,
// with what takes their place; a run that was begun with them goes on with that.
#pragma once

#include <string>
#include <vector>

#include "common/base/json_fwd.h"

namespace stagegpt {

// Each throws UserError where a flag, or this value of it, is gone.
void refuse_removed_flag(const std::string& flag);
void refuse_removed_value(const std::string& flag, const std::string& value);

// Whether the flag of this key is gone and the value means what is always done now, so that nothing changes
// without it. Throws UserError for its other values.
bool is_removed_default(const std::string& key, const nlohmann::json& value);

// Replaces removed values in the settings of a run, and leaves out those of removed flags. Returns a line
// for each that is no default.
std::vector<std::string> replace_removed(Json& settings);

}  // namespace stagegpt
