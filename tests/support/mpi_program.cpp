#include "tests/support/mpi_program.h"

#include <unistd.h>

#include <algorithm>
#include <map>

namespace stagegpt::test {
namespace {

namespace fs = std::filesystem;

// A file of a process in /proc; empty if the process has ended.
std::string process_file(const fs::path& process, const char* name) { return read_bytes(process / name); }

bool is_alive(const fs::path& process) {
  const std::string stat = process_file(process, "stat");
  const std::size_t name_end = stat.rfind(')');
  return name_end != std::string::npos && stat.substr(name_end, 4).find('Z') == std::string::npos;
}

// The rank of a process that mpirun has started, else -1.
int rank_of(const fs::path& process) {
  constexpr std::string_view kRank = "OMPI_COMM_WORLD_RANK=";
  const std::string environment = process_file(process, "environ");
  const std::size_t at = environment.find(kRank);
  return at == std::string::npos ? -1 : std::stoi(environment.substr(at + kRank.size()));
}

}  // namespace

std::vector<std::string> ranks_of(int ranks, const std::string& program) {
  return {"-np",
          std::to_string(ranks),
          "--oversubscribe",
          "--bind-to",
          "none",
          "-x",
          "MALLOC_PERTURB_=128",
          fs::path(STAGEGPT_BIN_DIR) / program};
}

ProgramResult run_mpi(const std::vector<std::string>& arguments, const fs::path& directory,
                      const RunOptions& options) {
  RunOptions with_root = options;
  for (const char* name :
       {"OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "OMPI_MCA_mpi_yield_when_idle"}) {
    with_root.environment.emplace_back(name, "1");
  }
  // Without this, Open MPI looks for network adapters for 0.2 s.
  with_root.environment.emplace_back("OMPI_MCA_pml", "ob1");
  // Only ranks have MALLOC_PERTURB_ (see ranks_of): mpirun itself reads uninitialised memory when a rank
  // aborts, and would crash.
  with_root.environment.emplace_back("MALLOC_PERTURB_", "0");
  // Leaks are checked by the tests in tests/mpi. At a program's end, leaks of the MPI library cannot be
  // distinguished from ours.
  with_root.environment.emplace_back("ASAN_OPTIONS", "detect_leaks=0");
  return run_program(STAGEGPT_MPIEXEC, arguments, directory, with_root);
}

std::vector<pid_t> ranks_in(const fs::path& directory) {
  std::map<int, pid_t> ranks;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator("/proc")) {
    const std::string name = entry.path().filename();
    if (!std::ranges::all_of(name, [](unsigned char c) { return std::isdigit(c) != 0; })) continue;
    if (fs::read_symlink(entry.path() / "cwd", error) != fs::canonical(directory)) continue;
    const int rank = rank_of(entry.path());
    if (rank >= 0 && is_alive(entry.path())) ranks[rank] = std::stoi(name);
  }
  std::vector<pid_t> pids;
  for (const auto& [rank, pid] : ranks) pids.push_back(pid);
  return pids;
}

bool all_end(const fs::path& directory) {
  constexpr int kTries = 100, kMicroseconds = 50'000;
  for (int i = 0; i < kTries; ++i) {
    if (ranks_in(directory).empty()) return true;
    usleep(kMicroseconds);
  }
  return false;
}

}  // namespace stagegpt::test
