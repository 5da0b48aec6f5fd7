// A model's parameters one by one on the host: what lies between an arena and a file of any format.
#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "common/model/parameters.h"

namespace stagegpt {

// values(i, begin, out) copies elements [begin, begin + out.size()) of parameter i of a table: f32, without
// padding, in the order of its shape there.
using ParameterValues = std::function<void(std::size_t i, std::int64_t begin, std::span<float> out)>;

// What an arena f32 (arena_size) holds. Everything is borrowed.
ParameterValues arena_values(Backend& backend, const ParameterTable& table, const Tensor& arena);

// Copies values into an arena; its padding becomes zero.
void load_values(Backend& backend, const ParameterTable& table, const Tensor& arena,
                 const ParameterValues& values);

}  // namespace stagegpt
