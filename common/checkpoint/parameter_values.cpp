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

void load_values(Backend& backend, const ParameterTable& table, const Tensor& arena,
                 const ParameterValues& values) {
  backend.fill(arena, 0);
  for (std::size_t i = 0; i < table.size(); ++i) {
    std::vector<float> elements(static_cast<std::size_t>(table[i].shape.numel()));
    values(i, 0, elements);
    upload<float>(backend, arena.slice(table[i].offset, table[i].shape), elements);
  }
}

}  // namespace stagegpt
