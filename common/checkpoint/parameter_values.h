// Access to a model's parameters, one by one, on the host. The interface between arenas and files of all
// formats.
#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "common/base/heartbeat.h"
#include "common/model/parameters.h"

namespace stagegpt {

// values(i, begin, out) copies elements [begin, begin + out.size()) of parameter i of a table to `out`: f32,
// without padding, in row-major order of its shape in the table.
using ParameterValues = std::function<void(std::size_t i, std::int64_t begin, std::span<float> out)>;

// The values in an arena f32 (arena_size). All arguments are borrowed.
ParameterValues arena_values(Backend& backend, const ParameterTable& table, const Tensor& arena);

// `values`, with a heartbeat after each call.
ParameterValues with_heartbeat(ParameterValues values, const Heartbeat& beat);

// Adam's moments.
struct MomentValues {
  ParameterValues m, v;
};

// Copies values into the weights, in f32, and sets their padding to zero. A model with a shorter context than
// that of the values takes only the first positions.
void load_weights(Backend& backend, const Parameters& parameters, const ParameterValues& values);
// Loads a part of an arena; `tensor` is this part.
void load_part(Backend& backend, const ParameterTable& table, const ArenaRange& part, const Tensor& tensor,
               const ParameterValues& values);

}  // namespace stagegpt
