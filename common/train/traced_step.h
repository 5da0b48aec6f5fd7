// A training step whose tensors are written to a file (--trace-steps).
#pragma once

#include <filesystem>

#include "common/train/trainer.h"

namespace stagegpt {

// One step, with the outputs of its first forward pass, its gradients and the weights after it. A collective
// call; rank 0 writes to `directory`, which it creates. `layers` may be null.
StepReport traced_step(Trainer& trainer, const Grid& grid, Backend& backend, const LanguageModel& model,
                       LayerWatch* layers, const std::filesystem::path& directory);

}  // namespace stagegpt
