// The communication of each gradient synchronisation, compared with theory.
#include "common/comm/gradient_sync.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "common/comm/tree_sync.h"
#include "common/model/gpt2.h"
#include "stage0_serial/naive_backend.h"
#include "stage1_mpi/gradient_syncs.h"
#include "stage1_mpi/mpi_flags.h"
#include "stage1_mpi/sync/bucketed_sync.h"
#include "stage1_mpi/sync/buckets.h"
#include "stage1_mpi/sync/overlapped_sync.h"
#include "stage1_mpi/sync/zero1_overlapped_sync.h"
#include "tests/support/counting_communicator.h"
#include "tests/support/parse.h"
#include "tests/support/tensors.h"

namespace stagegpt::test {
namespace {

using Calls = std::vector<CommunicatorCall>;

constexpr std::int64_t kSmallBucket = 24 << 10;  // one tenth of the arena

// Gradient synchronisation on rank 1 of `size` ranks.
class GradientSyncTest : public testing::Test {
 protected:
  explicit GradientSyncTest(int size = 3) : ranks_(1, size) {}

  std::unique_ptr<GradientSync> make(const std::string& name) {
    return make_gradient_sync(name, communicator_, *backend_);
  }
  // A step in which gradients become ready in the given order.
  void step(GradientSync& sync, const std::vector<int>& order) {
    communicator_.clear();
    for (const int i : order) sync.ready(parameters_, i);
    sync.finish(parameters_);
    EXPECT_EQ(communicator_.under_way(), 0);
    EXPECT_EQ(communicator_.held(), 0) << "operations that are complete";
  }
  std::vector<int> backward_order() const {
    std::vector<int> order(parameters_.table().size());
    std::iota(order.rbegin(), order.rend(), 0);
    return order;
  }
  Calls calls_of_step(const std::string& name) {
    step(*make(name), backward_order());
    return communicator_.calls();
  }
  CommunicatorCall call(const char* name, const Tensor& tensor) const {
    return {name, tensor.raw(), tensor.bytes()};
  }
  CommunicatorCall reduction(ArenaRange range) const {
    return call("all_reduce", grads().slice(range.begin, {range.size()}));
  }
  Calls reductions_of_buckets(std::int64_t bytes) const {
    Calls calls;
    const Buckets buckets(parameters_.table(), bytes);
    for (const Bucket& bucket : buckets.all()) calls.push_back(reduction(bucket.range));
    return calls;
  }
  const Tensor& grads() const { return parameters_.grads(); }

  const std::unique_ptr<Backend> backend_ = make_naive_backend();
  AlikeRanks ranks_;
  CountingCommunicator communicator_{ranks_, backend_.get()};
  Parameters parameters_{
      *backend_,
      gpt2_parameter_table({.vocab_size = 101, .block_size = 20, .n_layer = 2, .n_head = 3, .n_embd = 48}),
      DType::f32, ranks_.size()};
};

// --comm selects the calls of the communicator, --comm-algorithm their implementation.
TEST_F(GradientSyncTest, is_what_the_flags_ask_for) {
  const auto parsed = [](const std::vector<std::string>& arguments) {
    auto flags = std::make_unique<MpiFlags>();
    CommandLine command_line("stage1_train", "", 1);
    flags->add(command_line);
    parse(command_line, arguments);
    return flags;
  };
  for (const std::string& name : gradient_sync_names())
    EXPECT_EQ(parsed({"--comm", name})->gradient_sync(), name);
  EXPECT_NE(dynamic_cast<BucketedSync*>(make("bucketed").get()), nullptr);
  EXPECT_NE(dynamic_cast<OverlappedSync*>(make("overlapped").get()), nullptr);
  EXPECT_NE(dynamic_cast<Zero1OverlappedSync*>(make("zero1-overlapped").get()), nullptr);
  EXPECT_EQ(parsed({})->algorithm(), CommAlgorithm::ring);
  EXPECT_EQ(parsed({"--comm-algorithm", "ring"})->algorithm(), CommAlgorithm::ring);
  EXPECT_EQ(parsed({"--comm-algorithm", "mpi"})->algorithm(), CommAlgorithm::mpi);
  EXPECT_EQ(parsed({"--comm-latency", "250"})->network().latency, 250e-6);
  EXPECT_EQ(parsed({"--comm-bandwidth", "2"})->network().seconds_per_byte, 4e-9);
  EXPECT_FALSE(parsed({})->network().delays());
  EXPECT_EQ(parsed({})->description(), "");
  EXPECT_EQ(parsed({"--comm-latency", "100"})->description(), "; network delayed: 100 µs");
  EXPECT_EQ(parsed({"--watchdog-seconds", "2.5"})->watchdog_seconds(), 2.5);
}

TEST_F(GradientSyncTest, per_tensor_has_a_reduction_for_each_parameter) {
  Calls expected;
  for (const Parameter& row : parameters_.table().rows()) {
    expected.push_back(reduction({row.offset, row.offset + row.arena_shape().numel()}));
  }
  EXPECT_EQ(calls_of_step("per-tensor"), expected);
  EXPECT_EQ(communicator_.most_under_way(), 1);
}

TEST_F(GradientSyncTest, flat_has_one_of_the_arena) {
  EXPECT_EQ(calls_of_step("flat"), Calls{call("all_reduce", grads())});
}

TEST_F(GradientSyncTest, bucketed_has_all_buckets_at_once) {
  BucketedSync sync(communicator_, *backend_, kSmallBucket);
  step(sync, backward_order());
  EXPECT_EQ(communicator_.calls(), reductions_of_buckets(kSmallBucket));
  EXPECT_EQ(communicator_.most_under_way(), std::ssize(communicator_.calls()));
}

TEST_F(GradientSyncTest, overlapped_begins_with_a_bucket_when_it_is_complete) {
  OverlappedSync sync(communicator_, *backend_, kSmallBucket);
  const Buckets buckets(parameters_.table(), kSmallBucket);
  for (int step = 0; step < 2; ++step) {
    communicator_.clear();
    for (const int i : backward_order()) {
      sync.ready(parameters_, i);
      // The parameters from i on are ready.
      const std::size_t bucket = buckets.first_of(i);
      const bool complete = buckets.all()[bucket].range.begin == parameters_.table()[i].offset;
      ASSERT_EQ(communicator_.calls().size(), bucket + (complete ? 1 : 0)) << "parameter " << i;
    }
    sync.finish(parameters_);
    EXPECT_EQ(communicator_.calls(), reductions_of_buckets(kSmallBucket));
    EXPECT_EQ(communicator_.most_under_way(), std::ssize(buckets.all()));
    EXPECT_EQ(communicator_.under_way(), 0);
  }
}

TEST_F(GradientSyncTest, overlapped_has_one_order_whatever_becomes_ready_first) {
  OverlappedSync sync(communicator_, *backend_, kSmallBucket);
  const Buckets buckets(parameters_.table(), kSmallBucket);
  std::vector<int> order = backward_order();
  for (int turn = 0; turn < 20; ++turn) {
    for (std::size_t i = order.size(); i > 1; --i) {
      std::swap(order[i - 1], order[random_word({3, static_cast<std::uint32_t>(turn), 0}, i) % i]);
    }
    communicator_.clear();
    std::vector<int> ready(buckets.all().size());
    for (const int i : order) {
      ++ready[buckets.first_of(i)];
      sync.ready(parameters_, i);
      for (std::size_t begun = 0; begun < communicator_.calls().size(); ++begun) {
        ASSERT_EQ(ready[begun], buckets.all()[begun].parameters) << "begun before it was complete";
      }
    }
    EXPECT_EQ(communicator_.calls(), reductions_of_buckets(kSmallBucket)) << "not all before finish()";
    sync.finish(parameters_);
    EXPECT_EQ(communicator_.calls(), reductions_of_buckets(kSmallBucket));
  }
}

// MPI makes progress only inside its calls.
TEST_F(GradientSyncTest, overlapped_advances_what_is_under_way_with_each_gradient) {
  OverlappedSync overlapped(communicator_, *backend_, kSmallBucket);
  Zero1OverlappedSync zero1(communicator_, *backend_, kSmallBucket);
  for (GradientSync* sync : {static_cast<GradientSync*>(&overlapped), static_cast<GradientSync*>(&zero1)}) {
    for (const int i : backward_order()) {
      const int before = communicator_.advanced(), under_way = communicator_.under_way();
      sync->ready(parameters_, i);
      EXPECT_GE(communicator_.advanced() - before, under_way) << "parameter " << i;
    }
    sync->finish(parameters_);
  }
}

TEST_F(GradientSyncTest, overlapped_reduces_what_was_never_ready_too) {
  OverlappedSync sync(communicator_, *backend_, kSmallBucket);
  for (const std::vector<int>& order : {std::vector<int>{}, {3}, {0, 27, 5}}) {
    step(sync, order);
    EXPECT_EQ(communicator_.calls(), reductions_of_buckets(kSmallBucket));
  }
}

TEST_F(GradientSyncTest, zero1_scatters_gradients_and_gathers_weights) {
  const std::unique_ptr<GradientSync> sync = make("zero1");
  step(*sync, backward_order());
  EXPECT_EQ(communicator_.calls(), Calls{call("reduce_scatter", grads())});
  communicator_.clear();
  sync->share_weights(parameters_);
  EXPECT_EQ(communicator_.calls(), Calls{call("all_gather", parameters_.weights())});
  EXPECT_EQ(communicator_.under_way(), 0);
}

TEST_F(GradientSyncTest, zero1_owns_a_slice_and_the_others_all) {
  const std::int64_t size = grads().numel();
  for (const std::string& name : gradient_sync_names()) {
    const bool divides = name.starts_with("zero1");
    const ArenaParts owned = make(name)->owned(size);
    ASSERT_EQ(owned.size(), 1u) << name;
    EXPECT_EQ(owned[0].begin, divides ? size / 3 : 0) << name;
    EXPECT_EQ(owned[0].end, divides ? 2 * size / 3 : size) << name;
  }
}

// Rank 1 of 3 owns the second third of each bucket, in ascending order; the three together own all elements.
TEST_F(GradientSyncTest, zero1_overlapped_owns_a_slice_of_each_bucket) {
  const std::int64_t size = grads().numel();
  const std::vector<ArenaRange> buckets = divisible_ranges(size, 3, kSmallBucket);
  ASSERT_GT(buckets.size(), 5u);
  const ArenaParts owned = Zero1OverlappedSync(communicator_, *backend_, kSmallBucket).owned(size);
  ASSERT_EQ(owned.size(), buckets.size());
  for (std::size_t i = 0; i < owned.size(); ++i) {
    const ArenaRange& bucket = buckets[buckets.size() - 1 - i];
    EXPECT_EQ(owned[i].begin, bucket.begin + bucket.size() / 3);
    EXPECT_EQ(owned[i].end, bucket.begin + 2 * bucket.size() / 3);
  }
  EXPECT_EQ(3 * total_size(owned), size);
}

TEST_F(GradientSyncTest, zero1_overlapped_begins_with_a_bucket_when_it_is_complete) {
  Zero1OverlappedSync sync(communicator_, *backend_, kSmallBucket);
  const std::vector<ArenaRange> buckets = divisible_ranges(grads().numel(), 3, kSmallBucket);
  Calls scatters, gathers;
  for (const ArenaRange& range : buckets) {
    scatters.push_back(call("reduce_scatter", grads().slice(range.begin, {range.size()})));
    gathers.push_back(call("all_gather", parameters_.weights().slice(range.begin, {range.size()})));
  }
  for (int step = 0; step < 2; ++step) {
    communicator_.clear();
    for (const int i : backward_order()) {
      sync.ready(parameters_, i);
      // The gradients from parameter i on are ready: those of the buckets that begin there or behind it.
      const std::int64_t complete = parameters_.table()[static_cast<std::size_t>(i)].offset;
      const auto begun =
          std::ranges::count_if(buckets, [&](const ArenaRange& range) { return range.begin >= complete; });
      ASSERT_EQ(std::ssize(communicator_.calls()), begun) << "parameter " << i;
    }
    sync.finish(parameters_);
    EXPECT_EQ(communicator_.calls(), scatters);
    EXPECT_EQ(communicator_.most_under_way(), std::ssize(scatters));
    EXPECT_EQ(communicator_.under_way(), 0);
    communicator_.clear();
    sync.share_weights(parameters_);
    EXPECT_EQ(communicator_.calls(), gathers);
    EXPECT_EQ(communicator_.most_under_way(), std::ssize(gathers));
    EXPECT_EQ(communicator_.under_way(), 0);
  }
}

TEST_F(GradientSyncTest, zero1_overlapped_scatters_what_was_never_ready_too) {
  Zero1OverlappedSync sync(communicator_, *backend_, kSmallBucket);
  for (const std::vector<int>& order : {std::vector<int>{}, {3}, {0, 27, 5}}) {
    step(sync, order);
    EXPECT_EQ(communicator_.bytes("reduce_scatter"), grads().bytes());
  }
}

// In bf16, what ops read is sent: the shadow, and layernorms in f32. All weights in f32 are sent on request.
TEST_F(GradientSyncTest, zero1_sends_the_shadow) {
  Parameters parameters(*backend_, parameters_.table(), DType::f32, ranks_.size(), Purpose::training,
                        DType::bf16);
  const std::size_t norms = 5 * 2 * 48 * sizeof(float);  // two in each block, one at the end
  const std::int64_t slice = parameters.weights().numel() / ranks_.size();
  const Tensor own = parameters.shadow().slice(slice, {slice});
  set_values(*backend_, own, random_values(1, 0, slice));
  for (const std::string name : {"zero1", "zero1-overlapped"}) {
    const std::unique_ptr<GradientSync> sync = make(name);
    communicator_.clear();
    sync->share_weights(parameters);
    EXPECT_EQ(communicator_.calls().size(), 2u) << name;
    EXPECT_EQ(communicator_.most_under_way(), 2) << name;
    EXPECT_EQ(communicator_.bytes("all_reduce"), norms) << name;
    EXPECT_EQ(communicator_.calls().back(), call("all_gather", parameters.shadow())) << name;
    for (int rank = 0; rank < ranks_.size(); ++rank)
      EXPECT_EQ(to_values(*backend_, parameters.shadow().slice(rank * slice, {slice})),
                to_values(*backend_, own));
    communicator_.clear();
    sync->gather_weights(parameters);
    EXPECT_EQ(communicator_.calls(), Calls{call("all_gather", parameters.weights())}) << name;
    EXPECT_EQ(communicator_.under_way(), 0) << name;
    communicator_.clear();
    sync->gather_weights(parameters_);
    EXPECT_EQ(communicator_.calls(), Calls{}) << name << ": in f32 they are there";
  }
}

// The only rank has updated all weights and their shadow.
TEST_F(GradientSyncTest, zero1_of_one_rank_packs_no_layernorms) {
  AlikeRanks one(0, 1);
  CountingCommunicator communicator(one, backend_.get());
  Parameters parameters(*backend_, parameters_.table(), DType::f32, 1, Purpose::training, DType::bf16);
  for (const std::string name : {"zero1", "zero1-overlapped"}) {
    make_gradient_sync(name, communicator, *backend_)->share_weights(parameters);
    EXPECT_EQ(communicator.bytes("all_reduce"), 0u) << name;
  }
}

// With zero1, each rank has the squared norm of its own part, so these must be added. In this test all ranks
// have the same value.
TEST_F(GradientSyncTest, zero1_sums_the_norm_over_ranks) {
  const Tensor norm = to_tensor(*backend_, DType::f64, {1}, {2.5});
  make("flat")->sum_squared_norms(norm, norm);
  EXPECT_EQ(to_value(*backend_, norm), 2.5);
  make("zero1")->sum_squared_norms(norm, norm);
  EXPECT_EQ(to_value(*backend_, norm), 7.5);
  const Tensor parts = to_tensor(*backend_, DType::f64, {3}, {1, 0.25, 2});
  make("zero1-overlapped")->sum_squared_norms(norm, parts);
  EXPECT_EQ(to_value(*backend_, norm), 9.75);
  EXPECT_EQ(communicator_.bytes("all_gather"), 2 * 3 * sizeof(double));
}

TEST_F(GradientSyncTest, reports_the_bytes_of_a_step) {
  for (const std::string& name : gradient_sync_names()) {
    const std::unique_ptr<GradientSync> sync = make(name);
    for (int i = 0; i < 2; ++i) {
      step(*sync, backward_order());
      const std::size_t given = communicator_.bytes("all_reduce") + communicator_.bytes("reduce_scatter");
      const CommunicationReport report = sync->take_report();
      EXPECT_EQ(report.bytes_reduced, static_cast<std::int64_t>(given)) << name;
      EXPECT_GT(report.seconds_under_way, 0) << name;
    }
  }
}

class TreeSyncTest : public GradientSyncTest, public testing::WithParamInterface<int> {
 protected:
  TreeSyncTest() : GradientSyncTest(1 << GetParam()) {}
};

// Halves are whole blocks, so they may differ by a block at each level.
TEST_P(TreeSyncTest, sends_what_the_others_keep) {
  TreeSync sync(communicator_, *backend_);
  const std::int64_t size = grads().numel(), N = ranks_.size();
  const std::int64_t block = backend_->norm_block() * std::int64_t{sizeof(float)};
  for (int i = 0; i < 2; ++i) {
    step(sync, backward_order());
    const auto owned = total_size(sync.owned(size)) * std::int64_t{sizeof(float)};
    const auto arena = static_cast<std::int64_t>(grads().bytes());
    EXPECT_EQ(static_cast<std::int64_t>(communicator_.bytes("send")), arena - owned);
    EXPECT_NEAR(static_cast<double>(owned), static_cast<double>(arena / N), static_cast<double>(block));
    EXPECT_NEAR(static_cast<double>(communicator_.bytes("receive")), static_cast<double>(arena * (N - 1) / N),
                static_cast<double>(GetParam() * block));
    const CommunicationReport report = sync.take_report();
    EXPECT_EQ(report.bytes_reduced, arena);
    EXPECT_GT(report.seconds_under_way, 0);
  }
}

// All ranks together own all elements, each rank whole blocks. Rank 1 owns the upper half's first part: the
// nearest rank divides first.
TEST_P(TreeSyncTest, divides_the_arena_by_its_nearest_rank_first) {
  const std::int64_t block = backend_->norm_block(), N = ranks_.size(), size = 2 * N * block + 64 * N;
  ArenaParts all;
  for (int rank = 0; rank < N; ++rank) {
    AlikeRanks ranks(rank, static_cast<int>(N));
    CountingCommunicator communicator(ranks);
    const ArenaParts owned = TreeSync(communicator, *backend_).owned(size);
    ASSERT_EQ(owned.size(), 1u);
    EXPECT_EQ(owned[0].begin % block, 0);
    all.push_back(owned[0]);
  }
  EXPECT_EQ(all[0].begin, 0);
  EXPECT_EQ(all[1].begin, (N + 1) * block);
  std::ranges::sort(all, {}, &ArenaRange::begin);
  for (std::size_t i = 1; i < all.size(); ++i) EXPECT_EQ(all[i].begin, all[i - 1].end);
  EXPECT_EQ(all.back().end, size);
}

INSTANTIATE_TEST_SUITE_P(Levels, TreeSyncTest, testing::Values(1, 2, 3));

}  // namespace
}  // namespace stagegpt::test
