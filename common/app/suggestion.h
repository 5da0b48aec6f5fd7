// "Did you mean …?"
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace stagegpt {

// ", did you mean X?" for the flag that other programs call by the given name, or the name nearest to it
// where one is near; else nothing.
std::string suggestion(std::string_view given, const std::vector<std::string>& names);

}  // namespace stagegpt
