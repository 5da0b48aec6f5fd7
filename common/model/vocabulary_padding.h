// The vocabulary is padded inside the program, and nowhere else.
#pragma once

#include <cstdint>
#include <vector>

namespace stagegpt {

// The first `columns` of each row of `width`.
inline std::vector<float> without_padding(std::vector<float> rows, std::int64_t width, std::int64_t columns) {
  if (columns == width) return rows;
  std::vector<float> out;
  for (auto row = rows.begin(); row != rows.end(); row += width) out.insert(out.end(), row, row + columns);
  return out;
}

}  // namespace stagegpt
