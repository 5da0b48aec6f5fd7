#include "common/app/weights_flag.h"

#include "common/comm/agreement.h"

namespace stagegpt {

void WeightsFlag::add(CommandLine& command_line, const std::string& help) {
  command_line.choice("--weights", name_, {"f32", "bf16", "int8"}, help);
}

DType WeightsFlag::matrices(const Machine& machine) const {
  if (name_ == "int8") {
    if (!machine.backend->reads_quantised_rows())
      throw AgreedUserError("--weights: int8 is for stages 0 and 1; expected f32 or bf16");
    return DType::i8;
  }
  return machine.activations == DType::bf16 || name_ == "bf16" ? DType::bf16 : DType::f32;
}

std::string WeightsFlag::name_on(const Machine& machine) const {
  const DType matrices = this->matrices(machine);
  return matrices == DType::i8 ? "int8" : name_of(matrices);
}

void WeightsFlag::narrow(Gpt2& model, const Machine& machine) const {
  if (matrices(machine) == machine.activations) return;
  model.narrow_matrices(matrices(machine));
  machine.backend->release_free_memory();
  machine.backend->forget_memory_peak();
}

}  // namespace stagegpt
