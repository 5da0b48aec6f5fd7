// Checks the return codes of MPI calls.
#pragma once

#include <mpi.h>

#include <stdexcept>
#include <string>

namespace stagegpt {

// Throws std::runtime_error, which names the call, unless `code` is MPI_SUCCESS.
inline void check_mpi(int code, const char* call) {
  if (code == MPI_SUCCESS) return;
  char reason[MPI_MAX_ERROR_STRING];
  int length = 0;
  MPI_Error_string(code, reason, &length);
  throw std::runtime_error(std::string(call) + ": " + std::string(reason, static_cast<std::size_t>(length)));
}

}  // namespace stagegpt
