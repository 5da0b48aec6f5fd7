#include "tools/compare/provenance.h"

#include <sched.h>
#include <sys/utsname.h>

#include <algorithm>
#include <chrono>
#include <ctime>
#include <thread>

#include "common/base/error.h"
#include "common/base/json.h"
#include "common/system/free_memory.h"
#include "common/system/subprocess.h"
#include "common/system/system_files.h"

namespace stagegpt::compare {
namespace {

// The output of a program; empty if it does not exist, or fails.
std::string output_of(const std::vector<std::string>& argv) {
  constexpr double kSeconds = 20;
  try {
    const SubprocessResult result = run_subprocess({.argv = argv, .timeout_seconds = kSeconds});
    return result.exit_code == 0 ? result.output : "";
  } catch (const std::runtime_error&) {
    return "";
  }
}

// The lines of a text, in one.
std::string in_one_line(std::string text) {
  while (text.ends_with('\n')) text.pop_back();
  for (std::size_t at = text.find('\n'); at != text.npos; at = text.find('\n', at)) text.replace(at, 1, "; ");
  return text;
}

Json processor() {
  const std::string cpu = system_file("/proc/cpuinfo");
  const auto memory = meminfo_bytes(system_file("/proc/meminfo"), "MemTotal");
  std::string model = value_of(cpu, "model name");
  if (const std::string family = value_of(cpu, "cpu family"); !family.empty()) {
    model += concat(" (family ", family, " model ", value_of(cpu, "model"), ")");
  }
  return {
      {"processor", or_null(model)},
      {"cores_online", std::thread::hardware_concurrency()},
      {"cores_usable", usable_cores()},
      {"memory_bytes", memory ? Json(static_cast<std::int64_t>(*memory)) : Json()},
      {"gpus", or_null(in_one_line(output_of({"nvidia-smi", "--query-gpu=name,memory.total,driver_version",
                                              "--format=csv,noheader"})))}};
}

Json system() {
  utsname name{};
  const bool known = uname(&name) == 0;
  return {{"system", or_null(value_of(system_file("/etc/os-release"), "PRETTY_NAME"))},
          {"kernel", known ? Json(concat(name.sysname, " ", name.release, " ", name.machine)) : Json()}};
}

Json build() {
  return {
      {"compiler", STAGEGPT_COMPILER}, {"flags", STAGEGPT_CXX_FLAGS}, {"build_type", STAGEGPT_BUILD_TYPE}};
}

Json source(const Version& version) {
  if (version.commit.empty()) return {{"commit", nullptr}, {"changed", nullptr}};
  return {{"commit", version.commit}, {"changed", version.changed}};
}

std::string now() {
  const std::time_t time = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
  std::tm utc{};
  gmtime_r(&time, &utc);
  char text[32];
  const std::size_t length = std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &utc);
  return {text, length};
}

}  // namespace

Json find_provenance(const std::string& mpi, const Version& version) {
  const std::string cuda = value_of(output_of({"nvidia-smi", "-q"}), "CUDA Version");
  return {{"date", now()},
          {"machine", processor()},
          {"system", system()},
          {"build", build()},
          {"libraries",
           {{"mpi", or_null(mpi)},
            {"cuda_toolkit", or_null(STAGEGPT_CUDA_TOOLKIT)},
            {"cuda_of_driver", or_null(cuda)}}},
          {"source", source(version)}};
}

std::int64_t usable_cores() {
  cpu_set_t cores;
  if (sched_getaffinity(0, sizeof cores, &cores) == 0) return CPU_COUNT(&cores);
  return std::max(1u, std::thread::hardware_concurrency());
}

}  // namespace stagegpt::compare
