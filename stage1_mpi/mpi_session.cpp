#include "stage1_mpi/mpi_session.h"

#include <fcntl.h>
#include <mpi.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <iostream>

#include "stage1_mpi/mpi_check.h"

namespace stagegpt {
namespace {

void silence_output() {
  const int nowhere = open("/dev/null", O_WRONLY | O_CLOEXEC);
  if (nowhere < 0 || dup2(nowhere, STDOUT_FILENO) < 0) throw std::runtime_error("cannot open /dev/null");
  close(nowhere);
  std::cerr.rdbuf(nullptr);  // standard error stays open, for end_all() and the system's messages
}

}  // namespace

MpiSession::MpiSession() {
  // Without mpirun, Open MPI would start a daemon, for programs that this one might start.
  setenv("OMPI_MCA_ess_singleton_isolated", "1", /*overwrite=*/0);
  int provided = MPI_THREAD_SINGLE;
  check_mpi(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &provided), "MPI_Init_thread");
  check_mpi(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  if (provided < MPI_THREAD_FUNNELED)
    throw std::runtime_error("this MPI library does not support threads (MPI_THREAD_FUNNELED)");
  check_mpi(MPI_Comm_rank(MPI_COMM_WORLD, &rank_), "MPI_Comm_rank");
  check_mpi(MPI_Comm_size(MPI_COMM_WORLD, &size_), "MPI_Comm_size");
  watchdog_ = std::make_unique<Watchdog>(MPI_COMM_WORLD);
  if (rank_ != 0) silence_output();
}

MpiSession::~MpiSession() {
  watchdog_.reset();
  MPI_Finalize();
}

void MpiSession::end_all(const std::string& why, int exit_code) const {
  if (size_ == 1) return;
  std::fprintf(stderr, "%s: rank %d: %s\n", program_invocation_short_name, rank_, why.c_str());
  std::fflush(nullptr);
  MPI_Abort(MPI_COMM_WORLD, exit_code);
}

}  // namespace stagegpt
