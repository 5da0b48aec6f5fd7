#include "common/brief_waits.h"

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

namespace stagegpt {

void wait_briefly() {
  if (std::getenv("GOMP_SPINCOUNT") != nullptr || std::getenv("OMP_WAIT_POLICY") != nullptr) return;
  std::error_code error;
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", error);
  std::ifstream command_line("/proc/self/cmdline");
  std::vector<std::string> arguments;
  for (std::string argument; std::getline(command_line, argument, '\0');) arguments.push_back(argument);
  if (error || arguments.empty()) return;  // without /proc, threads spin longer

  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  setenv("GOMP_SPINCOUNT", "2000", /*overwrite=*/0);
  execv(program.c_str(), argv.data());
}

}  // namespace stagegpt
