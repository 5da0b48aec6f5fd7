#include "common/app/initial_weights.h"

#include "common/checkpoint/manifest.h"
#include "common/comm/agreement.h"
#include "common/parallel/whole_values.h"
#include "common/system/stop_signals.h"
#include "common/train/broadcast_weights.h"

namespace stagegpt {

std::unique_ptr<HuggingFaceModel> open_weights(const std::optional<std::filesystem::path>& directory,
                                               bool verified) {
  if (!directory) return nullptr;
  const char* flag = verified ? "--resume" : "--model";
  if (!verified) verify_named(*directory, flag, StopSignals::throw_if_requested);
  return std::make_unique<HuggingFaceModel>(*directory, flag);
}

void set_initial_weights(const Machine& machine, const std::optional<std::filesystem::path>& directory,
                         const HuggingFaceModel* weights, std::uint64_t seed, LanguageModel& model) {
  const Grid grid = machine.ranks();
  Communicator& communicator = grid.data();
  RankGroup& world = grid.world().group();
  Parameters& parameters = model.parameters();
  if (directory && grid.divides_model()) {
    const ParameterTable whole = gpt2_parameter_table(model.config());
    const auto values =
        weights ? with_heartbeat(weights->values(), StopSignals::throw_if_requested) : ParameterValues();
    take_part(world, *machine.backend, whole, values, parameters.table(), parameters.weights());
  } else if (directory) {
    on_root(communicator.group(),
            [&] { load_weights(*weights, *machine.backend, model, StopSignals::throw_if_requested); });
    broadcast_weights(communicator, *machine.backend, parameters);
  } else {
    agree(world, [&] { draw_weights(communicator, *machine.backend, parameters, seed, machine.threads); });
  }
  parameters.update_shadow();
  stop_if_requested(world);
}

}  // namespace stagegpt
