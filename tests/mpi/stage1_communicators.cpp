#include "stage0_serial/naive_backend.h"
#include "stage1_mpi/mpi_communicator.h"
#include "tests/support/communicators.h"
#include "tests/support/mpi_ranks.h"

namespace stagegpt::test {
namespace {

CommunicatorUnderTest by(std::string name, CommAlgorithm algorithm) {
  return {std::move(name), make_naive_backend,
          [=](Backend& backend) { return make_mpi_communicator(ranks(), backend, algorithm); }};
}

}  // namespace

const std::vector<CommunicatorUnderTest>& communicators_under_test() {
  static const std::vector<CommunicatorUnderTest> all = {by("ring", CommAlgorithm::ring),
                                                         by("mpi", CommAlgorithm::mpi)};
  return all;
}

}  // namespace stagegpt::test
