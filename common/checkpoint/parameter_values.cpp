#include "common/checkpoint/parameter_values.h"

#include <utility>
#include <vector>

namespace stagegpt {

ParameterValues arena_values(Backend& backend, const ParameterTable& table, const Tensor& arena) {
  return [&backend, &table, arena](std::size_t i, std::int64_t begin, std::span<float> out) {
    check(begin + std::ssize(out) <= table[i].shape.numel(), "parameter values: past the end of ",
          table[i].name);
    check(arena.dtype() == DType::f32, "parameter values: ", arena.dtype(), " as f32");
    backend.copy_to_host(std::as_writable_bytes(out),
                         arena.slice(table[i].offset + begin, {std::ssize(out)}));
  };
}

ParameterValues with_heartbeat(ParameterValues values, const Heartbeat& beat) {
  return [values = std::move(values), beat](std::size_t i, std::int64_t begin, std::span<float> out) {
    values(i, begin, out);
    beat();
  };
}

void load_weights(Backend& backend, const Parameters& parameters, const ParameterValues& values) {
  const Tensor& weights = parameters.weights();
  load_part(backend, parameters.table(), {0, weights.numel()}, weights, values);
}

void load_part(Backend& backend, const ParameterTable& table, const ArenaRange& part, const Tensor& tensor,
               const ParameterValues& values) {
  constexpr std::int64_t kElements = 1 << 22;  // at once, to limit the memory
  backend.fill(tensor, 0);
  std::vector<float> elements;
  for (const Piece& piece : table.pieces(part, kElements)) {
    elements.resize(static_cast<std::size_t>(piece.size()));
    values(piece.parameter, piece.begin, elements);
    const std::int64_t begin = table[piece.parameter].offset + piece.begin - part.begin;
    upload<float>(backend, tensor.slice(begin, {piece.size()}), elements);
  }
}

}  // namespace stagegpt
