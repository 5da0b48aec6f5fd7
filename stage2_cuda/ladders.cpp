#include "stage2_cuda/ladders.h"

#include "common/base/error.h"

namespace stagegpt::gpu {
namespace {

Ladder ladder_named(std::string_view name, Backend& backend, const LadderOptions& options) {
  if (name == "matmul") return matmul_ladder(backend, options);
  if (name == "attention") return attention_ladder(backend, options);
  if (options.precision == Precision::bf16)
    user_error("--precision: the versions of --ladder layernorm are in f32, got \"bf16\"");
  return layernorm_ladder(backend, options);
}

}  // namespace

Ladder make_ladder(std::string_view name, Backend& backend, const LadderOptions& options) {
  Ladder ladder = ladder_named(name, backend, options);
  backend.synchronize();  // completes the ladder's inputs
  return ladder;
}

}  // namespace stagegpt::gpu
