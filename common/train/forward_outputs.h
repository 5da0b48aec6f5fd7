// The outputs of the ops of one forward pass, for traces. Tensor ranks have parts of them, and stages have
// different ones: each rank records its own, and rank 0 gets them as one process has them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "common/logging/step_trace.h"
#include "common/model/language_model.h"
#include "common/parallel/grid.h"
#include "common/train/trainer.h"

namespace stagegpt {

class ForwardOutputs {
 public:
  // The model is this rank's part. It and the backend are borrowed.
  ForwardOutputs(const Grid& grid, Backend& backend, const LanguageModel& model);
  ForwardOutputs(const ForwardOutputs&) = delete;
  ForwardOutputs& operator=(const ForwardOutputs&) = delete;

  // A callback for Trainer::step() that copies the outputs to host memory. Borrows this.
  Tape::OpWatch watch();
  // Moves out what was recorded. A collective call of the ranks of a model: the first one gets all outputs,
  // in the order in which one process computes them, and the others get none.
  std::vector<TracedOutput> collect();

 private:
  // Columns [first, first + count) of a whole output.
  struct Columns {
    std::int64_t first = 0, count = 0;
  };
  // What a rank has of an output (B,T,columns): some of its B·T rows, and of each row some columns.
  struct Part {
    std::string name = {};
    std::int64_t columns = 0;        // of the whole output
    std::int64_t first_row = 0;      // the last ones may be more than B·T
    std::vector<Columns> held = {};  // beside each other
    std::vector<float> values = {};  // (rows, Σ held.count)

    std::int64_t width() const;
    void copy_to(TracedOutput& whole) const;
  };

  void record(std::string_view op, std::span<const Var> inputs, std::span<const Var> outputs);
  // Without name and values.
  Part part_of(std::string_view op, std::span<const Var> inputs, const Shape& shape) const;
  void send_parts() const;
  std::vector<Part> receive_parts(int rank) const;
  // Adds the parts of one rank of a stage to outputs, of which those of the stage begin at `first`.
  void put(std::vector<Part> parts, std::vector<TracedOutput>& outputs, std::size_t first) const;

  Grid grid_;
  Backend& backend_;
  const LanguageModel& model_;
  ParameterTable whole_table_;
  OutputNames names_;
  std::int64_t B_ = 0, T_ = 0;
  std::vector<Part> parts_;
};

// One step that is written to a file (--trace-steps), with the outputs of its first forward pass, its
// gradients and the weights after it. A collective call; rank 0 writes to `directory`, which it creates.
// `layers` may be null.
StepReport traced_step(Trainer& trainer, const Grid& grid, Backend& backend, const LanguageModel& model,
                       LayerWatch* layers, const std::filesystem::path& directory);

}  // namespace stagegpt
