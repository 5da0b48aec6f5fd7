#include "tools/doctor/mpi.h"

#include <sstream>

#include "common/base/error.h"
#include "common/system/subprocess.h"

namespace stagegpt {
namespace {

constexpr double kLauncherSeconds = 20;  // mpirun may wait for another machine

SubprocessResult run(std::vector<std::string> argv, bool as_root) {
  Subprocess subprocess{.argv = std::move(argv), .timeout_seconds = kLauncherSeconds};
  if (as_root)
    subprocess.environment = {{"OMPI_ALLOW_RUN_AS_ROOT", "1"}, {"OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"}};
  return run_subprocess(subprocess);
}

Finding judge_launcher(const MpiFacts& facts) {
  if (!facts.version) {
    return {"MPI", Finding::Mark::note, "mpirun not found",
            "stages 1 and 3 need it: ./scripts/setup.sh installs Open MPI"};
  }
  if (!facts.failure.empty()) {
    return {"MPI", Finding::Mark::problem, "mpirun does not run: " + facts.failure,
            "install it again: ./scripts/setup.sh"};
  }
  if (facts.refuses_root) {
    return {"MPI", Finding::Mark::problem, *facts.version + ", which refuses to run as root",
            "in a container: export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1"};
  }
  return {"MPI", Finding::Mark::ok, *facts.version};
}

Finding judge_slots(int slots) {
  const std::string found = concat(slots, slots == 1 ? " rank" : " ranks", " without --oversubscribe");
  if (slots > 1) return {"MPI slots", Finding::Mark::ok, found};
  return {"MPI slots", Finding::Mark::note, found,
          "to start more ranks than that: mpirun --oversubscribe -np 2"};
}

Finding judge_cuda_awareness(bool aware) {
  if (aware) return {"CUDA-aware MPI", Finding::Mark::ok, "yes"};
  return {"CUDA-aware MPI", Finding::Mark::note, "no",
          "stage 3's ranks exchange gradients through host memory or NCCL; --transport selects one"};
}

}  // namespace

std::string parse_mpirun_version(std::string_view output) {
  std::string line(output.substr(0, output.find('\n')));
  const std::size_t open = line.find('('), close = line.find(')');
  if (open == std::string::npos || close < open) return line.empty() ? "unknown MPI" : line;
  return line.substr(open + 1, close - open - 1) + line.substr(close + 1);  // "mpirun (Open MPI) 4.1.4"
}

bool refuses_root(std::string_view errors) { return errors.find("run as root") != std::string_view::npos; }

int count_slots(std::string_view output) {
  std::istringstream lines{std::string(output)};
  int slots = 0;
  for (std::string line; std::getline(lines, line);) slots += line == "slot";
  return slots;
}

std::optional<bool> parse_cuda_awareness(std::string_view output) {
  constexpr std::string_view kKey = "mpi_built_with_cuda_support:value:";
  const std::size_t at = output.find(kKey);
  if (at == std::string_view::npos) return std::nullopt;
  return output.substr(at + kKey.size()).starts_with("true");
}

MpiFacts ask_mpirun() {
  MpiFacts facts;
  if (!find_program("mpirun")) return facts;
  const SubprocessResult version = run({"mpirun", "--version"}, true);
  facts.version = parse_mpirun_version(version.output);
  if (version.exit_code != 0) {
    facts.failure = version.timed_out ? "no answer" : last_lines(version.errors, 1);
    if (facts.failure.empty()) facts.failure = concat("exit code ", version.exit_code);
    return facts;
  }
  if (!facts.version->starts_with("Open MPI")) return facts;
  const SubprocessResult probe = run({"mpirun", "true"}, false);
  facts.refuses_root = probe.exit_code != 0 && refuses_root(probe.errors);
  const SubprocessResult slots = run({"mpirun", "sh", "-c", "echo slot"}, true);
  if (slots.exit_code == 0) facts.slots = count_slots(slots.output);
  if (find_program("ompi_info")) {
    facts.cuda_aware = parse_cuda_awareness(run({"ompi_info", "--parsable", "--all"}, true).output);
  }
  return facts;
}

Findings judge_mpi(const MpiFacts& facts, bool has_gpu) {
  Findings findings = {judge_launcher(facts)};
  if (facts.slots) findings.push_back(judge_slots(*facts.slots));
  if (facts.cuda_aware && has_gpu) findings.push_back(judge_cuda_awareness(*facts.cuda_aware));
  return findings;
}

}  // namespace stagegpt
