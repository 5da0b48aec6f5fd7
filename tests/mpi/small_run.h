// Training of a small model, on one process or on the ranks of a communicator.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "common/comm/self_communicator.h"
#include "common/parallel/divided_gpt2.h"
#include "common/train/trainer.h"
#include "stage0_serial/cpu_backend.h"
#include "stage1_mpi/gradient_syncs.h"
#include "stage1_mpi/mpi_communicator.h"
#include "tests/support/mpi_ranks.h"
#include "tests/support/tensors.h"

namespace stagegpt::test {

inline constexpr std::int64_t kVocabulary = 101, kT = 17;

struct SmallSettings {
  std::int64_t batch_size = 12;  // divisible by 1, 2, 3 and 4 ranks
  std::int64_t accumulation = 1;
  double dropout = 0;
  bool reproducible = false;
  int threads = 1;
  int tensor_ranks = 1, n_head = 3;
  int stages = 1, n_layer = 2;
  bool tied = true;
  DType activations = DType::f32;
  int ranks = 0;  // that train together: these and the next so many, …; 0: all
  double grad_clip = 1;
  Recompute recompute = Recompute::none;
};

using MakeSync = std::function<std::unique_ptr<GradientSync>(Communicator&, Backend&)>;

inline MakeSync sync_named(const std::string& name) {
  return [name](Communicator& communicator, Backend& backend) {
    return make_gradient_sync(name, communicator, backend);
  };
}
// Of this type, with these further arguments.
template <class Sync, class... Arguments>
MakeSync sync_of(Arguments... arguments) {
  return [=](Communicator& communicator, Backend& backend) {
    return std::make_unique<Sync>(communicator, backend, arguments...);
  };
}

class SmallRun {
 public:
  // Training on one process, as in stage 0.
  explicit SmallRun(const SmallSettings& settings)
      : SmallRun(
            settings, [this](Backend&) { return std::make_unique<SelfCommunicator>(single_); },
            [](Communicator&, Backend&) { return std::make_unique<NoGradientSync>(); }) {}
  // Training on the MPI ranks of this program.
  SmallRun(const SmallSettings& settings, CommAlgorithm algorithm, const MakeSync& make_sync)
      : SmallRun(
            settings,
            [=](Backend& own) {
              auto all = make_mpi_communicator(test::ranks(), own, algorithm);
              return settings.ranks == 0 ? std::move(all)
                                         : all->split(all->rank() / settings.ranks, all->rank());
            },
            make_sync) {}

  std::vector<float> weights() const { return elements(model.parameters().weights()); }
  std::vector<float> elements(const Tensor& tensor) const { return to_host<float>(*backend, tensor); }

  static Gpt2Config config(const SmallSettings& settings) {
    return {.vocab_size = kVocabulary,
            .block_size = 20,
            .n_layer = settings.n_layer,
            .n_head = settings.n_head,
            .n_embd = 60,  // an arena of more than 65536 elements: several chunks
            .dropout = settings.dropout,
            .tie_word_embeddings = settings.tied};
  }
  static TrainerConfig trainer_config(const SmallSettings& settings) {
    TrainerConfig config;
    config.batch_size = settings.batch_size;
    config.grad_accumulation = settings.accumulation;
    config.schedule = {.kind = LrSchedule::Kind::constant,
                       .learning_rate = 1e-3,
                       .min_lr = 0,
                       .warmup_steps = 0,
                       .steps = 1};
    config.adamw.grad_clip = settings.grad_clip;
    config.reproducible = settings.reproducible;
    config.recompute = settings.recompute;
    return config;
  }

 private:
  using MakeCommunicator = std::function<std::unique_ptr<Communicator>(Backend&)>;

  SmallRun(const SmallSettings& settings, const MakeCommunicator& make_communicator,
           const MakeSync& make_sync)
      : backend(make_cpu_backend(settings.threads)),
        communicator(make_communicator(*backend)),
        grid(*communicator, settings.tensor_ranks, settings.stages),
        sync(make_sync(grid.data(), *backend)),
        own_model(make_gpt2(*backend, config(settings), grid, Purpose::training, settings.activations)),
        model(*own_model),
        data(random_ids(1, 0, 1500, kVocabulary), kT, 1),
        trainer(*backend, grid, *sync, model, data, trainer_config(settings)) {
    backend->set_reproducible(settings.reproducible);
    model.parameters().initialize(1);
    model.parameters().update_shadow();
  }

  SingleProcess single_;

 public:
  const std::unique_ptr<Backend> backend;
  const std::unique_ptr<Communicator> communicator;
  const Grid grid;
  const std::unique_ptr<GradientSync> sync;
  const std::unique_ptr<LanguageModel> own_model;
  LanguageModel& model;
  DataLoader data;
  Trainer trainer;
};

}  // namespace stagegpt::test
