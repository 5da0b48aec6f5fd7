// Two runs of the same experiment, at different stages or on different ranks, tensor by tensor: where they
// part. See step_trace.h for what there is to compare.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "common/measure/verify.h"

namespace stagegpt {

// Largest relative L2 errors in f32. Where the weights that a step begins with differ already, so may what is
// computed from them, by more: see adam_noise.h.
struct TraceLimits {
  VerifyLimits computed = {};  // of the forward and backward pass: outputs as logits
  // After an update, noise left out: what the outputs of the next step may differ by. Measured between stage
  // 0 and stage 0 with other products or the emulated stage 2, nano and smaller: 4.2e-6 at most, of biases,
  // which are nothing but updates.
  double weight = 2e-5;

  // All are 0: nothing is left out then, and any difference of bits counts.
  bool are_zero() const;
};

// How far a tensor is from the reference's.
struct Divergence {
  std::int64_t step = 0;
  std::string tensor = {};  // "the output of h.0.attn.c_attn (linear)"
  double error = 0;         // relative, L2
  double limit = 0;
  std::optional<std::filesystem::path> missing_in = {};  // the trace that lacks it: then there is no error

  bool within_limit() const { return !missing_in && error <= limit; }  // false for NaN
  // "step 2: the output of … differs by 3.1e-03, more than 2.0e-05", for a reader.
  std::string text() const;
};

// Every tensor of the steps of which both directories hold a trace, in the order in which they are computed.
// Throws UserError that names the file where one is no trace or has other shapes, or where there is no such
// step.
std::vector<Divergence> divergences(const std::filesystem::path& reference,
                                    const std::filesystem::path& other, const TraceLimits& limits = {});

// The first of them that is beyond its limit: what comes later may follow from it.
std::optional<Divergence> first_divergence(const std::filesystem::path& reference,
                                           const std::filesystem::path& other,
                                           const TraceLimits& limits = {});

}  // namespace stagegpt
