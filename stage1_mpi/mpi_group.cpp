#include "stage1_mpi/mpi_group.h"

#include <array>

#include "common/base/error.h"
#include "common/comm/agreement.h"
#include "stage1_mpi/mpi_check.h"

namespace stagegpt {

MpiGroup::MpiGroup(MpiSession& session, MPI_Comm comm) : session_(session) {
  check_mpi(MPI_Comm_dup(comm, &comm_), "MPI_Comm_dup");
  check_mpi(MPI_Comm_rank(comm_, &rank_), "MPI_Comm_rank");
  check_mpi(MPI_Comm_size(comm_, &size_), "MPI_Comm_size");
  std::array<char, MPI_MAX_PROCESSOR_NAME> host = {};
  int length = 0;
  check_mpi(MPI_Get_processor_name(host.data(), &length), "MPI_Get_processor_name");
  for (const auto& name : gather(*this, host)) hosts_.emplace_back(name.data());
}

MpiGroup::~MpiGroup() { MPI_Comm_free(&comm_); }

std::unique_ptr<MpiGroup> MpiGroup::part(int color, int key) {
  MPI_Comm comm = MPI_COMM_NULL;
  check_mpi(MPI_Comm_split(comm_, color, key, &comm), "MPI_Comm_split");
  auto part = std::make_unique<MpiGroup>(session_, comm);
  MPI_Comm_free(&comm);
  return part;
}

void MpiGroup::barrier() {
  const Watchdog::Waiting waiting(watchdog());
  check_mpi(MPI_Barrier(comm_), "MPI_Barrier");
}

void MpiGroup::broadcast(std::span<std::byte> bytes, int root) {
  const Watchdog::Waiting waiting(watchdog());
  for_each_message(bytes, [&](std::byte* data, int count) {
    check_mpi(MPI_Bcast(data, count, MPI_BYTE, root, comm_), "MPI_Bcast");
  });
}

void MpiGroup::all_gather(std::span<const std::byte> own, std::span<std::byte> all) {
  check(all.size() == own.size() * static_cast<std::size_t>(size_) && own.size() <= kMessage,
        "all_gather: ", own.size(), " bytes of each into ", all.size());
  const Watchdog::Waiting waiting(watchdog());
  const int count = static_cast<int>(own.size());
  check_mpi(MPI_Allgather(own.data(), count, MPI_BYTE, all.data(), count, MPI_BYTE, comm_), "MPI_Allgather");
}

MpiGroup::Signal MpiGroup::signal_others(Signal signal) { return from_root(*this, signal); }

void MpiGroup::beat() {
  constexpr auto kInterval = std::chrono::milliseconds(100);
  watchdog().beat();
  const auto now = std::chrono::steady_clock::now();
  if (!others_wait_ || now - last_signal_ < kInterval) return;
  last_signal_ = now;
  signal_others(Signal::progress);
}

void MpiGroup::while_root_works(const std::function<void()>& body) {
  if (is_root()) {
    others_wait_ = size_ > 1;
    body();
    others_wait_ = false;
    signal_others(Signal::done);
    return;
  }
  // Each signal is a separate wait for the watchdog.
  while (signal_others(Signal::done) != Signal::done) {
  }
}

void MpiGroup::send(std::span<const std::byte> bytes, int to) {
  const Watchdog::Waiting waiting(watchdog());
  for_each_message(bytes, [&](const std::byte* data, int count) {
    check_mpi(MPI_Send(data, count, MPI_BYTE, to, 0, comm_), "MPI_Send");
  });
}

void MpiGroup::receive(std::span<std::byte> bytes, int from) {
  const Watchdog::Waiting waiting(watchdog());
  for_each_message(bytes, [&](std::byte* data, int count) {
    check_mpi(MPI_Recv(data, count, MPI_BYTE, from, 0, comm_, MPI_STATUS_IGNORE), "MPI_Recv");
  });
}

}  // namespace stagegpt
