#include "common/train/traced_step.h"

#include <utility>
#include <vector>

#include "common/checkpoint/piece_stream.h"
#include "common/io/file.h"
#include "common/logging/step_trace.h"
#include "common/model/gpt2_config.h"
#include "common/parallel/whole_values.h"
#include "common/train/checkpoint_arenas.h"
#include "common/train/forward_outputs.h"

namespace stagegpt {

StepReport traced_step(Trainer& trainer, const Grid& grid, Backend& backend, const LanguageModel& model,
                       LayerWatch* layers, const std::filesystem::path& directory) {
  RankGroup& group = grid.world().group();
  const bool is_of_first_model = grid.data().rank() == 0;
  ForwardOutputs outputs(grid, backend, model);
  const StepReport report = trainer.step(is_of_first_model ? outputs.watch() : Tape::OpWatch(), layers);
  group.enter("trace");
  trainer.gather_weights();
  std::vector<TracedOutput> traced;
  if (is_of_first_model) traced = outputs.collect();

  constexpr std::size_t kGradients = 0, kWeights = 1;
  const ParameterTable table = gpt2_parameter_table(model.config());
  PieceStream stream(group, backend, placed_in_parts(table, grid),
                     {gradient_arena(grid, model, trainer.optimizer()),
                      checkpoint_arenas(grid, model, trainer.optimizer()).front()});
  stream.run([&] {
    make_directories(directory);
    write_trace(directory / trace_name(trainer.steps_done()), table,
                {std::move(traced), report.loss, stream.values(kGradients), stream.values(kWeights)},
                [&] { group.beat(); });
  });
  return report;
}

}  // namespace stagegpt
