#include "common/app/training_grid.h"

#include <iostream>

#include "common/comm/agreement.h"
#include "common/data/step_division.h"
#include "common/parallel/parts.h"

namespace stagegpt {

void refuse_on_grid(const Stage& stage, bool given, const char* flag) {
  if (!given || stage.tensor_ranks() * stage.pipeline_stages() == 1) return;
  user_error(stage.pipeline_stages() > 1 ? "--pipeline-parallel" : "--tensor-parallel",
             ": cannot be combined with ", flag);
}

void require_divisible_step(Stage& stage, const TrainerConfig& config) {
  const RankGroup& group = stage.group();
  const std::int64_t tensor_ranks = stage.tensor_ranks(),
                     model_ranks = tensor_ranks * stage.pipeline_stages();
  if (group.size() % model_ranks != 0) return;
  const int data_ranks = static_cast<int>(group.size() / model_ranks);
  const int data_rank = static_cast<int>(group.rank() / tensor_ranks % data_ranks);
  divide_step(config.batch_size, config.grad_accumulation, data_rank, data_ranks, config.fixed_sub_batches());
}

void require_divisible_model(const Machine& machine, const Gpt2Config& config) {
  const Grid grid = machine.ranks();
  if (!grid.divides_model()) return;
  agree(grid.world().group(),
        [&] { require_divisible(config, grid.tensor().size(), grid.pipeline().size()); });
}

void warn_of_few_micro_steps(const Machine& machine, const TrainerConfig& config) {
  const std::int64_t micro_steps = config.grad_accumulation, stages = machine.ranks().pipeline().size();
  if (micro_steps >= stages) return;
  const std::int64_t waiting = 100 * (stages - 1) / (micro_steps + stages - 1);
  std::cerr << "warning: with " << micro_steps << (micro_steps == 1 ? " micro-step, " : " micro-steps, ")
            << stages << " stages wait " << waiting
            << " % of the time; more --grad-accumulation lessens it\n";
}

TrainingMemory training_memory(const Machine& machine, const Gpt2Config& config, const TrainerConfig& trainer,
                               std::int64_t T) {
  const Grid grid = machine.ranks();
  return {{config, trainer, T, grid.data().size(), *machine.sync, machine.activations, grid.tensor().size(),
           grid.pipeline().size()},
          machine.memory};
}

}  // namespace stagegpt
