// The ops that an observer of a backend sees, and how long it observes.
#include "common/backend/op_observer.h"

#include <gtest/gtest.h>

#include <stdexcept>

#include "common/autograd/ops/cross_entropy.h"
#include "common/autograd/ops/dropout.h"
#include "common/autograd/ops/linear.h"
#include "common/backend/ops/elementwise.h"
#include "common/backend/planning_backend.h"
#include "common/backend/profiler.h"
#include "stage0_serial/naive_backend.h"
#include "tests/support/op_recorder.h"
#include "tests/support/tensors.h"

namespace stagegpt::test {
namespace {

using Ops = std::vector<std::string>;

class Observing : public testing::Test {
 protected:
  const std::unique_ptr<Backend> backend_ = make_naive_backend();
  Backend& be_ = *backend_;
  const Tensor x_ = be_.zeros(DType::f32, {2, 3}), w_ = be_.zeros(DType::f32, {4, 3}),
               y_ = be_.zeros(DType::f32, {2, 4}), pre_ = be_.zeros(DType::f32, {2, 4});
};

TEST_F(Observing, SeesOpsAndCopiesInOrderAndTheyAreComputed) {
  OpRecorder recorder(be_);
  be_.fill(x_, 1);
  be_.run(Add{x_, x_, x_});
  EXPECT_EQ(to_values(be_, x_), Values(6, 2));
  set_values(be_, w_, Values(12, 3));
  be_.run(LinearForward{y_, x_, w_, Tensor()});
  EXPECT_EQ(to_values(be_, y_), Values(8, 2 * 3 * 3));
  EXPECT_EQ(recorder.take(),
            (Ops{"fill", "add", "copy_to_host", "copy_from_host", "linear_forward", "copy_to_host"}));
}

TEST_F(Observing, SeesAFusedOpOnceOrThePrimitiveOnes) {
  OpRecorder recorder(be_);
  be_.run(LinearActivationForward{y_, pre_, x_, w_, Tensor(), Activation::relu});
  EXPECT_EQ(recorder.take(), Ops{"linear_activation_forward"});
  be_.run(ActivationLinearBackward{x_, {}, {}, y_, x_, x_, w_, Activation::relu});
  EXPECT_EQ(recorder.take(), Ops{"activation_linear_backward"});
  const Tensor loss = be_.zeros(DType::f32, {1}), dloss = be_.zeros(DType::f32, {1}),
               ids = be_.zeros(DType::i32, {2});
  const Tensor rows = be_.zeros(DType::f32, {2}), logits = be_.zeros(DType::f32, {2, 5});
  recorder.take();
  be_.run(CrossEntropyForwardBackward{loss, logits, rows, dloss, logits, ids, 5});
  EXPECT_EQ(recorder.take(), Ops{"cross_entropy_forward_backward"});
  be_.set_fused(false);
  be_.run(LinearActivationForward{y_, pre_, x_, w_, Tensor(), Activation::relu});
  EXPECT_EQ(recorder.take(), (Ops{"linear_forward", "activation_forward"}));
  be_.run(ActivationLinearBackward{x_, {}, {}, y_, x_, x_, w_, Activation::relu});
  EXPECT_EQ(recorder.take(), (Ops{"linear_backward", "linear_backward", "activation_backward"}));
  be_.run(CrossEntropyForwardBackward{loss, logits, rows, dloss, logits, ids, 5});
  EXPECT_EQ(recorder.take(), (Ops{"cross_entropy_forward", "cross_entropy_backward"}));
}

TEST_F(Observing, DoesNotSeeWhatIsRefusedOrNotWanted) {
  OpRecorder recorder(be_);
  EXPECT_THROW(be_.run(Add{x_, x_, w_}), InternalError);
  be_.run(DropoutBackward{{}, x_, {}});
  to_host<float>(be_, be_.allocate(DType::f32, {0}));
  EXPECT_EQ(recorder.take(), Ops());
}

TEST_F(Observing, DecidesWhetherAnOpIsComputed) {
  class Skip final : public OpObserver {
   public:
    using OpObserver::OpObserver;
    void around(const OpCall&, const std::function<void()>&) override {}
  };
  {
    Skip skip(be_);
    be_.fill(x_, 1);
  }
  EXPECT_EQ(to_values(be_, x_), Values(6, 0));
}

TEST_F(Observing, EndsWithTheObserverAlsoAfterAnException) {
  const auto interrupted = [&] {
    OpRecorder recorder(be_);
    throw std::runtime_error("interrupted");
  };
  EXPECT_THROW(interrupted(), std::runtime_error);
  EXPECT_NO_THROW(be_.fill(x_, 1));
  OpRecorder next(be_);
  be_.fill(x_, 2);
  EXPECT_EQ(next.take(), Ops{"fill"});
}

TEST_F(Observing, IsForOneObserverAtATime) {
  OpRecorder recorder(be_);
  EXPECT_THROW(OpRecorder{be_}, InternalError);
  be_.fill(x_, 1);
  EXPECT_EQ(recorder.take(), Ops{"fill"});
}

TEST(ObservingAPlan, CountsTheWorkOfOpsThatAreNotComputed) {
  const std::unique_ptr<Backend> backend = make_planning_backend();
  const Tensor x = backend->allocate(DType::f32, {1 << 20, 1 << 20});
  Profiler profiler(*backend);
  backend->run(Add{x, x, x});
  ASSERT_EQ(profiler.entries().size(), 1u);
  EXPECT_EQ(profiler.entries()[0].name, "add");
  EXPECT_EQ(profiler.entries()[0].work.flops, 0x1p40);
}

// A GPU's op may still run when its call returns, so the profiler must wait for it.
TEST(Profiling, WaitsForEachOp) {
  class Counting final : public Backend {
   public:
    Counting() : Backend(std::make_unique<NoMemory>(), /*kernels=*/nullptr) {}
    void synchronize() override { ++waits; }
    int waits = 0;

   private:
    class NoMemory final : public MemorySource {
      void* allocate(std::size_t) override { return this; }
      void deallocate(void*, std::size_t) noexcept override {}
      void* host_view(void*) const override { return nullptr; }
    };
    void do_copy_from_host(void*, const void*, std::size_t) override {}
    void do_copy_to_host(std::span<const HostCopy>) override {}
  };
  Counting backend;
  const Tensor x = backend.zeros(DType::f32, {3});
  EXPECT_EQ(backend.waits, 0);
  Profiler profiler(backend);
  backend.fill(x, 1);
  backend.run(Add{x, x, x});
  EXPECT_EQ(backend.waits, 2);
}

}  // namespace
}  // namespace stagegpt::test
