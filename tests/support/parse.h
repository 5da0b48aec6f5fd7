// Reads a command line in the process of a test.
#pragma once

#include <string>
#include <vector>

#include "common/app/command_line.h"

namespace stagegpt::test {

// As CommandLine::parse(), of arguments without the program's name.
inline bool parse(CommandLine& command_line, const std::vector<std::string>& arguments) {
  std::vector<const char*> argv{"program"};
  for (const std::string& argument : arguments) argv.push_back(argument.c_str());
  return command_line.parse(static_cast<int>(argv.size()), argv.data());
}

}  // namespace stagegpt::test
