// --comm zero2: what a rank keeps of the gradients, and when. The sums over ranks are tested in tests/mpi.
#include <gtest/gtest.h>

#include "common/model/gpt2.h"
#include "stage0_serial/naive_backend.h"
#include "stage1_mpi/sync/zero2_sync.h"
#include "tests/support/counting_communicator.h"
#include "tests/support/tensors.h"
#include "tests/support/tolerance.h"

namespace stagegpt::test {
namespace {

constexpr std::int64_t kSequences = 2, kLength = 20, kWords = 101;

// Rank 1 of 3, whose reductions leave a bucket as it is.
class Zero2 : public testing::Test {
 protected:
  Gpt2 model(Purpose purpose, const std::vector<std::string>& frozen = {}) {
    const Gpt2Config config{.vocab_size = kWords,
                            .block_size = kLength,
                            .n_layer = 2,
                            .n_head = 3,
                            .n_embd = 48,
                            .frozen = frozen};
    Gpt2 model(*backend_, config, DType::f64, ranks_.size(), purpose);
    model.parameters().initialize(1);
    return model;
  }
  Tensor ids(std::uint32_t stream) {
    return to_device<std::int32_t>(*backend_, {kSequences, kLength},
                                   random_ids(1, stream, kSequences * kLength, kWords));
  }
  void backward(Gpt2& model, std::uint32_t micro_step, const Tape::ReadyHook& ready) {
    Tape tape(*backend_);
    const Var loss = model.loss(tape, ids(2 * micro_step), ids(2 * micro_step + 1));
    if (ready) tape.on_leaf_ready(ready);
    tape.backward(loss);
  }

  const std::unique_ptr<Backend> backend_ = make_naive_backend();
  AlikeRanks ranks_{1, 3};
  CountingCommunicator communicator_{ranks_, backend_.get()};
  Zero2Sync sync_{communicator_, *backend_, /*bucket_bytes=*/24 << 10};  // one tenth of the arena
};

TEST_F(Zero2, AddsTheMicroStepsOfAStepToItsSlices) {
  for (const std::vector<std::string>& frozen : {std::vector<std::string>{}, {"wpe*", "*.mlp.*"}}) {
    Gpt2 whole = model(Purpose::training, frozen), divided = model(sync_.purpose(), frozen);
    Parameters& parameters = divided.parameters();
    const ArenaParts owned = sync_.owned(parameters.weights().numel());
    ASSERT_GT(owned.size(), 5u);
    parameters.divide_grads(owned);
    for (const std::uint32_t step : {0, 1}) {
      whole.parameters().clear_grads();
      for (const std::uint32_t micro_step : {0, 1, 2}) {
        backward(whole, 3 * step + micro_step, {});
        parameters.clear_grads();
        backward(divided, 3 * step + micro_step, [&](int i) { sync_.ready(parameters, i); });
        micro_step < 2 ? sync_.finish_micro_step(parameters) : sync_.finish(parameters);
      }
      for (const ArenaRange& part : owned) {
        const Values expected = to_values(*backend_, whole.parameters().grads(part));
        EXPECT_LE(relative_error(to_values(*backend_, parameters.grads(part)), expected), 1e-12)
            << "step " << step << ", frozen " << frozen.size();
      }
    }
  }
}

// The largest parameter, two buckets that are reduced and one that is packed; afterwards, nothing but its
// slices.
TEST_F(Zero2, KeepsNoGradientsOfOthers) {
  Gpt2 divided = model(sync_.purpose());
  Parameters& parameters = divided.parameters();
  const std::size_t without = backend_->memory_stats().bytes_in_use;
  parameters.divide_grads(sync_.owned(parameters.weights().numel()));
  const std::size_t before = backend_->memory_stats().bytes_in_use;
  const double third = static_cast<double>(parameters.weights().bytes()) / 3;
  EXPECT_NEAR(static_cast<double>(before - without), third, 0.1 * third);  // as the allocator rounds it
  for (int i = 0; i < 2; ++i) {
    parameters.clear_grads();
    backward(divided, 0, [&](int parameter) {
      sync_.ready(parameters, parameter);
      EXPECT_LE(communicator_.under_way(), 2);
    });
    sync_.finish(parameters);
    EXPECT_EQ(backend_->memory_stats().bytes_in_use, before);
  }
  EXPECT_EQ(communicator_.most_under_way(), 2);
  EXPECT_EQ(communicator_.bytes("reduce_scatter"), 2 * parameters.weights().bytes());
}

TEST_F(Zero2, RefusesElementsOfOtherRanks) {
  Gpt2 divided = model(sync_.purpose());
  Parameters& parameters = divided.parameters();
  parameters.divide_grads(sync_.owned(parameters.weights().numel()));
  EXPECT_THROW(parameters.grads(ArenaRange{0, parameters.weights().numel()}), InternalError);
}

}  // namespace
}  // namespace stagegpt::test
