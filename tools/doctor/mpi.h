// mpirun, asked as a user would: these programs are not linked with MPI.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "tools/doctor/finding.h"

namespace stagegpt {

struct MpiFacts {
  std::optional<std::string> version = {};  // "Open MPI 4.1.4"; nothing where there is no mpirun
  std::string failure = {};                 // what mpirun complains of
  bool refuses_root = false;
  std::optional<int> slots = {};  // processes that it starts without --oversubscribe
  std::optional<bool> cuda_aware = {};
};

// Of what `mpirun --version` prints.
std::string parse_mpirun_version(std::string_view output);
// Whether it has refused to run as root.
bool refuses_root(std::string_view errors);
// The number of lines "slot": without -np, Open MPI starts a process in each slot.
int count_slots(std::string_view output);
// Of what `ompi_info --parsable --all` prints; nothing where it does not say.
std::optional<bool> parse_cuda_awareness(std::string_view output);

MpiFacts ask_mpirun();
Findings judge_mpi(const MpiFacts& facts, bool has_gpu);

}  // namespace stagegpt
