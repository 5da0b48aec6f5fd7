// --weights: the precision in which generation keeps the matrices of a model.
#pragma once

#include <string>

#include "common/app/command_line.h"
#include "common/app/stage.h"
#include "common/model/gpt2.h"

namespace stagegpt {

class WeightsFlag {
 public:
  void add(CommandLine& command_line, const std::string& help);
  const std::string& name() const { return name_; }  // as given
  // The name of the precision of matrices(): "f32", "bf16" or "int8".
  std::string name_on(const Machine& machine) const;
  // Where activations are bf16, matrices are too. Throws AgreedUserError if the backend cannot read them.
  DType matrices(const Machine& machine) const;
  // Brings the matrices of a model in f32 to this precision, and gives the memory that is free then back.
  void narrow(Gpt2& model, const Machine& machine) const;

 private:
  std::string name_ = "f32";
};

}  // namespace stagegpt
