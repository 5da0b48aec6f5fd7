// zero1 on a device whose communicator, like NCCL, makes streams wait in place of the host.
#include <gtest/gtest.h>

#include "common/model/gpt2.h"
#include "stage1_mpi/gradient_syncs.h"
#include "stage2_cuda/cuda_backend.h"
#include "stage2_cuda/device_counts.h"
#include "tests/support/counting_communicator.h"
#include "tests/support/small_training.h"
#include "tests/support/tensors.h"

namespace stagegpt::test {
namespace {

// Rank 1 of 3, which are all alike.
TEST(Zero1OnDevice, AStepHasOneWait) {
  for (const std::string name : {"zero1", "zero1-overlapped"}) {
    gpu::open_device(0);
    const std::unique_ptr<Backend> backend = gpu::make_cuda_backend({});
    AlikeRanks ranks(1, 3);
    CountingCommunicator communicator(ranks, backend.get());
    const std::unique_ptr<GradientSync> sync = make_gradient_sync(name, communicator, *backend);
    Gpt2 model(*backend, SmallTraining::model_config(0), DType::f32, ranks.size(), Purpose::training,
               DType::bf16);
    model.parameters().initialize(1);
    model.parameters().update_shadow();
    const DataLoader data(random_tokens(1000), kSmallT, 1);
    Trainer trainer(*backend, communicator, *sync, model, data, small_config(3, 2));
    for (int step = 0; step < 2; ++step) {
      const std::int64_t before = gpu::device_counts.waits;
      const StepReport report = trainer.step();
      EXPECT_EQ(gpu::device_counts.waits, before + 1) << name << ": for the results, at the end";
      // Each rank has a third of the squared norm. After the first step the layernorms' weights of other
      // ranks are zero, because this communicator's all-reduce adds nothing.
      if (step == 0) {
        EXPECT_GT(report.grad_norm, 0);
      }
      EXPECT_EQ(report.grad_norm, std::sqrt(to_value(*backend, trainer.optimizer().squared_norm())));
    }
  }
}

}  // namespace
}  // namespace stagegpt::test
