// "Did you mean …?"
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace stagegpt {

// ", did you mean X?" for the name nearest to what was given, where one is near; else nothing.
std::string suggestion(std::string_view given, const std::vector<std::string>& names);

}  // namespace stagegpt
