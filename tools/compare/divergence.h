// Compares two runs of the same experiment, at different stages or on different numbers of ranks, tensor by
// tensor, to find where they diverge. docs/file_formats.md lists the tensors.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "common/checkpoint/safetensors.h"
#include "common/io/file.h"
#include "common/measure/verify.h"

namespace stagegpt {

// The trace of one training step, as write_trace() (step_trace.h) writes it.
class TraceFile {
 public:
  // Throws UserError, which names the file, if it is not a trace.
  explicit TraceFile(const std::filesystem::path& path);

  const std::filesystem::path& path() const { return path_; }
  // Names of the tensors, without their numbers, in order of computation.
  const std::vector<std::string>& names() const { return names_; }
  bool has(const std::string& name) const { return tensors_.contains(name); }
  const std::vector<std::int64_t>& shape(const std::string& name) const { return tensors_.at(name).shape; }
  // The first `rows` rows; -1: all of them.
  std::vector<float> values(const std::string& name, std::int64_t rows = -1) const;

 private:
  void add(const std::string& numbered, const SafetensorsView& tensor);

  std::filesystem::path path_;
  MappedFile file_;
  std::vector<std::string> names_;
  std::map<std::string, SafetensorsView> tensors_;
};

// Largest accepted relative L2 errors in f32. If the initial weights of a step differ already, larger errors
// are accepted (trace_noise.h).
struct TraceLimits {
  VerifyLimits computed = {};  // of the forward and backward pass: outputs as logits
  // After an update, without noise (trace_noise.h). The limit is that of outputs. Measured for nano and
  // smaller models, between stage 0 and stage 0 with another GEMM or the emulated stage 2: at most 4.2e-6,
  // for biases, whose initial value is zero.
  double weight = 2e-5;

  // Whether all limits are 0: then nothing is left out, and any difference of bits counts.
  bool are_zero() const;
};

// The difference of a tensor from the reference.
struct Divergence {
  std::int64_t step = 0;
  std::string tensor = {};  // "the output of h.0.attn.c_attn (linear)"
  double error = 0;         // relative, L2
  double limit = 0;
  std::optional<std::filesystem::path> missing_in =
      {};  // the trace without this tensor; then error is unused

  bool within_limit() const { return !missing_in && error <= limit; }  // false for NaN
  // "step 2: the output of … differs by 3.1e-03, more than 2.0e-05".
  std::string text() const;
};

// The differences of all tensors, for the steps with a trace in both directories, in order of computation.
// Throws UserError, which names the file, if a file is not a trace, if shapes differ, or if there is no
// common step.
std::vector<Divergence> divergences(const std::filesystem::path& reference,
                                    const std::filesystem::path& other, const TraceLimits& limits = {});

// The first one that exceeds its limit; later ones may be consequences of it.
std::optional<Divergence> first_divergence(const std::filesystem::path& reference,
                                           const std::filesystem::path& other,
                                           const TraceLimits& limits = {});

}  // namespace stagegpt
