// The bytes that ranks send, counted in the calls of MPI and compared with theory: 2(N-1)/N of a tensor's
// bytes for an all-reduce, half of that for a reduce-scatter or an all-gather.
#include <gtest/gtest.h>
#include <mpi.h>

#include "common/backend/op_observer.h"
#include "common/backend/ops/elementwise.h"
#include "common/comm/agreement.h"
#include "common/comm/tree_sync.h"
#include "common/parallel/parts.h"
#include "stage0_serial/host_memory.h"
#include "tests/mpi/small_run.h"

namespace stagegpt::test {
namespace {

struct Sent {
  std::int64_t bytes = 0, messages = 0;
  bool only_to_the_next = true;
  int last_tag = -1, highest_tag = -1;
} sent;

}  // namespace
}  // namespace stagegpt::test

// Replaces the library's function through MPI's profiling interface, and counts the bytes.
int MPI_Isend(const void* data, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm,
              MPI_Request* request) {
  using namespace stagegpt::test;
  int size = 0;
  PMPI_Type_size(type, &size);
  sent.bytes += std::int64_t{count} * size;
  ++sent.messages;
  sent.last_tag = tag;
  sent.highest_tag = std::max(sent.highest_tag, tag);
  sent.only_to_the_next = sent.only_to_the_next && to == (ranks().rank() + 1) % ranks().size();
  return PMPI_Isend(data, count, type, to, tag, comm, request);
}

namespace stagegpt::test {
namespace {

using Collective = std::unique_ptr<Pending> (Communicator::*)(const Tensor&);

class Traffic : public testing::Test {
 protected:
  void SetUp() override { sent = {}; }

  // The bytes that this rank sends in one collective operation.
  std::int64_t bytes_of(Collective collective, const Tensor& tensor) {
    sent = {};
    ((*communicator_).*collective)(tensor)->wait();
    EXPECT_TRUE(sent.only_to_the_next);
    return sent.bytes;
  }
  static std::int64_t over_ranks(std::int64_t own) {
    std::int64_t sum = 0;
    for (const std::int64_t part : gather(ranks(), own)) sum += part;
    return sum;
  }
  // The bytes that this rank sends in one training step, and the size of the arena in bytes.
  struct Step {
    std::int64_t sent, arena;
  };
  static Step train(const SmallSettings& settings, const MakeSync& make_sync) {
    SmallRun run(settings, CommAlgorithm::ring, make_sync);
    sent = {};
    run.trainer.step();
    return {sent.bytes, static_cast<std::int64_t>(run.model.parameters().weights().bytes())};
  }
  static Step train(const std::string& sync, const SmallSettings& settings = {}) {
    return train(settings, sync_named(sync));
  }

  const std::int64_t n_ = ranks().size();
  const std::unique_ptr<Backend> backend_ = make_cpu_backend(1);
  const std::unique_ptr<Communicator> communicator_ =
      make_mpi_communicator(ranks(), *backend_, CommAlgorithm::ring);
};

TEST_F(Traffic, of_a_ring_is_the_least_there_can_be) {
  for (const std::int64_t slice : {1, 256, 257, 65536, 400001}) {
    const Tensor tensor = backend_->zeros(DType::f32, {slice * n_});
    const std::int64_t slice_bytes = slice * std::int64_t{sizeof(float)};
    EXPECT_EQ(bytes_of(&Communicator::all_reduce, tensor), 2 * (n_ - 1) * slice_bytes);
    EXPECT_EQ(bytes_of(&Communicator::reduce_scatter, tensor), (n_ - 1) * slice_bytes);
    const bool is_short = slice_bytes <= 1024;  // gathered by the library
    EXPECT_EQ(bytes_of(&Communicator::all_gather, tensor), is_short ? 0 : (n_ - 1) * slice_bytes);
  }
}

// A rank that computes calls progress() now and then, and MPI moves in between what is in flight: of a
// bucket's slice all chunks, of a longer one four.
TEST_F(Traffic, of_a_ring_has_a_buckets_slice_in_flight) {
  if (n_ == 1) GTEST_SKIP() << "a single rank sends nothing";
  constexpr std::int64_t kChunk = 1 << 16;
  for (const auto& [chunks, in_flight] : {std::pair<int, int>{1, 1}, {14, 14}, {65, 4}}) {
    const Tensor tensor = backend_->zeros(DType::f32, {(chunks * kChunk - 60) * n_});
    for (const Collective collective : {&Communicator::reduce_scatter, &Communicator::all_gather}) {
      sent = {};
      const std::unique_ptr<Pending> pending = ((*communicator_).*collective)(tensor);
      EXPECT_EQ(sent.messages, in_flight) << chunks;
      pending->wait();
      EXPECT_EQ(sent.messages, (n_ - 1) * chunks);
    }
  }
}

// A device whose additions are complete when it has been waited for. It computes nothing.
class LateDevice final : public Backend {
 public:
  LateDevice() : Backend(std::make_unique<HostMemory>(), nullptr) {}
  void synchronize() override { pending = 0; }

  int pending = 0, additions = 0;

 private:
  void do_copy_from_host(void*, const void*, std::size_t) override {}
  void do_copy_to_host(std::span<const HostCopy>) override {}
};

class Additions final : public OpObserver {
 public:
  explicit Additions(LateDevice& device) : OpObserver(device), device_(device) {}
  void around(const OpCall& op, const std::function<void()>&) override {
    EXPECT_TRUE(op.is<Add>()) << op.name;
    ++device_.additions;
    EXPECT_EQ(++device_.pending, 1) << "the sum before has not been waited for";
  }

 private:
  LateDevice& device_;
};

TEST_F(Traffic, of_a_ring_has_sums_that_are_complete) {
  LateDevice device;
  const auto communicator = make_mpi_communicator(ranks(), device, CommAlgorithm::ring);
  const Tensor tensor = device.allocate(DType::f32, {200'000 * n_});
  const Additions additions(device);
  communicator->all_reduce(tensor)->wait();
  communicator->reduce_scatter(tensor)->wait();
  EXPECT_EQ(device.pending, 0);
  EXPECT_EQ(device.additions > 0, n_ > 1);
}

TEST_F(Traffic, of_a_tensor_that_does_not_divide_is_no_more_over_all_ranks) {
  for (const std::int64_t size : {1, 5, 65537, 1000003}) {
    const Tensor tensor = backend_->zeros(DType::f32, {size});
    const std::int64_t bytes = over_ranks(bytes_of(&Communicator::all_reduce, tensor));
    EXPECT_EQ(bytes, 2 * (n_ - 1) * size * std::int64_t{sizeof(float)});
  }
}

// The MPI standard guarantees only tags up to 32767. A run has more collective operations than that.
TEST_F(Traffic, of_more_passes_than_there_are_tags_keeps_them_apart) {
  if (n_ != 2) GTEST_SKIP() << "two ranks see what more would see, and are quicker";
  const Tensor tensor = backend_->zeros(DType::f32, {1});
  int shared = 0;  // operations with the same tag as the one before
  for (int pass = 0; pass < 33000; ++pass) {
    const int before = sent.last_tag;
    communicator_->all_reduce(tensor)->wait();
    shared += sent.last_tag == before;
  }
  EXPECT_EQ(shared, 0);
  EXPECT_LE(sent.highest_tag, 32767);
}

// zero1 divides the optimizer's work without additional traffic.
TEST_F(Traffic, of_a_step_is_that_of_an_all_reduce_of_the_arena) {
  for (const char* sync : {"flat", "zero1", "zero1-overlapped"}) {
    const Step step = train(sync);
    EXPECT_EQ(step.sent, 2 * (n_ - 1) * step.arena / n_) << sync;
  }
}

TEST_F(Traffic, of_several_micro_steps_has_the_gradients_once) {
  const Step step = train("zero1-overlapped", {.accumulation = 3});
  EXPECT_EQ(step.sent, 2 * (n_ - 1) * step.arena / n_);
}

// In bf16: half of the arena's bytes, and an all-reduce of the layernorms in f32.
TEST_F(Traffic, of_weights_in_bf16_is_half_of_that_in_f32) {
  constexpr std::int64_t C = 60, L = 2;
  const ParameterTable table =
      gpt2_parameter_table({.vocab_size = 101, .block_size = 20, .n_layer = L, .n_head = 3, .n_embd = C});
  for (const char* name : {"zero1", "zero1-overlapped"}) {
    const std::unique_ptr<GradientSync> sync = make_gradient_sync(name, *communicator_, *backend_);
    const auto bytes_with = [&](DType activations) {
      Parameters parameters(*backend_, table, DType::f32, ranks().size(), Purpose::training, activations);
      sent = {};
      sync->share_weights(parameters);
      EXPECT_TRUE(sent.only_to_the_next);
      return over_ranks(sent.bytes);
    };
    const std::int64_t arena = table.arena_size(ranks().size()) * std::int64_t{sizeof(float)};
    const std::int64_t norms = (2 * L + 1) * 2 * C * std::int64_t{sizeof(float)};
    EXPECT_EQ(bytes_with(DType::f32), (n_ - 1) * arena) << name;
    EXPECT_EQ(bytes_with(DType::bf16), (n_ - 1) * (arena / 2 + 2 * norms)) << name;
  }
}

// With N rows of C channels and L layers, tensor ranks gather and scatter 2L + 1 times in the forward, and as
// often in the backward; they gather two numbers for each row, and sum the gradients that all of them have.
TEST_F(Traffic, of_tensor_ranks_is_that_of_the_formula) {
  for (const std::int64_t tp : {2, 4}) {
    if (n_ % tp != 0) continue;
    const std::int64_t dp = n_ / tp, C = 60, L = 2;
    const SmallSettings settings{.batch_size = 24, .tensor_ranks = static_cast<int>(tp), .n_head = 12};
    const std::int64_t N = settings.batch_size / dp * kT;
    SmallRun run(settings, CommAlgorithm::ring, sync_named("zero1"));
    sent = {};
    run.trainer.step();
    const std::int64_t arena = run.model.parameters().grads().numel(),
                       shared = shared_end(run.model.parameters().table());
    const std::int64_t activations = 4 * (2 * L + 1) * (tp - 1) * N * C / tp, loss = 2 * (tp - 1) * N;
    const std::int64_t floats = n_ * (activations + loss) + 2 * (tp - 1) * shared + 2 * (dp - 1) * arena * tp;
    EXPECT_EQ(over_ranks(sent.bytes), floats * std::int64_t{sizeof(float)}) << dp << " x " << tp << " ranks";
  }
}

// Between two stages goes the residual stream of each micro-batch, and back its gradient. A tied embedding's
// gradient goes from the last stage to the first, and its weights go back.
TEST_F(Traffic, of_a_pipeline_is_that_of_the_formula) {
  for (const int stages : {2, 3}) {
    if (n_ % stages != 0) continue;
    for (const bool tied : {true, false}) {
      const std::int64_t dp = n_ / stages, M = 4, C = 60;
      const SmallSettings settings{.accumulation = M, .stages = stages, .n_layer = 3, .tied = tied};
      const std::int64_t N = settings.batch_size / dp * kT;
      SmallRun run(settings, CommAlgorithm::ring, sync_named("zero1"));
      sent = {};
      run.trainer.step();
      const std::int64_t streams = 2 * (stages - 1) * M * N * C,
                         embedding = tied ? 2 * run.model.config().padded_vocab_size() * C : 0;
      // The arenas of all ranks are dp times those of all stages.
      const std::int64_t gradients = 2 * (dp - 1) * over_ranks(run.model.parameters().grads().numel()) / dp;
      EXPECT_EQ(over_ranks(sent.bytes),
                (dp * (streams + embedding) + gradients) * std::int64_t{sizeof(float)})
          << dp << " x " << stages << " ranks";
    }
  }
}

// These synchronisations do not send the arena's padding.
TEST_F(Traffic, of_a_step_in_pieces_is_a_little_less) {
  for (const char* sync : {"per-tensor", "bucketed", "overlapped"}) {
    const Step step = train(sync);
    const std::int64_t all = over_ranks(step.sent);
    EXPECT_LE(all, 2 * (n_ - 1) * step.arena) << sync;
    EXPECT_GE(all, 2 * (n_ - 1) * step.arena * 98 / 100) << sync;
  }
}

// Gradients, weights and the norms of the arena's blocks. Halves are whole blocks, so a rank may send a
// little more than another.
TEST_F(Traffic, of_a_reproducible_step_is_that_of_an_all_reduce) {
  if (kReproducibleSubBatches % n_ != 0) GTEST_SKIP() << "the sub-batches do not divide";
  const Step step = train({.batch_size = 8, .reproducible = true}, sync_of<TreeSync>());
  const std::int64_t blocks = backend_->norm_blocks(step.arena / std::int64_t{sizeof(float)});
  EXPECT_EQ(over_ranks(step.sent), (n_ - 1) * (2 * step.arena + blocks * std::int64_t{sizeof(double)}));
}

}  // namespace
}  // namespace stagegpt::test
