// The padding of the vocabulary. Only tensors of a running program have it; files and results do not.
#pragma once

#include <cstdint>
#include <vector>

namespace stagegpt {

// Rows of an embedding of so many tokens, and columns of its logits: a multiple of 128.
inline std::int64_t padded_vocabulary(std::int64_t tokens) { return (tokens + 127) / 128 * 128; }

// The first `columns` elements of each row of `width` elements.
inline std::vector<float> without_padding(std::vector<float> rows, std::int64_t width, std::int64_t columns) {
  if (columns == width) return rows;
  std::vector<float> out;
  for (auto row = rows.begin(); row != rows.end(); row += width) out.insert(out.end(), row, row + columns);
  return out;
}

}  // namespace stagegpt
