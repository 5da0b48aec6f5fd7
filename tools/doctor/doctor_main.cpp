// doctor: reports what this machine has for training, and how to get what is missing.
#include <unistd.h>

#include <csignal>
#include <iostream>

#include "common/app/command_line.h"
#include "common/system/subprocess.h"
#include "tools/doctor/build_facts.h"
#include "tools/doctor/disk_and_memory.h"
#include "tools/doctor/gpu.h"
#include "tools/doctor/mpi.h"
#include "tools/doctor/processor.h"

namespace stagegpt {
namespace {

// This program is compiled like the others. So on another processor it may stop at an unknown instruction,
// before it can report that.
void on_unknown_instruction(int) {
  constexpr std::string_view kMessage =
      "problem  instructions      these programs were built for another processor\n"
      "                           -> configure and build on this machine: cmake --preset release\n";
  _exit(write(STDOUT_FILENO, kMessage.data(), kMessage.size()) > 0 ? 1 : 2);
}

Findings examine_all() {
  const BuildFacts build = build_facts();
  GpuFacts gpus;
  Findings all = {judge_build(build)};
  const auto look = [&](const char* subject, const std::function<Findings()>& probe) {
    for (Finding& finding : examine(subject, probe)) all.push_back(std::move(finding));
  };
  look("processor", [] { return judge_processor(processor_facts()); });
  look("OpenMP", [] { return Findings{judge_threads(thread_facts())}; });
  look("BLAS", [] { return Findings{examine_blas()}; });
  look("memory", [] { return Findings{judge_memory(memory_facts(), memory_needs())}; });
  look("disk", [] {
    return Findings{judge_disk(disk_facts(std::filesystem::current_path()), gpt2_checkpoint_bytes())};
  });
  look("GPU", [&] {
    gpus = ask_nvidia_smi();
    return judge_gpus(gpus, build);
  });
  look("MPI", [&] { return judge_mpi(ask_mpirun(), !gpus.gpus.empty()); });
  look("NCCL", [&] { return Findings{judge_nccl(ask_nccl(), gpus.gpus.size())}; });
  look("programs", [&] {
    const std::filesystem::path here = own_directory();
    return judge_programs(programs_in(here), build, here.parent_path());
  });
  return all;
}

int doctor_main(int argc, char** argv) {
  bool json = false;
  CommandLine command_line(argv[0],
                           "Report what this machine has for training, and how to get what is missing. The "
                           "exit code is 0 if stage 0 can train, else 1.",
                           std::nullopt);
  command_line.version(built_version());
  command_line.group("Output", CommandLine::Concerns::this_call);
  command_line.toggle("--json", json, "print one JSON object");
  if (!command_line.parse(argc, argv)) return 0;
  const Findings findings = examine_all();
  std::cout << (json ? to_json_text(findings) : to_text(findings));
  return stage0_runs(findings) ? 0 : 1;
}

}  // namespace
}  // namespace stagegpt

int main(int argc, char** argv) {
  std::signal(SIGILL, stagegpt::on_unknown_instruction);
  return stagegpt::run_program(argv[0], [&] { return stagegpt::doctor_main(argc, argv); });
}
