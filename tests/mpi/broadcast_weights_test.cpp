// All ranks start with the same weights.
#include <gtest/gtest.h>

#include "common/comm/agreement.h"
#include "common/model/gpt2.h"
#include "common/train/compare_weights.h"
#include "stage0_serial/naive_backend.h"
#include "stage1_mpi/mpi_communicator.h"
#include "tests/support/counting_communicator.h"
#include "tests/support/mpi_ranks.h"
#include "tests/support/refusal.h"

namespace stagegpt::test {
namespace {

class BroadcastWeights : public testing::Test {
 protected:
  // Every rank begins with different weights.
  BroadcastWeights() { parameters_.initialize(static_cast<std::uint64_t>(ranks().rank())); }

  std::vector<float> weights() { return to_host<float>(*backend_, parameters_.weights()); }

  const std::unique_ptr<Backend> backend_ = make_naive_backend();
  Parameters parameters_{
      *backend_,
      gpt2_parameter_table({.vocab_size = 101, .block_size = 20, .n_layer = 1, .n_head = 3, .n_embd = 48}),
      DType::f32, ranks().size()};
};

TEST_F(BroadcastWeights, makes_them_those_of_rank_0) {
  const auto communicator = make_mpi_communicator(ranks(), *backend_, CommAlgorithm::ring);
  std::vector<float> expected = weights();
  ranks().broadcast(std::as_writable_bytes(std::span(expected)), 0);
  broadcast_weights(*communicator, *backend_, parameters_);
  EXPECT_EQ(weights() == expected, true);
}

TEST_F(BroadcastWeights, random_ones_are_those_of_one_process) {
  const auto communicator = make_mpi_communicator(ranks(), *backend_, CommAlgorithm::ring);
  parameters_.initialize(7);
  const std::vector<float> expected = weights();
  backend_->fill(parameters_.weights(), 0);
  draw_weights(*communicator, *backend_, parameters_, 7, 2);
  EXPECT_EQ(weights() == expected, true);
}

// Weights that differ after the broadcast are not a user's mistake.
TEST_F(BroadcastWeights, fails_on_all_ranks_when_a_rank_has_others_after_it) {
  if (ranks().size() == 1) GTEST_SKIP() << "there are no others";
  CountingCommunicator broken(ranks());  // transfers no data
  const std::string message =
      message_of<AgreedFailure>([&] { broadcast_weights(broken, *backend_, parameters_); });
  EXPECT_NE(message.find(" 1 ("), std::string::npos) << message;
  EXPECT_THROW(draw_weights(broken, *backend_, parameters_, 7, 1), AgreedFailure);
}

// Weights are hashed in blocks of 2^20 elements; the test changes elements around a block's end.
TEST_F(BroadcastWeights, are_compared_to_the_last_element) {
  if (ranks().size() == 1) GTEST_SKIP() << "there are no others";
  ParameterTable table;
  table.add({"large", {(1 << 19) + 64, 2}, (1 << 19) + 64});
  CountingCommunicator broken(ranks());  // transfers no data
  Parameters large(*backend_, table, DType::f32, 1, Purpose::inference);
  EXPECT_NO_THROW(broadcast_weights(broken, *backend_, large));
  for (const std::int64_t element : {(1 << 20) - 1, 1 << 20, (1 << 20) + 127}) {
    backend_->fill(large.weights().slice(element, {1}), ranks().rank());
    EXPECT_THROW(broadcast_weights(broken, *backend_, large), AgreedFailure) << element;
    backend_->fill(large.weights(), 0);
  }
}

}  // namespace
}  // namespace stagegpt::test
