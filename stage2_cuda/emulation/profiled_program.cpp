// --emulator-report in a program whose kernels are not instrumented: another program counts.
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "common/base/error.h"
#include "stage2_cuda/emulation/report.h"

namespace stagegpt::gpu::emulation {
namespace {

// The program's arguments, with the name that it was started by.
std::vector<std::string> own_arguments() {
  std::ifstream in("/proc/self/cmdline", std::ios::binary);
  std::vector<std::string> arguments;
  for (std::string argument; std::getline(in, argument, '\0');) arguments.push_back(argument);
  return arguments;
}

}  // namespace

std::unique_ptr<Report> start_report(const std::filesystem::path&, const std::optional<std::string>&) {
  constexpr std::string_view kSuffix = "_emulated";
  std::string program = std::filesystem::read_symlink("/proc/self/exe").string();
  if (program.ends_with(kSuffix)) program.resize(program.size() - kSuffix.size());
  program += "_profiled";
  if (!std::filesystem::exists(program)) {
    user_error("--emulator-report: needs the program ", program,
               ", which is not installed and which g++ builds, without sanitizers, on request: "
               "cmake --build BUILD --target ",
               std::filesystem::path(program).filename().string());
  }
  std::vector<std::string> arguments = own_arguments();
  std::vector<char*> pointers;
  for (std::string& argument : arguments) pointers.push_back(argument.data());
  pointers.push_back(nullptr);
  execv(program.c_str(), pointers.data());
  throw std::runtime_error(concat("cannot run ", program, ": ", std::strerror(errno)));
}

}  // namespace stagegpt::gpu::emulation
