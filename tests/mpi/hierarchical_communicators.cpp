#include "stage0_serial/naive_backend.h"
#include "stage1_mpi/communication.h"
#include "tests/support/communicators.h"
#include "tests/support/mpi_ranks.h"

namespace stagegpt::test {
namespace {

CommunicatorUnderTest with_nodes_of(std::string name, const std::function<int()>& ranks_per_node) {
  return {std::move(name), make_naive_backend, [=](Backend& backend) {
            return make_communicator(
                ranks(), backend,
                {.algorithm = CommAlgorithm::hierarchical, .ranks_per_node = ranks_per_node()}, nullptr);
          }};
}

}  // namespace

const std::vector<CommunicatorUnderTest>& communicators_under_test() {
  static const std::vector<CommunicatorUnderTest> all = {
      with_nodes_of("nodes_of_two", [] { return 2; }),
      with_nodes_of("two_nodes", [] { return ranks().size() / 2; })};
  return all;
}

}  // namespace stagegpt::test
