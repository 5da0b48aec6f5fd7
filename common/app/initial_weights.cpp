#include "common/app/initial_weights.h"

#include "common/checkpoint/model_file.h"
#include "common/comm/agreement.h"
#include "common/parallel/whole_values.h"
#include "common/system/stop_signals.h"
#include "common/train/broadcast_weights.h"

namespace stagegpt {

ParameterValues open_weights(const std::filesystem::path& path, bool verified) {
  const ModelFile file = verified ? open_verified_model(path, "--resume")
                                  : open_model(path, "--model", StopSignals::throw_if_requested);
  return with_heartbeat(file.values, StopSignals::throw_if_requested);
}

void set_initial_weights(const Machine& machine, bool from_files, const ParameterValues& values,
                         std::uint64_t seed, LanguageModel& model) {
  const Grid grid = machine.ranks();
  Communicator& communicator = grid.data();
  RankGroup& world = grid.world().group();
  Parameters& parameters = model.parameters();
  if (from_files && grid.divides_model()) {
    const ParameterTable whole = gpt2_parameter_table(model.config());
    take_part(world, *machine.backend, whole, values, parameters.table(), parameters.weights());
  } else if (from_files) {
    on_root(communicator.group(), [&] { load_weights(*machine.backend, parameters, values); });
    broadcast_weights(communicator, *machine.backend, parameters);
  } else {
    agree(world, [&] { draw_weights(communicator, *machine.backend, parameters, seed, machine.threads); });
  }
  parameters.update_shadow();
  stop_if_requested(world);
}

}  // namespace stagegpt
