// Checks MPI by running mpirun, because doctor is not linked with MPI.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "tools/doctor/finding.h"

namespace stagegpt {

struct MpiFacts {
  std::optional<std::string> version = {};  // "Open MPI 4.1.4"; empty if there is no mpirun
  std::string failure = {};                 // error message of mpirun
  bool refuses_root = false;
  std::optional<int> slots = {};  // number of processes that it starts without --oversubscribe
  std::optional<bool> cuda_aware = {};
};

// Parses the output of `mpirun --version`.
std::string parse_mpirun_version(std::string_view output);
// Whether mpirun has refused to run as root.
bool refuses_root(std::string_view errors);
// Counts lines "slot": without -np, Open MPI starts one process per slot.
int count_slots(std::string_view output);
// Parses the output of `ompi_info --parsable --all`; empty if it is not in there.
std::optional<bool> parse_cuda_awareness(std::string_view output);

MpiFacts ask_mpirun();
Findings judge_mpi(const MpiFacts& facts, bool has_gpu);

}  // namespace stagegpt
