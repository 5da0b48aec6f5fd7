// Tensors whose size exceeds an int: 2^31 bytes and more, and 2^30 elements and more. Two ranks and MPI's
// buffers need up to 9 GiB.
#include <gtest/gtest.h>

#include "stage0_serial/naive_backend.h"
#include "stage1_mpi/mpi_communicator.h"
#include "tests/support/mpi_ranks.h"

namespace stagegpt::test {
namespace {

constexpr std::int64_t kBytesOverflow = 550'000'004;                     // elements; 2.2 GB
constexpr std::int64_t kElementsOverflow = (std::int64_t{1} << 30) + 7;  // elements; 4.3 GB

class LargeMessages : public testing::Test {
 protected:
  static float element(int rank, std::int64_t i) { return static_cast<float>((i % 1009) * (rank + 1)); }
  static float sum(std::int64_t i) { return element(0, i) + element(1, i); }

  Tensor own_elements(std::int64_t n) {
    const Tensor tensor = backend_->allocate(DType::f32, {n});
    float* data = tensor.data<float>();
    for (std::int64_t i = 0; i < n; ++i) data[i] = element(ranks().rank(), i);
    return tensor;
  }
  template <class F>
  static void expect_elements(const Tensor& tensor, std::int64_t begin, std::int64_t end, const F& f) {
    const float* data = tensor.data<float>();
    for (std::int64_t i = begin; i < end; ++i) {
      if (data[i] == f(i)) continue;
      ADD_FAILURE() << "element " << i << ": " << data[i] << ", not " << f(i);
      return;
    }
  }

  const std::unique_ptr<Backend> backend_ = make_naive_backend();
  const std::unique_ptr<Communicator> communicator_ =
      make_mpi_communicator(ranks(), *backend_, CommAlgorithm::ring);
};

TEST_F(LargeMessages, are_broadcast) {
  const Tensor tensor = own_elements(kBytesOverflow);
  communicator_->broadcast(tensor, 1);
  expect_elements(tensor, 0, kBytesOverflow, [](std::int64_t i) { return element(1, i); });
}

TEST_F(LargeMessages, are_broadcast_among_ranks) {
  const Tensor tensor = own_elements(kBytesOverflow);
  ranks().broadcast(std::span(static_cast<std::byte*>(tensor.raw()), tensor.bytes()), 1);
  expect_elements(tensor, 0, kBytesOverflow, [](std::int64_t i) { return element(1, i); });
}

TEST_F(LargeMessages, are_sent) {
  const Tensor tensor = own_elements(kElementsOverflow);
  (ranks().is_root() ? communicator_->send(tensor, 1) : communicator_->receive(tensor, 0))->wait();
  expect_elements(tensor, 0, kElementsOverflow, [](std::int64_t i) { return element(0, i); });
}

class LargeReductions : public LargeMessages, public testing::WithParamInterface<CommAlgorithm> {};

TEST_P(LargeReductions, are_summed) {
  const Tensor tensor = own_elements(kBytesOverflow);
  const auto communicator = make_mpi_communicator(ranks(), *backend_, GetParam());
  communicator->all_reduce(tensor)->wait();
  expect_elements(tensor, 0, kBytesOverflow, sum);
}

TEST_P(LargeReductions, are_scattered_and_gathered) {
  const Tensor tensor = own_elements(kBytesOverflow);
  const auto communicator = make_mpi_communicator(ranks(), *backend_, GetParam());
  const std::int64_t half = kBytesOverflow / 2, begin = ranks().rank() * half;
  communicator->reduce_scatter(tensor)->wait();
  expect_elements(tensor, begin, begin + half, sum);
  communicator->all_gather(tensor)->wait();
  expect_elements(tensor, 0, kBytesOverflow, sum);
}

INSTANTIATE_TEST_SUITE_P(By, LargeReductions, testing::Values(CommAlgorithm::ring, CommAlgorithm::mpi),
                         [](const auto& test) { return test.param == CommAlgorithm::ring ? "ring" : "mpi"; });

}  // namespace
}  // namespace stagegpt::test
