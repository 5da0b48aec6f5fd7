// Rings within and across nodes: their bytes and messages against the formulas of
// hierarchical_communicator.h, and the order of their additions. The ranks of this machine are divided into
// nodes.
#include <gtest/gtest.h>
#include <mpi.h>

#include <chrono>

#include "common/base/seconds_since.h"
#include "common/comm/agreement.h"
#include "stage0_serial/cpu_backend.h"
#include "stage1_mpi/communication.h"
#include "tests/support/mpi_ranks.h"
#include "tests/support/refusal.h"
#include "tests/support/tensors.h"

namespace stagegpt::test {
namespace {

// What this rank sends to ranks of its node and to others.
struct Traffic {
  std::int64_t bytes = 0, messages = 0;
};
Traffic within, across;
int node_size = 1;

// The rank among all ranks of a rank of `comm`.
int rank_among_all(MPI_Comm comm, int rank) {
  MPI_Group part, all;
  PMPI_Comm_group(comm, &part);
  PMPI_Comm_group(MPI_COMM_WORLD, &all);
  int translated = -1;
  PMPI_Group_translate_ranks(part, 1, &rank, all, &translated);
  PMPI_Group_free(&part);
  PMPI_Group_free(&all);
  return translated;
}

}  // namespace
}  // namespace stagegpt::test

// Replaces the library's function through MPI's profiling interface, and counts the bytes.
int MPI_Isend(const void* data, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm,
              MPI_Request* request) {
  using namespace stagegpt::test;
  int size = 0;
  PMPI_Type_size(type, &size);
  const bool is_near = rank_among_all(comm, to) / node_size == ranks().rank() / node_size;
  Traffic& traffic = is_near ? within : across;
  traffic.bytes += std::int64_t{count} * size;
  ++traffic.messages;
  return PMPI_Isend(data, count, type, to, tag, comm, request);
}

namespace stagegpt::test {
namespace {

constexpr std::int64_t kFloat = sizeof(float);
// Slices have more than 1,024 bytes: shorter ones are gathered by the library, which is not counted.

// L ranks on each of M nodes: nodes of two ranks, or two nodes.
class Hierarchical : public testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    node_size = L_;
    within = across = {};
  }
  std::unique_ptr<Communicator> with(const Network& network) {
    return make_communicator(
        ranks(), *backend_,
        {.algorithm = CommAlgorithm::hierarchical, .ranks_per_node = L_, .network = network}, nullptr);
  }
  static std::int64_t over_ranks(std::int64_t own) {
    std::int64_t sum = 0;
    for (const std::int64_t part : gather(ranks(), own)) sum += part;
    return sum;
  }

  const int n_ = ranks().size(), L_ = GetParam() ? 2 : n_ / 2, M_ = n_ / L_;
  const std::unique_ptr<Backend> backend_ = make_cpu_backend(1);
  const std::unique_ptr<Communicator> communicator_ = with({});
};

TEST_P(Hierarchical, AllReduceSendsASliceOfANodeAcrossNodes) {
  for (const std::int64_t slice : {1000, 70000}) {
    const std::int64_t bytes = slice * n_ * kFloat;
    within = across = {};
    communicator_->all_reduce(backend_->zeros(DType::f32, {slice * n_}))->wait();
    EXPECT_EQ(within.bytes, 2 * (L_ - 1) * bytes / L_);
    EXPECT_EQ(across.bytes, 2 * (M_ - 1) * bytes / L_ / M_);
  }
}

// The latencies: one message for each step of a ring whose slices fit into a chunk.
TEST_P(Hierarchical, AllReduceHasTheStepsOfTwoRings) {
  communicator_->all_reduce(backend_->zeros(DType::f32, {1000 * n_}))->wait();
  EXPECT_EQ(within.messages, 2 * (L_ - 1));
  EXPECT_EQ(across.messages, 2 * (M_ - 1));
}

// All local ranks reduce the elements that cannot be divided among them.
TEST_P(Hierarchical, AllReduceSendsWhatDoesNotDivideFromEachRank) {
  for (const std::int64_t size : {1, 10003, 1000003}) {
    within = across = {};
    communicator_->all_reduce(backend_->zeros(DType::f32, {size}))->wait();
    const std::int64_t rest = size % L_, divided = size - rest;
    EXPECT_EQ(over_ranks(within.bytes), M_ * 2 * (L_ - 1) * (divided + rest) * kFloat);
    EXPECT_EQ(over_ranks(across.bytes), 2 * (M_ - 1) * (divided + L_ * rest) * kFloat);
  }
}

TEST_P(Hierarchical, ReduceScatterAndAllGatherSendHalfOfThat) {
  for (const std::int64_t slice : {1000, 70000}) {
    const Tensor tensor = backend_->zeros(DType::f32, {slice * n_});
    const std::int64_t bytes = slice * n_ * kFloat;
    for (const auto collective : {&Communicator::reduce_scatter, &Communicator::all_gather}) {
      within = across = {};
      ((*communicator_).*collective)(tensor)->wait();
      EXPECT_EQ(within.bytes, (L_ - 1) * bytes / L_);
      EXPECT_EQ(across.bytes, (M_ - 1) * bytes / L_ / M_);
    }
  }
}

// A ring adds slice s in the order of the ranks after s, and s at last.
float in_ring_order(const std::vector<float>& of_ranks, int s) {
  const int n = static_cast<int>(of_ranks.size());
  const auto at = [&](int i) { return of_ranks[static_cast<std::size_t>((s + i) % n)]; };
  float sum = at(1);
  for (int i = 2; i <= n; ++i) sum = at(i) + sum;
  return sum;
}

// The bits: a sum over each node in the order of a ring, then over nodes in the order of a ring.
TEST_P(Hierarchical, AllReduceAddsWithinNodesFirst) {
  const std::int64_t slice = 5, size = slice * n_;
  const auto elements = [&](int rank) { return random_values(1, static_cast<std::uint32_t>(rank), size); };
  const Tensor tensor = to_tensor(*backend_, DType::f32, {size}, elements(ranks().rank()));
  communicator_->all_reduce(tensor)->wait();
  const std::vector<float> got = to_host<float>(*backend_, tensor);
  for (std::int64_t i = 0; i < size; ++i) {
    const int local = static_cast<int>(i / (slice * M_)), node = static_cast<int>(i / slice) % M_;
    std::vector<float> of_nodes;
    for (int m = 0; m < M_; ++m) {
      std::vector<float> of_ranks;
      for (int l = 0; l < L_; ++l)
        of_ranks.push_back(static_cast<float>(elements(m * L_ + l)[static_cast<std::size_t>(i)]));
      of_nodes.push_back(in_ring_order(of_ranks, local));
    }
    EXPECT_EQ(got[static_cast<std::size_t>(i)], in_ring_order(of_nodes, node)) << "element " << i;
  }
}

// An all-reduce has 2(M-1) latencies of the network between nodes. Messages within a node are not delayed:
// with the second network, they would take years.
TEST_P(Hierarchical, ASlowNetworkIsBetweenNodes) {
  const auto begin = std::chrono::steady_clock::now();
  with({.latency = 3e-3})->all_reduce(backend_->zeros(DType::f32, {n_}))->wait();
  EXPECT_GE(seconds_since(begin), 2 * (M_ - 1) * 3e-3);
  const std::unique_ptr<Communicator> slow = with({.latency = 1e9});
  const int node = ranks().rank() / L_, local = ranks().rank() % L_;
  const Tensor own = backend_->allocate(DType::f32, {1}), other = backend_->allocate(DType::f32, {1});
  backend_->fill(own, ranks().rank());
  const int next = node * L_ + (local + 1) % L_, before = node * L_ + (local + L_ - 1) % L_;
  const auto receiving = slow->receive(other, before), sending = slow->send(own, next);
  receiving->wait();
  sending->wait();
  EXPECT_EQ(to_host<float>(*backend_, other), std::vector<float>{static_cast<float>(before)});
}

// The second operation cannot start a step before the first one.
TEST_P(Hierarchical, CanWaitForALaterOperationFirst) {
  const Tensor a = backend_->allocate(DType::f32, {4 * n_}), b = backend_->allocate(DType::f32, {4 * n_});
  backend_->fill(a, 1);
  backend_->fill(b, 2);
  const std::unique_ptr<Pending> first = communicator_->all_reduce(a);
  std::vector<std::unique_ptr<Pending>> second;
  second.push_back(communicator_->all_reduce(b));
  communicator_->wait_all(second);
  EXPECT_EQ(to_host<float>(*backend_, b), std::vector<float>(static_cast<std::size_t>(4 * n_), 2.0f * n_));
  first->wait();
  EXPECT_EQ(to_host<float>(*backend_, a), std::vector<float>(static_cast<std::size_t>(4 * n_), 1.0f * n_));
}

TEST_P(Hierarchical, RefusesABroadcastBetweenTheStepsOfAnother) {
  const Tensor tensor = backend_->zeros(DType::f32, {4 * n_});
  const std::unique_ptr<Pending> sum = communicator_->all_reduce(tensor);
  EXPECT_THROW(communicator_->broadcast(tensor, 0), InternalError);
  sum->wait();
}

TEST_P(Hierarchical, IsDescribed) {
  EXPECT_EQ(description(ranks(), {.algorithm = CommAlgorithm::hierarchical,
                                  .ranks_per_node = L_,
                                  .network = {.latency = 1e-4}}),
            concat(", hierarchical: ", M_, " nodes of ", L_, " ranks; network delayed: 100 µs"));
}

INSTANTIATE_TEST_SUITE_P(With, Hierarchical, testing::Bool(),
                         [](const auto& test) { return test.param ? "nodes_of_two" : "two_nodes"; });

TEST(RanksPerNode, MustDivideTheRanks) {
  EXPECT_EQ(refusal([] { ranks_per_node(ranks(), 5); }),
            concat("--ranks-per-node: ", ranks().size(), " ranks cannot be divided into nodes of 5"));
}

// All ranks of this machine share memory; a single node needs no levels.
TEST(RanksPerNode, AreThoseThatShareMemory) {
  EXPECT_EQ(ranks_per_node(ranks(), 0), ranks().size());
  const Communication communication{.algorithm = CommAlgorithm::hierarchical};
  EXPECT_EQ(description(ranks(), communication),
            concat(", hierarchical: 1 node of ", ranks().size(), " ranks"));
  const std::unique_ptr<Backend> backend = make_cpu_backend(1);
  node_size = ranks().size();
  within = {};
  make_communicator(ranks(), *backend, communication, nullptr)
      ->all_reduce(backend->zeros(DType::f32, {ranks().size()}))
      ->wait();
  EXPECT_EQ(within.messages, 2 * (ranks().size() - 1));
}

}  // namespace
}  // namespace stagegpt::test
